"""Repeated refusals: what was refused a moment ago is refused again at little cost.

Where far more is asked than can be served, thousands of queries a second differ in their numbers
alone and get the same refusal. It is kept for a moment by what stood around the numbers, byte for
byte: the next query with the same bytes there gets it without being read, and without a choice
among variants and workers. What is asked of these objects for every refusal lies in slots: a field
of a named tuple takes ten times as long.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import orjson

from controlplane.http_errors import error_body, status_of
from planner.types import Choice, Query
from variants.errors import ModellessError, Overloaded
from variants.types import WorkerId

LONGEST_MS = 20.0
"""For so long at most a refusal is given again, and ..."""
PART = 0.5
"""... for no more than this part of the query's latency, nor for longer or to others than its
reason is known to hold for: who asks for the same as many others would else come later than all who
ask for other things to whatever room there is."""
LEAST_BYTES = 64
"""Shorter bodies have no room for a row of numbers."""
MOST_BYTES = 4_096
"""Of what stands before the numbers, and as much behind them."""
MOST = 1_000
"""Refusals that are kept at once."""

FEW_BRACKETS = 8
_BRACKET = ord("[")
_DATA = b'"data"'

Outline = tuple[bytes, bytes, int] | tuple[bytes, bytes, int, str]
"""What two queries have in common that differ in their numbers alone. Of a body: what stands before
and behind the numbers, their priority with it, and how many lists these are in; then the name of
the client by whose key it is asked, if there is one."""


@dataclass(frozen=True, slots=True)
class Wording:
    """A refusal for want of time, as it is written but for its request id and for when to come."""

    code: str
    status: int
    begin: bytes
    """The body up to the request id."""
    waits: bool
    """Whether it says when to come back."""

    def written(self, id_: bytes, wait_ms: int) -> tuple[bytes, bytes]:
        """The body, as ``http_errors.error_body`` says it, and the header lines, as
        ``http_errors.error_headers`` does, for the request with this id."""
        if not self.waits:
            return b'%s%s"}' % (self.begin, id_), b"x-request-id: %s\r\n" % id_
        whole_s, rest_ms = divmod(wait_ms, 1_000)
        body = b'%s%s","retry_after_s":%d.%03d}' % (self.begin, id_, whole_s, rest_ms)
        more_s = 1 if rest_ms or not whole_s else 0
        return body, b"x-request-id: %s\r\nretry-after: %d\r\nretry-after-ms: %d\r\n" % (
            id_, whole_s + more_s, wait_ms,
        )  # fmt: skip


def wording(error: ModellessError) -> Wording:
    """How a refusal for want of time is written."""
    body = error_body(error, "")
    begin = orjson.dumps(body).partition(b'"request_id":"')
    return Wording(error.code, status_of(error), begin[0] + begin[1], isinstance(error, Overloaded))


@dataclass(slots=True)
class Holds:
    """For whom the reason of a refusal is known to hold, and for how long."""

    until_ms: float
    before_ms: float
    """For those that came before."""
    workers: tuple[WorkerId, ...]
    """Those that have refused the query, or would: the window of congestion narrows by each."""
    asked: tuple[Choice, ...] = ()
    """What was chosen at each of these, where nothing else could be and it was for what they said;
    then they are enough to know whether it still holds."""
    why: str = ""
    """What the last of them said."""


@dataclass(slots=True)
class Repeated:
    """A refusal for want of time, and what it was asked for."""

    query: Query
    full: Wording | None
    """``None`` where the next one may not be refused."""
    holds: Holds
    outdated: int
    """How often there had been room sooner than was thought."""
    last_ms: float
    """From then on it is not given again, whatever is known."""


class RepeatedRefusals:
    """Refusals of the last moment, by the outlines of what was asked."""

    def __init__(self, expired: Callable[[Query], ModellessError]) -> None:
        """``expired``: what a query is told whose deadline has passed."""
        self._expired = expired
        self._kept: dict[Outline, Repeated] = {}
        self._worded: dict[tuple[type[ModellessError], str], Wording] = {}
        self._late: dict[float, Wording] = {}
        self._outdated = 0

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._kept)

    def find(self, outline: Outline) -> Repeated | None:
        """The last refusal of a query with this outline; it says itself whom it is for."""
        return self._kept.get(outline)

    def add(
        self,
        outline: Outline,
        query: Query,
        error: ModellessError,
        holds: Holds,
        now_ms: float,
    ) -> None:
        """Keep a refusal, but not of those who take an answer that is late.

        Of one who had too little time left, which says nothing of the next, only what he asked for
        is kept, and what was said before goes on.
        """
        if query.best_effort or (type(error) is not Overloaded and outline in self._kept):
            return
        if len(self._kept) >= MOST:
            self._kept.clear()
        last_ms = now_ms + min(LONGEST_MS, PART * query.latency_ms)
        until_ms = min(holds.until_ms, last_ms)
        full = self.wording(error) if type(error) is Overloaded and until_ms > now_ms else None
        holds = replace(holds, until_ms=until_ms)
        self._kept[outline] = Repeated(query, full, holds, self._outdated, last_ms)

    def may_hold(self, found: Repeated, now_ms: float) -> bool:
        """Whether it is known by those alone who have refused if the next one would be refused.

        Not where there may be more room than was thought, nor without end: what else decides about
        a query may be another by then.
        """
        if found.full is None or not found.holds.asked or self.is_outdated(found):
            return False
        return now_ms < found.last_ms

    def is_outdated(self, found: Repeated) -> bool:
        """Whether there may be room again since it was kept."""
        return found.outdated != self._outdated

    def renew(self, outline: Outline, found: Repeated, until_ms: float, before_ms: float) -> None:
        """Its reason was found to hold now, for so long and for those that came before then."""
        until_ms = until_ms if until_ms < found.last_ms else found.last_ms
        was = found.holds
        holds = Holds(until_ms, before_ms, was.workers, was.asked, was.why)
        self._kept[outline] = Repeated(
            found.query, found.full, holds, found.outdated, found.last_ms
        )

    def wording(self, error: ModellessError) -> Wording:
        """How a refusal for want of time is written; most say what the last ones said."""
        key = (type(error), error.message)
        worded = self._worded.get(key)
        if worded is None:
            if len(self._worded) >= MOST:
                self._worded.clear()
            worded = self._worded[key] = wording(error)
        return worded

    def again(self, found: Repeated, received_ms: float, now_ms: float) -> Wording | None:
        """What the next query is told whose first byte came then.

        ``None`` if it may get another answer than the last one. Whose deadline has passed is told
        so.
        """
        latency_ms = found.query.latency_ms
        if now_ms - received_ms < latency_ms:
            holds = found.holds
            if found.outdated != self._outdated or now_ms >= holds.until_ms:
                return None
            return found.full if received_ms < holds.before_ms else None
        late = self._late.get(latency_ms)
        if late is None:
            if len(self._late) >= MOST:
                self._late.clear()
            late = self._late[latency_ms] = wording(self._expired(found.query))
        return late

    def outdate(self) -> None:
        """There may be room again: what was asked for is still known, but no refusal of it."""
        self._outdated += 1

    def forget(self) -> None:
        """Tasks may ask for something else."""
        self._kept.clear()


def outline_of(body: bytes | bytearray, at: int = 0) -> Outline | None:
    """The outline of a body of ``/v1/query``; ``None`` if it has none that says all.

    Bodies with the same outline are the same but for their numbers, if they are right: there is no
    quotation mark among these, and so no field. ``at``: where in ``body`` it begins.
    """
    if len(body) - at < LEAST_BYTES:
        return None
    begin = body.find(b"[", at, at + MOST_BYTES)
    last = len(body) - MOST_BYTES
    end = body.rfind(b"]", last if last > at else at)
    if not at <= begin < end or body.find(b'"', begin, end) >= 0:
        return None
    inner = body.find(b"]", begin)
    if inner == end:
        return None  # a row for each number, and nobody counts them here
    # One row of numbers is what most ask for.
    lists = 2 if inner == end - 1 else brackets_in(body, begin, end)
    return bytes(body[at:begin]), bytes(body[end:]), lists


def brackets_in(body: bytes | bytearray, begin: int, end: int) -> int:
    """How many opening brackets a part of a body has.

    Most have two or three among many numbers, and ``bytes.count`` looks at every byte in turn: of
    24 kB it takes 5 µs where this takes 0.4, and 8 where it takes 2 with a hundred of them.
    """
    at = begin
    for count in range(FEW_BRACKETS):
        at = body.find(b"[", at, end) + 1
        if not at:
            return count
    part = np.frombuffer(body, np.uint8, end - at, at)
    return FEW_BRACKETS + int(np.count_nonzero(part == _BRACKET))


def outline_of_inference(
    task: str, pinned: str | None, body: bytes | bytearray, json_header: bytes | None
) -> Outline | None:
    """The outline of a body of v2; ``None`` if it has none that says all.

    Args:
        task: what its path names, and ``pinned`` as well.
        json_header: the header ``Inference-Header-Content-Length``; tensors are raw bytes behind.
    """
    return outline_named(named_in_path(task, pinned), body, json_header)


def named_in_path(task: str, pinned: str | None) -> bytes:
    """What the path of an inference request of v2 names, for outlines."""
    return f"{task}\0{pinned or ''}\0".encode()


def outline_named(
    named: bytes, body: bytes | bytearray, json_header: bytes | None, at: int = 0
) -> Outline | None:
    """As ``outline_of_inference``; ``named``: what its path names, ``at``: where it begins."""
    if json_header is not None:
        if not json_header.isdigit() or len(json_header) > 4:
            return None
        begin, length = int(json_header), len(body) - at
        fits = 0 < begin <= min(length, MOST_BYTES)
        return (named, bytes(body[at : at + begin]), length) if fits else None
    begin = body.find(_DATA, at, at + MOST_BYTES)
    if begin < 0 or len(body) - at < LEAST_BYTES:
        return None
    # The numbers of the only input, whose shape stands before them, end with its object.
    end = body.find(b"}", begin)
    begin += len(_DATA)
    if end < 0 or len(body) - end > MOST_BYTES or body.find(b'"', begin, end) >= 0:
        return None
    return named + body[at:begin], bytes(body[end:]), 1


def outline_of_headers(task: str, variant: str | None, slo: bytes | None) -> Outline | None:
    """The outline of a query of one row whose headers say what it asks for."""
    named = f"{task}\0{variant or ''}"
    if len(named) + len(slo or b"") > MOST_BYTES:
        return None
    return named.encode(), b"" if slo is None else b"=" + slo, 0
