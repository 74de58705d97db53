"""Reasons of a refusal: what stands in the way of each variant, put in words when it is read.

A refusal names a reason for every variant, and most of them are never read. What stops a candidate
is found by ``planner.selection.eligibility`` as a code and a number; ``Reasons`` makes a sentence
of it when it is looked up.
"""

from collections.abc import Iterator, Mapping, Sequence

from planner import sentences as explain
from planner.selection.eligibility import Circumstances, Finding, Obstacle
from variants.types import VariantName


class Reasons(Mapping[str, str]):
    """One reason for each variant, a sentence made when it is read.

    A variant on several device kinds gets the reason of the kind that comes closest. The mapping
    compares like one of strings; ``dict`` of it writes all sentences.
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
        case Obstacle.UNLOADABLE:
            return explain.unloadable(candidate)
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
