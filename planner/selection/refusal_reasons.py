"""Reasons of a refusal: what stands in the way of each variant, put in words when it is read.

A refusal names a reason for every variant, and most of them are never read: who is refused because
all queues are too long is told just that. So what stops each candidate, a code and a number by
``planner.selection.eligibility``, is found when the first reason is read, and a sentence is made of
it when it is looked up.
"""

from collections.abc import Iterator, Mapping, Sequence

from planner import sentences as explain
from planner.selection.eligibility import Circumstances, Finding, Obstacle, findings
from planner.types import Candidate
from variants.types import VariantName


class Reasons(Mapping[str, str]):
    """One reason for each variant, found when the first is read.

    Queues are as long as they are then: to say how long they were at the refusal, read one at once.
    A variant on several device kinds gets the reason of the kind that comes closest. The mapping
    compares like one of strings; ``dict`` of it writes all sentences.
    """

    __slots__ = ("_all", "_candidates", "_excluded", "_found", "_met")

    def __init__(
        self,
        candidates: Sequence[Candidate],
        met: Circumstances,
        excluded: Mapping[VariantName, str] | None = None,
    ) -> None:
        """``excluded`` are variants that cannot answer whatever the SLO, with the reason."""
        self._candidates = candidates
        self._met = met
        self._excluded = excluded or {}
        self._all: tuple[Finding, ...] | None = None
        self._found: dict[str, Finding] | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What stands in the way of each candidate."""
        if self._all is None:
            self._all = tuple(findings(self._candidates, self._met))
        return self._all

    @property
    def _closest(self) -> dict[str, Finding]:
        closest = self._found
        if closest is None:
            closest = self._found = {}
            for finding in self.findings:
                name = finding[0].variant
                known = closest.get(name)
                if known is None or finding[1] > known[1]:
                    closest[name] = finding
        return closest

    def __getitem__(self, variant: str) -> str:
        why = self._excluded.get(VariantName(variant))
        return in_words(self._closest[variant], self._met) if why is None else why

    def __iter__(self) -> Iterator[str]:
        closest = self._closest
        yield from closest
        yield from (str(name) for name in self._excluded if name not in closest)

    def __len__(self) -> int:
        return len({*self._closest, *map(str, self._excluded)})

    def __repr__(self) -> str:
        return repr(dict(self))


def in_words(finding: Finding, met: Circumstances) -> str:
    """A reason as a fragment, to follow a variant's name: ``p95 31.0 ms > 20 ms``."""
    candidate, obstacle, wait_ms = finding
    query = met.query
    match obstacle:
        case Obstacle.CANARY:
            return explain.is_canary() if query.variant is None else explain.not_named()
        case Obstacle.ACCURACY:
            return explain.below_floor(candidate, query.accuracy or 0.0)
        case Obstacle.COST:
            return explain.above_ceiling(candidate, query.cost or 0.0)
        case Obstacle.ROWS:
            return explain.too_many_rows(candidate, query.rows)
        case Obstacle.NO_WORKER:
            yet, failed = met.unmeasured(candidate.variant), met.failed(candidate.variant)
            return explain.no_worker(candidate, candidate.device_kind in met.kinds, yet, failed)
        case Obstacle.UNLOADABLE:
            return explain.unloadable(candidate)
        case Obstacle.COLD:
            return explain.not_loaded(candidate.load_ms)
        case Obstacle.AVOIDED:
            return explain.avoided(str(query.avoid))
    run_ms = candidate.table.ms[query.rows] + met.transport_ms
    if obstacle is Obstacle.LATENCY:
        profile = (candidate.task, candidate.variant, candidate.device_kind)
        return explain.too_slow(
            run_ms,
            query.latency_ms,
            way_ms=met.transport_ms,
            confirmed=profile not in met.unconfirmed,
        )
    if obstacle is Obstacle.LATE:
        return explain.too_late(run_ms, met.left_ms, way_ms=met.transport_ms)
    if max(wait_ms, 0.0) + run_ms <= met.left_ms:
        return explain.kept(max(wait_ms, 0.0))
    return explain.queued(wait_ms, run_ms, met.left_ms)
