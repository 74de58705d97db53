"""TurnedAway: the answer to a connection that is one too many.

It gets the error as the answer to whatever it asks, so that a person can read it. Nothing of its
request is looked at, and it is gone within two seconds.
"""

import asyncio
from typing import cast

import orjson

from controlplane.http_errors import error_body, error_headers, request_id, status_of
from variants.errors import ModellessError

SILENT_S = 2.0
"""How long it may take until it asks something."""
READ_S = 1.0
"""How long it may take to read the answer: a connection that is closed at once is reset, and what
was answered is lost."""
MOST = 256
"""That are answered at one time; more are closed at once. Each has a file descriptor meanwhile."""

_now_answered: set["TurnedAway"] = set()


class TurnedAway(asyncio.Protocol):
    """The protocol of a connection that is not served."""

    def __init__(self, error: ModellessError, status_line: bytes) -> None:
        """
        Args:
            status_line: of the error's status.
        """
        body = orjson.dumps(error_body(error, request_id(None)))
        lines = b"".join(
            f"{name.lower()}: {value}\r\n".encode() for name, value in error_headers(error).items()
        )
        rest = b"connection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        self._answer = b"%scontent-type: application/json\r\n%s%s" % (status_line, lines, rest)
        self._answered = False
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by whoever hands the connection over."""
        self._transport = cast(asyncio.Transport, transport)
        if len(_now_answered) >= MOST:
            self._transport.abort()
            return
        _now_answered.add(self)
        self._wait(SILENT_S)

    def data_received(self, data: bytes) -> None:
        if self._answered or self._timer is None:
            return
        self._answered = True
        self._transport.write(self._answer)
        if self._transport.can_write_eof():
            self._transport.write_eof()
            self._wait(READ_S)
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        _now_answered.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._transport.abort)


def answer_to(error: ModellessError) -> int:
    """The status of the answer."""
    return status_of(error)
