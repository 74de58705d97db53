"""Rings: the workers of a gateway by how far away they are, and the choice among them.

Workers that are as far away as each other make a ring, with a snapshot, routes and a congestion
window of its own: within a ring a choice is made as where all workers are in one place, and the
round trip is a part of what that takes. Among the choices of the rings

* one in the gateway's own zone is taken where the query prefers what costs least or takes the
  least energy: where it meets the SLO, no other zone is looked at;
* the most accurate one where it prefers accuracy, the one in the own zone where they are equal;
* the one that is done first, round trip included, where it prefers latency.

Other zones are compared by what the query prefers, and the nearer one is taken where that is equal.
What would have to be loaded, or misses the SLO, comes after all that is ready and meets it.
One that a worker has refused goes where it is done first, in whichever zone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil, inf, log2

from planner.selection.open_batches import OpenBatches
from planner.selection.plan_following import CongestionWindow, choose
from planner.selection.routes import EMPTY, RouteTable
from planner.types import (
    TRANSPORT_MS,
    Candidate,
    Choice,
    PlacedReason,
    Query,
    QueueNews,
    Refusal,
    RefusalCode,
    Snapshot,
    WorkerView,
)
from planner.zone_demand import Zone
from variants.figures import ms
from variants.types import Prefer, TaskName, VariantName, WorkerId

RingKey = tuple[bool, int]
"""Whether it is not in the gateway's own zone, and the step of its distance."""

_CODES = (
    RefusalCode.COLD,
    RefusalCode.OVERLOADED,
    RefusalCode.DEADLINE_EXCEEDED,
    RefusalCode.NO_WORKERS,
    RefusalCode.ARTIFACT_INVALID,
    RefusalCode.SLO_INFEASIBLE,
)
"""The nearest to an answer first; others say the same in every ring."""
_RANKS = {code: rank for rank, code in enumerate(_CODES)}


class Ring:
    """Workers that are as far away as each other, and what choosing among them needs."""

    __slots__ = ("away_ms", "congestion", "home", "place", "routes", "snapshot")

    def __init__(self, home: bool) -> None:
        self.home = home
        """Whether it is in the gateway's own zone."""
        self.away_ms = 0.0
        """The longest round trip."""
        self.place = ""
        """Where that is, in words."""
        self.snapshot = Snapshot(revision=0, tasks={}, workers={})
        self.routes: RouteTable = EMPTY
        self.congestion = CongestionWindow(overtaking=False)
        """Nobody asks a worker without time here where those of another ring may have some."""


MakeSnapshot = Callable[[Sequence[WorkerId], float, Snapshot], Snapshot]
"""Takes the workers, what transport takes, and an earlier snapshot of the ring."""
MakeRoutes = Callable[[Snapshot, RouteTable], RouteTable]
"""Takes a snapshot and an earlier table of the ring."""


class Rings:
    """The rings of one gateway, the nearest first."""

    def __init__(self, zone: Zone) -> None:
        self._zone = zone
        self._rings: dict[RingKey, Ring] = {}
        self._of: dict[WorkerId, Ring] = {}
        self.congestion = _CongestionOfAll(self._rings, self._of)
        """To tell what was sent and refused, in place of the window of a single ring."""

    def __bool__(self) -> bool:
        """Whether there is more than one."""
        return len(self._rings) > 1

    @property
    def only(self) -> tuple[str, str] | None:
        """Where all workers are, and why queries are answered there, in words, if that is in one
        place that is far away; None where it is here or there are several."""
        rings = list(self._rings.values())
        if len(rings) != 1 or not rings[0].away_ms:
            return None
        return rings[0].place, _nobody_in(self._zone)

    def follow(self, workers: Iterable[WorkerView]) -> float:
        """Order the workers; the shortest round trip of a ring in ms, for all of them together."""
        members: dict[RingKey, list[WorkerView]] = {}
        for worker in workers:
            members.setdefault(self._key(worker), []).append(worker)
        before = dict(self._rings)
        self._rings.clear()
        self._of.clear()
        for key in sorted(members):
            ring = self._rings[key] = before.get(key) or Ring(home=not key[0])
            ring.away_ms = max(worker.round_trip_ms for worker in members[key])
            ring.place = _place({worker.zone for worker in members[key]}, ring.away_ms)
            self._of.update((worker.id, ring) for worker in members[key])
        return min((ring.away_ms for ring in self._rings.values()), default=0.0)

    def fill(self, make_snapshot: MakeSnapshot) -> None:
        """Make the snapshot of each ring, after ``follow``."""
        for ring in self._rings.values():
            ids = [id_ for id_, of in self._of.items() if of is ring]
            ring.snapshot = make_snapshot(ids, TRANSPORT_MS + ring.away_ms, ring.snapshot)

    def route(self, make_routes: MakeRoutes) -> None:
        """Make the routes of each ring, after ``fill``."""
        for ring in self._rings.values():
            ring.routes = make_routes(ring.snapshot, ring.routes)

    def choose(
        self,
        query: Query,
        now_ms: float,
        among: Callable[[Snapshot], Snapshot] | None = None,
    ) -> Choice | Refusal:
        """The variant and worker that answer a query, or why none does: the best of what
        ``planner.selection.plan_following.choose`` finds in each ring.

        Args:
            among: the part of a ring's snapshot that it is chosen from, which no plan is made for.
        """
        thrifty = query.prefer is Prefer.COST or query.prefer is Prefer.ENERGY
        home: Choice | Refusal | None = None
        best: Choice | None = None
        best_rank: tuple[float, ...] = (inf,)
        refusals: list[tuple[Ring, Refusal]] = []
        for ring in self._rings.values():
            snapshot, routes = ring.snapshot, ring.routes
            if among is not None:
                snapshot, routes = among(snapshot), EMPTY
            found = choose(snapshot, routes, ring.congestion, query, now_ms)
            if ring.home and home is None:
                home = found
            if isinstance(found, Refusal):
                refusals.append((ring, found))
                continue
            good = found.meets_slo and not found.cold
            if good and thrifty and ring.home and query.avoid is None:
                return self._placed(found, query, home)
            rank = (0.0 if good else 1.0 if found.meets_slo else 2.0, *_rank(ring, found, query))
            if rank < best_rank:
                best, best_rank = found, rank
        if best is None:
            return _refusal(refusals, query.task)
        return self._placed(best, query, home)

    def snapshots(self) -> list[Snapshot]:
        """The snapshot of each ring, the nearest first."""
        return [ring.snapshot for ring in self._rings.values()]

    def as_there(self, query: Query, found: Choice) -> tuple[Query, Choice]:
        """A query and what was chosen for it, as the worker sees them: without the way."""
        worker = found.worker
        ring = self._of.get(worker.id)
        away_ms = worker.round_trip_ms if ring is None else ring.away_ms
        return (
            query._replace(latency_ms=query.latency_ms - worker.round_trip_ms),
            found._replace(predicted_ms=found.predicted_ms - away_ms),
        )

    def _placed(self, found: Choice, query: Query, home: Choice | Refusal | None) -> Choice:
        """The same, with where it is and why it is there.

        Args:
            home: what was found in the own zone, where that has workers.
        """
        reason = PlacedReason(found.reason)
        worker = found.worker
        reason.place = _place({worker.zone}, worker.round_trip_ms)
        reason.why = _why_there(self._zone, found, query, home)
        return found._replace(reason=reason)

    def _key(self, worker: WorkerView) -> RingKey:
        away_ms = worker.round_trip_ms
        step = ceil(log2(away_ms)) if away_ms > 1.0 else int(away_ms > 0.0)
        return (not self._zone or worker.zone != self._zone, step)


def _rank(ring: Ring, found: Choice, query: Query) -> tuple[float, ...]:
    """What is preferred, then the own zone, then what is done first."""
    far = 0.0 if ring.home else 1.0
    candidate, done_ms = found.candidate, found.predicted_ms
    refused = query.avoid is not None
    if refused or not found.meets_slo or query.prefer is Prefer.LATENCY:
        return (done_ms, far)
    if query.prefer is Prefer.ACCURACY:
        return (-candidate.accuracy, far, done_ms)
    if query.prefer is Prefer.ENERGY:
        return (far, candidate.footprint, done_ms)
    return (far, candidate.price_usd_per_1k, done_ms)


class _BatchesOfAll(OpenBatches):
    """Notes what is sent where the worker's ring looks for it."""

    __slots__ = ("_of",)

    def __init__(self, of: Mapping[WorkerId, Ring]) -> None:
        super().__init__()
        self._of = of

    def sent(
        self,
        candidate: Candidate,
        worker: WorkerView,
        rows: int,
        now_ms: float,
        longest_ms: float,
    ) -> float:
        ring = self._of.get(worker.id)
        if ring is None:  # it has left
            return super().sent(candidate, worker, rows, now_ms, longest_ms)
        return ring.congestion.batches.sent(candidate, worker, rows, now_ms, longest_ms)

    def told(self, worker: WorkerView, news: QueueNews, snapshot: Snapshot, now_ms: float) -> bool:
        ring = self._of.get(worker.id)
        if ring is None:  # it has just come, or left
            return worker.told(news.backlog_ms, now_ms)
        return ring.congestion.batches.told(worker, news, ring.snapshot, now_ms)


class _CongestionOfAll(CongestionWindow):
    """A refusal narrows the window of the ring that the worker is in.

    Who was refused twice found no room in one ring or two, and is made up for in any whose window
    is narrow: those that it did not ask have a wide one.
    """

    __slots__ = ("_of", "_rings")

    def __init__(self, rings: Mapping[RingKey, Ring], of: Mapping[WorkerId, Ring]) -> None:
        super().__init__()
        self.batches = _BatchesOfAll(of)
        self._rings = rings
        self._of = of

    def had_no_time(self, worker: WorkerId, query: Query, now_ms: float) -> None:
        ring = self._of.get(worker)
        if ring is not None:
            ring.congestion.had_no_time(worker, query, now_ms)

    def refused(
        self, now_ms: float, by: WorkerId | None = None, *, twice: Query | None = None
    ) -> None:
        refusing = None if by is None else self._of.get(by)
        for ring in self._rings.values():
            if ring is refusing:
                ring.congestion.refused(now_ms, twice=twice)
            elif twice is not None:
                ring.congestion.shedding.refused(twice.priority, now_ms)


# -- in words -----------------------------------------------------------------------------------


def _place(zones: Iterable[Zone], away_ms: float) -> str:
    named = sorted(zone for zone in zones if zone)
    words = f"in zone {' or '.join(named)}" if named else "on other machines"
    return f"{words}, {ms(away_ms)} away" if away_ms else words


_AT_HOME = {
    RefusalCode.COLD: "what could meet the SLO is not loaded in zone {}",
    RefusalCode.OVERLOADED: "zone {} has no room for it in time",
    RefusalCode.SLO_INFEASIBLE: "no variant in zone {} meets the SLO",
}


def _nobody_in(zone: Zone) -> str:
    return f"zone {zone} has no workers" if zone else "there are no others"


def _why_there(zone: Zone, found: Choice, query: Query, home: Choice | Refusal | None) -> str:
    """Why a query of a zone is answered where it is."""
    if not zone:
        return "the gateway is in no zone, and this suits the query best"
    if found.worker.zone == zone:
        return "it was asked for there"
    if query.avoid is not None:
        return "the worker that was asked first refused it or was lost, and here it is done first"
    if home is None:
        return _nobody_in(zone)
    if isinstance(home, Refusal):
        return _AT_HOME.get(home.code, "zone {} cannot answer it").format(zone)
    if home.cold:
        return _AT_HOME[RefusalCode.COLD].format(zone)
    if not home.meets_slo:
        return _AT_HOME[RefusalCode.SLO_INFEASIBLE].format(zone)
    if query.prefer is Prefer.ACCURACY:
        return f"it is more accurate than what zone {zone} has time for"
    return f"it is done sooner than in zone {zone}, the way counted"


def _refusal(refusals: Sequence[tuple[Ring, Refusal]], task: TaskName) -> Refusal:
    """The refusal that is nearest to an answer, with what stands in the way elsewhere."""
    ordered = sorted(refusals, key=lambda one: _RANKS.get(one[1].code, len(_RANKS)))
    found = ordered[0][1]
    if found.code not in _RANKS:
        return found
    far = [other.place for other, _ in refusals if not other.home and other.away_ms]
    message = found.message
    if far:
        message += f"; workers {', and '.join(far)}, were looked at as well"
    return Refusal(
        code=found.code,
        message=message,
        reasons=_ReasonsOfAll(ordered, task),
        alternatives=found.alternatives,
        load=found.load,
        retry_after_s=found.retry_after_s,
        awaited=found.awaited,
        shed=found.shed,
    )


class _ReasonsOfAll(Mapping[str, str]):
    """What stands in the way of each variant, in the first ring that has a worker for it.

    Put into words when it is read.
    """

    def __init__(self, refusals: Sequence[tuple[Ring, Refusal]], task: TaskName) -> None:
        """``refusals``: those that are nearest to an answer first."""
        self._refusals = refusals
        self._task = task

    def __getitem__(self, name: str) -> str:
        able = [one for one in self._refusals if self._has_worker(one[0], name)]
        for ring, refusal in (*able, *self._refusals):
            if name in refusal.reasons:
                reason = refusal.reasons[name]
                return f"{reason} ({ring.place})" if ring.away_ms else reason
        raise KeyError(name)

    def _has_worker(self, ring: Ring, name: str) -> bool:
        candidates = ring.snapshot.tasks[self._task].by_variant.get(VariantName(name), ())
        return any(candidate.device_kind in ring.snapshot.kinds for candidate in candidates)

    def __iter__(self) -> Iterator[str]:
        return iter({name: None for _, refusal in self._refusals for name in refusal.reasons})

    def __len__(self) -> int:
        return len({name for _, refusal in self._refusals for name in refusal.reasons})
