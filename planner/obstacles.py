"""Obstacles: what stands in the way of each candidate, found at once and put in words when read.

A refusal names a reason for every variant, and nearly nobody reads all of them. So a finding is a
code and the one number that may change later, the wait; ``Reasons`` makes a sentence of it when it
is looked up.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from math import inf, isnan, nan
from typing import NamedTuple

from planner import explain
from planner.routing import least_busy
from planner.types import Candidate, Query, Snapshot
from variants.types import DeviceKindName, VariantName


class Obstacle(IntEnum):
    """What stops a candidate, from what never changes to what the next moment may change.

    From ``LATE`` on the candidate is feasible: an idle worker that has it loaded would answer.
    """

    CANARY = 0
    ACCURACY = 1
    COST = 2
    ROWS = 3
    NO_WORKER = 4
    LATENCY = 5
    LATE = 6
    """Too much of the deadline has passed before the decision."""
    COLD = 7
    AVOIDED = 8
    """No worker holds it but the one that has just refused or lost the query."""
    QUEUE = 9


class Finding(NamedTuple):
    candidate: Candidate
    obstacle: Obstacle
    wait_ms: float = nan
    """With ``QUEUE``: until its least busy worker is free. Workers change; this does not."""


class Circumstances(NamedTuple):
    """What a query met when it was refused."""

    query: Query
    now_ms: float
    left_ms: float
    """Of its deadline."""
    transport_ms: float
    kinds: frozenset[DeviceKindName]
    """Of the workers that do not drain."""


def circumstances(snapshot: Snapshot, query: Query, now_ms: float) -> Circumstances:
    return Circumstances(
        query=query,
        now_ms=now_ms,
        left_ms=query.received_ms + query.latency_ms - now_ms,
        transport_ms=snapshot.transport_ms,
        kinds=frozenset([w.device_kind for w in snapshot.workers.values() if not w.draining]),
    )


def findings(candidates: Sequence[Candidate], met: Circumstances) -> list[Finding]:
    """The first obstacle of each candidate, in their order: its queue where it has no other."""
    query, now_ms, left_ms, transport_ms, _ = met
    rows, latency_ms, avoid = query.rows, query.latency_ms, query.avoid
    floor = -inf if query.accuracy is None else query.accuracy
    ceiling = inf if query.cost is None else query.cost
    unpinned = query.variant is None
    waits: dict[int, float] = {}
    found: list[Finding] = []
    for candidate in candidates:
        table, ready = candidate.table, candidate.ready
        wait_ms = nan
        if unpinned and candidate.canary:
            obstacle = Obstacle.CANARY
        elif candidate.accuracy < floor:
            obstacle = Obstacle.ACCURACY
        elif candidate.price_usd_per_1k > ceiling:
            obstacle = Obstacle.COST
        elif rows > table.max_batch:
            obstacle = Obstacle.ROWS
        elif not (ready or candidate.hosts):
            obstacle = Obstacle.NO_WORKER
        elif (run_ms := table.ms[rows] + transport_ms) > latency_ms:
            obstacle = Obstacle.LATENCY
        elif not ready:
            obstacle = Obstacle.COLD
        elif run_ms > left_ms:
            obstacle = Obstacle.LATE
        else:
            known = waits.get(id(ready))
            if known is None:
                worker = least_busy(ready, 0, now_ms, avoid)
                known = nan if worker is None else worker.busy_until_ms - now_ms
                waits[id(ready)] = known
            wait_ms = known
            obstacle = Obstacle.AVOIDED if isnan(wait_ms) else Obstacle.QUEUE
        found.append(Finding(candidate, obstacle, wait_ms))
    return found


class Reasons(Mapping[str, str]):
    """One reason for each variant, a sentence made when it is read.

    Of a variant's device kinds, the one that comes closest speaks. Compares as a mapping of
    strings; ``dict`` of it renders everything.
    """

    __slots__ = ("_closest", "_excluded", "_met")

    def __init__(
        self,
        found: Sequence[Finding],
        met: Circumstances,
        excluded: Mapping[VariantName, str] | None = None,
    ) -> None:
        """``excluded`` are variants that cannot answer whatever the SLO, with the reason."""
        closest: dict[str, Finding] = {}
        for finding in found:
            name = finding[0].variant
            known = closest.get(name)
            if known is None or finding[1] > known[1]:
                closest[name] = finding
        self._closest = closest
        self._met = met
        self._excluded: dict[str, str] = {str(k): v for k, v in (excluded or {}).items()}

    def __getitem__(self, variant: str) -> str:
        why = self._excluded.get(variant)
        return in_words(self._closest[variant], self._met) if why is None else why

    def __iter__(self) -> Iterator[str]:
        yield from self._closest
        yield from (name for name in self._excluded if name not in self._closest)

    def __len__(self) -> int:
        return len(self._closest.keys() | self._excluded.keys())

    def __repr__(self) -> str:
        return repr(dict(self))


def in_words(finding: Finding, met: Circumstances) -> str:
    """A reason as a fragment, to follow a variant's name: ``p95 31.0 ms > 20 ms``."""
    candidate, obstacle, wait_ms = finding
    query = met.query
    match obstacle:
        case Obstacle.CANARY:
            return explain.is_canary()
        case Obstacle.ACCURACY:
            return explain.below_floor(candidate, query.accuracy or 0.0)
        case Obstacle.COST:
            return explain.above_ceiling(candidate, query.cost or 0.0)
        case Obstacle.ROWS:
            return explain.too_many_rows(candidate, query.rows)
        case Obstacle.NO_WORKER:
            return explain.no_worker(candidate, candidate.device_kind in met.kinds)
        case Obstacle.COLD:
            return explain.not_loaded(candidate.load_ms)
        case Obstacle.AVOIDED:
            return explain.avoided(str(query.avoid))
    run_ms = candidate.table.ms[query.rows] + met.transport_ms
    if obstacle is Obstacle.LATENCY:
        return explain.too_slow(run_ms, query.latency_ms)
    if obstacle is Obstacle.LATE:
        return explain.too_late(run_ms, met.left_ms)
    if max(wait_ms, 0.0) + run_ms <= met.left_ms:
        return explain.kept(max(wait_ms, 0.0))
    return explain.queued(wait_ms, run_ms, met.left_ms)
