"""A head that is known: clients send the same request line and headers with every query.

What the parser made of a head is true of the next one with the same bytes, and only the length of
the body differs. So a query that comes in one piece, behind a head that its connection has seen, is
taken without being parsed again. So is the first one of a connection where others have sent the
same: clients that open a connection for each query do.
"""

import re
from collections import deque
from dataclasses import dataclass

from controlplane.gateway.http.access import KnownClients
from controlplane.gateway.http.exchange import EMBEDDINGS, FORWARDED, V1, task_and_variant
from controlplane.gateway.overload.repeated_refusals import (
    Outline,
    named_in_path,
    outline_named,
    outline_of,
)
from planner.types import ANYBODY, Client

TELLING = FORWARDED | {b"content-encoding", b"origin", b"x-request-id"}
"""Headers that a body is read by, or an answer made."""
JSON_HEADER = b"inference-header-content-length"
LONGEST = 2_048
"""Bytes of a head that is remembered: there is one for each connection."""
TRIES = 4
"""Heads of a connection that are looked at in vain. Some clients send another with each query."""
OWN = frozenset({b"authorization", b"cookie", b"proxy-authorization", b"x-request-id"})
"""Headers of heads that are remembered for their own connection alone."""
REMEMBERED = 8
"""Of all connections, for those that come."""
_DIGITS = 9
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,%d})(?=\r\n)" % _DIGITS, re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A head around the digits that say how long the body is."""

    before: bytes
    after: bytes
    target: bytes
    """Path of the request, without what follows a question mark."""
    fields: dict[bytes, bytes]
    """The headers by their names in lower case, but for the length."""
    client: Client
    """By whose key it asks."""
    plain: bool
    """Whether it asks by ``/v1/query``, or by a path that names a task alone, and says nothing that
    an answer or its reading goes by, ..."""
    named: bytes | None = None
    """... what that path names, for outlines, ..."""
    json_header: bytes | None = None
    """... and its header ``Inference-Header-Content-Length``."""

    def outline(self, data: bytes, at: int) -> Outline | None:
        """That of a body with this head, which begins at ``at``."""
        if self.named is None:
            return outline_of(data, at)
        return outline_named(self.named, data, self.json_header, at)

    def body_at(self, data: bytes, most: int) -> int:
        """Where the body begins of a query that is all of ``data`` and has this head.

        0 if it is anything else, or the body longer than ``most`` bytes; then it is parsed.
        """
        before, after = self.before, self.after
        if not data.startswith(before):
            return 0
        begin = len(before)
        end = data.find(b"\r", begin, begin + _DIGITS + 1)
        if end < 0 or not data.startswith(after, end):
            return 0
        digits = data[begin:end]
        body = end + len(after)
        if not digits.isdigit() or len(data) - body != int(digits) or len(data) - body > most:
            return 0
        return body


class KnownHeads:
    """The last heads that connections of a gateway have sent, for those that come.

    None with a key is among them: comparing bytes takes the longer the more of them are equal, and
    who may try many learns the key of another one by that. Nor with an id of its own, which comes
    once. As keys decide whether one is needed, each counts while the keys are the same.
    """

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: deque[tuple[KnownHead, KnownClients]] = deque(maxlen=REMEMBERED)

    def add(self, head: KnownHead, by: KnownClients) -> None:
        """A connection has sent a head that was not known."""
        if head.fields.keys().isdisjoint(OWN):
            self._heads.appendleft((head, by))

    def of(self, data: bytes, most: int, by: KnownClients) -> KnownHead | None:
        """The head of a query that is all of ``data``, if it is one of these.

        Args:
            most: bytes of a body.
            by: the keys that there are now.
        """
        for head, permitted_by in self._heads:
            if permitted_by is by and head.body_at(data, most):
                return head
        return None


def known_head(
    data: bytes, target: bytes, fields: dict[bytes, bytes], client: Client = ANYBODY
) -> KnownHead | None:
    """The head that ``data`` begins with, of which a parser made target and fields.

    ``None`` where another length would not be the only difference to a head like it.
    """
    end = data.find(b"\r\n\r\n", 0, LONGEST) + 4
    if end < 4 or b"transfer-encoding" in fields:
        return None
    lengths = [*_LENGTH.finditer(data, 0, end)]
    if len(lengths) != 1:
        return None
    length = lengths[0]
    others = {name: value for name, value in fields.items() if name != b"content-length"}
    named = None if target in (V1, EMBEDDINGS) else task_and_variant(target)
    by_task = named is not None and named[1] is None
    plain = (target == V1 or by_task) and others.keys().isdisjoint(TELLING)
    before, after = data[: length.start(1)], data[length.end(1) : end]
    return KnownHead(
        before, after, target, others, client, plain,
        None if named is None else named_in_path(*named), others.get(JSON_HEADER),
    )  # fmt: skip
