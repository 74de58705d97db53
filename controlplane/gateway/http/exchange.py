"""Exchange: one query on a client's connection, from its headers to its answer."""

from collections.abc import Iterable, Mapping
from typing import Protocol
from urllib.parse import unquote

from controlplane.gateway.protection.compression import accepted
from planner.types import ANYBODY, Client

TASK = b"x-modelless-task"
SLO = b"x-modelless-slo"
V1 = b"/v1/query"
EMBEDDINGS = b"/v1/embeddings"
_V2 = b"/v2/models/"
_INFER = b"/infer"
_WAIT = b"retry-after-ms: "
BUSY = 503
"""The only status with which a client is told when to come back."""
FORWARDED = frozenset({b"forwarded", b"via", b"x-forwarded-for"})
_UPGRADE = frozenset({b"upgrade", b"connection", b"http2-settings"})
"""Headers by which a client offers another protocol."""


class Answering(Protocol):
    """A connection that an answer can be written to."""

    exchange: "Exchange | None"
    """The query that is being read or answered."""

    def answer(self, exchange: "Exchange", status: int, body: bytes, headers: bytes) -> None:
        """Write the answer of the query in ``exchange``."""


class Exchange:
    """What has come of a query, and where its answer goes."""

    __slots__ = ("body", "client", "fields", "front", "keep_alive", "received_ms", "target")

    def __init__(
        self,
        front: Answering,
        target: bytes,
        fields: dict[bytes, bytes],
        received_ms: float,
        client: Client = ANYBODY,
    ) -> None:
        """
        Args:
            target: path of the request, without what follows a question mark.
            fields: the headers by their names in lower case.
            received_ms: when the first byte came.
            client: by whose key it asks.
        """
        self.client = client
        self.front = front
        self.target = target
        self.fields = fields
        self.received_ms = received_ms
        self.body: bytes | bytearray = b""
        self.keep_alive = True

    def take(self, body: bytes) -> int:
        """Add what has come of the body; return how long it is now."""
        if not self.body:
            self.body = body
        else:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += body
        return len(self.body)

    @property
    def given_id(self) -> bytes | None:
        """The caller's ``X-Request-Id``."""
        return self.fields.get(b"x-request-id")

    @property
    def takes(self) -> bytes:
        """The coding that its answer may have; empty: none."""
        header = self.fields.get(b"accept-encoding")
        return b"" if header is None else accepted(header)

    @property
    def forwarded(self) -> bool:
        """Whether it came through a proxy, whose connections are shared by many clients."""
        return not FORWARDED.isdisjoint(self.fields)

    def respond(self, status: int, body: bytes, headers: bytes) -> None:
        """Write the answer, unless the client has gone."""
        if self.front.exchange is self:
            self.front.answer(self, status, body, headers)


def route_of(target: bytes) -> str:
    """Which inference route a path is of, without the names in it."""
    if not target.startswith(_V2):
        return target.decode("latin-1")
    named = "/v2/models/{task}/versions/{variant}/infer"
    return named if b"/versions/" in target else "/v2/models/{task}/infer"


def is_query(target: bytes) -> bool:
    """Whether a path is one of the inference routes, as far as its ends say."""
    return target in (V1, EMBEDDINGS) or (target.startswith(_V2) and target.endswith(_INFER))


def task_and_variant(target: bytes) -> tuple[str, str | None] | None:
    """What ``/v2/models/{task}[/versions/{variant}]/infer`` names; ``None`` for another path."""
    parts = target.decode("latin-1").split("/")
    if len(parts) == 7 and parts[4] == "versions":
        return unquote(parts[3]), unquote(parts[5])
    return (unquote(parts[3]), None) if len(parts) == 5 else None


def asked_in_headers(
    target: bytes, fields: Mapping[bytes, bytes]
) -> tuple[str, str | None, bytes | None] | None:
    """Task, variant and SLO of a query whose headers say what it asks for; ``None`` of others.

    The task of an inference request of v2 stands in its path, the SLO as JSON in a header. A query
    with a body of unknown length is none of these: it may never end.
    """
    if b"content-length" not in fields:
        return None
    slo = fields.get(SLO)
    if target == V1:
        task = fields.get(TASK)
        return None if task is None else (task.decode("latin-1"), None, slo)
    named = None if slo is None else task_and_variant(target)
    return None if named is None else (*named, slo)


def has_several_hosts(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request says in several ways whom it is for: a proxy before this gateway may have
    gone by another one than is looked at here.

    Args:
        headers: with their names in lower case.
    """
    return [name for name, _ in headers].count(b"host") > 1


def told_wait_ms(status: int, headers: bytes) -> float:
    """How long an answer with these header lines tells its reader to wait; 0 if it does not."""
    begin = headers.find(_WAIT) if status == BUSY else -1
    if begin < 0:
        return 0.0
    begin += len(_WAIT)
    return float(headers[begin : headers.index(b"\r", begin)])


def whole_answer(status_line: bytes, body: bytes, headers: bytes, last: bool) -> bytes:
    """An answer on the wire; ``last``: the connection is closed behind it."""
    close = b"connection: close\r\n" if last else b""
    return b"%s%scontent-length: %d\r\n%s\r\n%s" % (
        status_line, headers, len(body), close, body,
    )  # fmt: skip


def head_without_upgrade(
    method: bytes, target: bytes, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """A request's line and headers, the empty line included, without an offer to switch protocol.

    Args:
        headers: with their names in lower case.
    """
    head = [method, b" ", target, b" HTTP/1.1\r\n"]
    for name, value in headers:
        if name not in _UPGRADE:
            head += [name, b": ", value, b"\r\n"]
        elif name == b"connection" and b"close" in value.lower():
            head.append(b"connection: close\r\n")
    return b"".join([*head, b"\r\n"])
