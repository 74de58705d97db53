"""Feedback: what clients say of answers, brought to the gateway that gave them.

A client's word comes to whichever gateway the kernel picks. One that did not give the answer asks
the others of its machine, over Unix sockets in the run directory, as
``gateway.neighbours.siblings`` does for counters: one line of JSON, one line back. On a cluster it
then asks those of other machines (``feedback_elsewhere``).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from controlplane.gateway.canaries.feedback_elsewhere import Elsewhere
from controlplane.gateway.canaries.recent_answers import UNKNOWN, RecentAnswers
from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.neighbours.siblings import files_of_others, named_after_node
from controlplane.http_errors import error_body, parse_error, status_of
from controlplane.live_state import LiveState
from variants.errors import ModellessError, NotFound

log = logging.getLogger(__name__)

SUFFIX = ".answers"
PATIENCE_S = 0.5
"""How long another gateway may take to say whether the answer was its own."""
MOST_BYTES = 2**20
"""Of a line."""


class Feedback:
    """Takes in what clients say of the answers of this gateway and of its siblings."""

    def __init__(
        self,
        folder: Path,
        gateway: str,
        answers: RecentAnswers,
        counters: Counters,
        clock_ms: Callable[[], float],
        live: LiveState | None = None,
    ) -> None:
        """
        Args:
            folder: the run directory, which only this user may enter.
            gateway: the id of this one.
            answers: its own, lately.
            counters: its own.
            clock_ms: the clock of the answers.
            live: where gateways may be on several machines; they ask each other by it.
        """
        self._node = named_after_node()
        self._socket = folder / f"{self._node}-{gateway[:8]}{SUFFIX}"
        self._answers = answers
        self._counters = counters
        self._clock_ms = clock_ms
        self._server: asyncio.Server | None = None
        self.elsewhere = None if live is None else Elsewhere(live, self._told)

    async def start(self) -> None:
        """Answer the others. A gateway that cannot goes on with its own clients."""
        try:
            self._server = await asyncio.start_unix_server(
                self._tell, self._socket, limit=MOST_BYTES
            )
        except OSError as error:
            log.warning("other gateways cannot bring feedback to this one: %s", error)

    async def stop(self) -> None:
        """Take no more feedback on answers of this gateway."""
        if self._server is not None:
            self._server.close()
            self._socket.unlink(missing_ok=True)

    async def give(self, request_id: str, labels: Sequence[str]) -> dict[str, Any]:
        """Take in which classes were right, one for each row of an answer.

        Returns:
            ``task``, ``variant``, how many rows were ``right`` and ``wrong``, and ``anew``: False
            where the same was said before.

        Raises:
            NotFound: no gateway has given such an answer lately.
            InvalidInput: the labels do not fit the answer.
            Conflict: something else was said of it before.
            StateUnavailable: those of other machines could not all be asked.
        """
        try:
            return self._own(request_id, labels)
        except NotFound:
            line = _line(request_id, labels)
            others = files_of_others(self._socket, f"{self._node}-*{SUFFIX}")
            for told in await asyncio.gather(*(_asked(other, line) for other in others)):
                if isinstance(told, NotFound):
                    continue
                if isinstance(told, ModellessError):
                    raise told from None
                return told
            return await self._from_elsewhere(request_id, labels)

    async def _from_elsewhere(self, request_id: str, labels: Sequence[str]) -> dict[str, Any]:
        word = {"request_id": request_id, "labels": list(labels)}
        told = None if self.elsewhere is None else await self.elsewhere.ask(word)
        if told is None:
            raise NotFound(UNKNOWN)
        said = _said(told)
        if isinstance(said, ModellessError):
            raise said
        return said

    def _own(self, request_id: str, labels: Sequence[str]) -> dict[str, Any]:
        judged, arm = self._answers.judge(request_id, labels, self._clock_ms())
        if judged.anew:
            counters = self._counters.task(judged.task).of(judged.variant)
            counters.said(judged.classes)
            for counted in (counters, arm):
                if counted is not None:
                    counted.right += judged.right
                    counted.wrong += judged.wrong
        return {
            "task": judged.task,
            "variant": judged.variant,
            "right": judged.right,
            "wrong": judged.wrong,
            "anew": judged.anew,
        }

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one line of another gateway."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = self._told(orjson.loads(await reader.readline()))
        except (ValueError, TimeoutError, OSError):
            answer = {}
        if answer:
            writer.write(orjson.dumps(answer) + b"\n")
        writer.close()

    def _told(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What another gateway is told of its client's word: nothing where the answer was not given
        here, or the word is none."""
        try:
            return {"judged": self._own(asked["request_id"], asked["labels"])}
        except NotFound:
            return {}
        except ModellessError as error:
            return {"error": error_body(error, ""), "status": status_of(error)}
        except (ValueError, KeyError, TypeError):
            return {}


def _line(request_id: str, labels: Sequence[str]) -> bytes:
    """A client's word for another gateway.

    Raises:
        NotFound: it holds what is no text, which no answer carries and no class is called.
    """
    try:
        return orjson.dumps({"request_id": request_id, "labels": list(labels)}) + b"\n"
    except orjson.JSONEncodeError as error:
        raise NotFound(UNKNOWN) from error


async def _asked(socket: Path, line: bytes) -> dict[str, Any] | ModellessError:
    """What another gateway says; that it knows nothing, where it does not answer."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_unix_connection(socket, limit=MOST_BYTES)
            try:
                writer.write(line)
                told = orjson.loads(await reader.readline())
            finally:
                writer.close()
        return _said(told)
    except (OSError, TimeoutError, ValueError, TypeError):
        return NotFound(UNKNOWN)


def _said(told: Mapping[str, Any]) -> dict[str, Any] | ModellessError:
    """What another gateway told, as ``Feedback.give`` has it."""
    try:
        if "error" in told:
            return parse_error(told["status"], orjson.dumps(told["error"]))
        return dict(told["judged"])
    except (ValueError, KeyError, TypeError):
        return NotFound(UNKNOWN)
