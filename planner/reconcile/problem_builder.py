"""The planning problem of a live fleet: from a snapshot and a demand to ``Problem``.

*Headroom.* Queries arrive at random; what a class absorbs of that depends on its slack. Let K be
the queries that its devices could work off within the slack of one, ``(SLO - batch) / time per
row`` for each device that it needs. In heavy traffic the chance that the backlog exceeds K falls
like ``exp(-2 K (1 - load) / load)`` (Kingman's bound for Poisson arrivals and constant service), so
a tail of ``exp(-t)`` takes a load of ``1 / (1 + t / 2K)``. A class with little slack is planned for
as if it asked for more, one with a lot of it is not.

*Refusals.* Fleets are sized by what is refused instead, because a query that would be late is
refused and delays nobody. A queue with room for K rows refuses the part
``(1 - load) p / (1 - load p)`` of its arrivals, where p is the chance above (H. C. Tijms, *A First
Course in Stochastic Models*, section 9.8): far less where there is much slack. Here K is what can
be worked off behind a batch that has half run when a query arrives.

*Rhythms.* A full worker runs batch after batch, which takes less time than batches after pauses.
What it can serve is planned by the former, where that is known, and whether a lone query is in time
by the latter.

*Batches.* Queries have to arrive before they can share a batch. In half of its SLO, the longest
that a class may wait, ``rate x SLO / 2`` of its queries come: larger batches are not planned for
(the duty cycles of Nexus, SOSP'19, section 6.1: batch = rate x cycle).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log

from planner.latency_curve import Curve
from planner.selection.eligibility import able, answers
from planner.solver.problem import AvailableKind, Common, Offer, Problem
from planner.types import Candidate, Demand, Snapshot, TaskView
from variants.types import DeviceKindName, ModelName, TaskName, VariantKey, VariantName

MOST_LOAD = 0.95
"""Most of a device's time that is planned for, whatever the slack."""
TAIL = 4.6
"""``-log`` of the chance of a larger backlog: one in a hundred."""


KEPT_FLEETS = 8
"""So many sets of kinds are kept with what of a task they could hold."""
LEAST_SLACK = 0.5
"""Rows that devices can work off within the slack of a class, at least."""
ROUNDS = 12
"""Of the iteration for the highest load; each leaves at most half of the error, and errs towards a
lower load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltProblem:
    """A problem, and what its indices stand for."""

    problem: Problem
    candidates: tuple[Candidate, ...]
    """The candidate behind each offer."""
    asked: tuple[Demand, ...]
    """The class behind each demand of the problem, as it was asked."""
    factors: tuple[float, ...]
    """What each rate was multiplied by: for headroom, and by the scale."""
    unanswerable: tuple[Demand, ...]
    """Classes that no device could serve, left out of the problem."""


@dataclass(frozen=True, slots=True)
class _Class:
    """A class of the demand, and what does not depend on the load that is planned for."""

    asked: Demand
    slo_ms: float
    """To plan for."""
    most: int
    """The largest batch that its queries fill in time."""
    slack: float | None
    """Rows that its devices could work off within the slack of one; None without a batch that
    fits."""
    behind: float | None
    """The same behind a batch that has half run."""

    def planned(
        self, tail: float, load: float, refused: float | None, scale: float, room: float
    ) -> tuple[Demand, float]:
        """The class to plan for, and what its rate was multiplied by: for ``room`` of the headroom,
        and by ``scale``."""
        factor = 1.0
        if refused is not None and self.behind is not None:
            factor = max(1.0, load / highest_load(self.behind, refused))
        elif refused is None and tail > 0.0 and self.slack is not None:
            factor = max(1.0, load * (1.0 + tail / (2.0 * max(self.slack, LEAST_SLACK))))
        asked, factor = self.asked, (factor - (1.0 - room) * (factor - 1.0)) * scale
        return asked.at_rate(asked.qps * factor, self.slo_ms), factor


class ProblemBuilder:
    """Planning problems of a snapshot and a demand, for any headroom and load.

    A class that an idle device can serve in time, but not with another batch before it, is planned
    for all the same, at the smallest batch: its SLO is stretched to what two such batches take.
    Whether its queries are in time then depends on the queues.

    Args:
        real: the kind that each of ``kinds`` stands for, where some are parts of one that were told
            apart (``planner.reconcile.matching``).
        forbidden: what must not be placed on a kind: it is kept out everywhere there.
        resident: what every worker of a kind holds whatever is planned: it takes no more memory.
        dispersion: how many times more than Poisson arrivals those of a task vary, where that is
            known: what absorbs a backlog counts as so many times smaller.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        kinds: Iterable[AvailableKind],
        demand: Iterable[Demand],
        *,
        real: Mapping[DeviceKindName, DeviceKindName] | None = None,
        forbidden: Mapping[DeviceKindName, Collection[VariantKey]] | None = None,
        resident: Mapping[DeviceKindName, Collection[VariantKey]] | None = None,
        dispersion: Mapping[TaskName, float] | None = None,
    ) -> None:
        self._dispersion = dispersion or {}
        self._kinds = tuple(kind for kind in kinds if kind.count > 0)
        self._overhead_ms = snapshot.transport_ms
        self._common = Common()
        wanted = [d for d in demand if d.qps > 0.0 and d.task in snapshot.tasks]
        known = real or {}
        parts: dict[DeviceKindName, list[AvailableKind]] = {}
        for kind in self._kinds:
            parts.setdefault(known.get(kind.name, kind.name), []).append(kind)
        placeable = _placeable(snapshot, wanted, parts, forbidden or {}, resident or {})
        self._candidates = tuple([each for some, _ in placeable for each in some])
        self._offers = tuple([each for _, some in placeable for each in some])
        self._classes: list[_Class] = []
        unanswerable = []
        placed = set(map(id, self._candidates))
        for entry in wanted:
            view, slo_ms = snapshot.tasks[entry.task], entry.tightest_ms
            found = able(view, entry, self._overhead_ms, slo_ms)
            made = self._class(entry, [each for each in found if id(each) in placed])
            if made is None:
                unanswerable.append(entry)
            else:
                self._classes.append(made)
        self._unanswerable = tuple(unanswerable)

    def _class(self, entry: Demand, candidates: Sequence[Candidate]) -> _Class | None:
        """None where no candidate meets it."""
        if not candidates:
            return None
        slo_ms = planned_slo_ms(entry.tightest_ms, candidates, self._overhead_ms)
        left_ms = slo_ms - self._overhead_ms
        largest = largest_batch(entry.qps, left_ms)
        curves = [candidate.busy_table.curve for candidate in candidates]
        slack, behind = _slack(curves, left_ms, entry.qps, largest)
        spread = self._dispersion.get(entry.task)
        if spread is not None and slack is not None and behind is not None:
            slack, behind = slack / spread, behind / spread
        return _Class(entry, slo_ms, largest, slack, behind)

    def forget(self) -> None:
        """Let go of what planners found out about the problems, when no more of them are asked for.

        It leads back to the problems, and would stay until the garbage collector finds that.
        """
        self._common.options = None

    def problem(
        self,
        *,
        tail: float = TAIL,
        load: float = MOST_LOAD,
        refused: float | None = None,
        least_accuracy: float | None = None,
        scale: float = 1.0,
        room: float = 1.0,
    ) -> BuiltProblem:
        """The problem with this headroom.

        Args:
            tail: how unlikely a backlog beyond the slack is to be, as ``-log`` of its chance; 0 for
                no headroom.
            load: most of a device's time that is planned for.
            refused: instead of ``tail``, the part of a class that may be refused by chance.
            least_accuracy: as of ``Problem``.
            scale: the part of the demand that is planned for, or how many times as much; batches
                are those that the demand itself fills.
            room: the part of the headroom that classes are given, from 0 to 1.
        """
        planned = [each.planned(tail, load, refused, scale, room) for each in self._classes]
        problem = Problem(
            offers=self._offers,
            kinds=self._kinds,
            demand=tuple([demand for demand, _ in planned]),
            load=load,
            overhead_ms=self._overhead_ms,
            most=tuple([each.most for each in self._classes]),
            least_accuracy=least_accuracy,
            common=self._common,
        )
        return BuiltProblem(
            problem=problem,
            candidates=self._candidates,
            asked=tuple([each.asked for each in self._classes]),
            factors=tuple([factor for _, factor in planned]),
            unanswerable=self._unanswerable,
        )


def build_problem(
    snapshot: Snapshot,
    kinds: Iterable[AvailableKind],
    demand: Iterable[Demand],
    *,
    tail: float = TAIL,
    load: float = MOST_LOAD,
    refused: float | None = None,
    forbidden: Mapping[DeviceKindName, Collection[VariantKey]] | None = None,
    dispersion: Mapping[TaskName, float] | None = None,
    room: float = 1.0,
) -> BuiltProblem:
    """The planning problem of a snapshot and a demand; arguments as of ``ProblemBuilder``."""
    builder = ProblemBuilder(snapshot, kinds, demand, forbidden=forbidden, dispersion=dispersion)
    return builder.problem(tail=tail, load=load, refused=refused, room=room)


def highest_load(rows: float, refused: float) -> float:
    """The highest load at which a queue with room for so many rows refuses at most a part of them.

    With x = (1 - load) / load, refused = r: ``x = log((x + r) / (r (1 + x))) / 2 K``.
    """
    room = 2.0 * max(rows, LEAST_SLACK)
    x = -log(refused) / room
    for _ in range(ROUNDS):
        x = log((x + refused) / (refused * (1.0 + x))) / room
    return 1.0 / (1.0 + x)


_Placeable = tuple[Sequence[Candidate], Sequence[Offer]]
"""The candidates of a task, by their order in it and the parts of their kind, and an offer for
each."""


def _placeable(
    snapshot: Snapshot,
    wanted: Iterable[Demand],
    parts: Mapping[DeviceKindName, Sequence[AvailableKind]],
    forbidden: Mapping[DeviceKindName, Collection[VariantKey]],
    resident: Mapping[DeviceKindName, Collection[VariantKey]],
) -> list[_Placeable]:
    """The candidates that may answer some class, by task, with each part of their kind of which a
    device could hold them."""
    pins: dict[TaskName, set[VariantName]] = {}
    for entry in wanted:
        pinned = pins.setdefault(entry.task, set())
        if entry.variant is not None:
            pinned.add(entry.variant)
    barred = {name: keys for name, keys in forbidden.items() if keys}
    alike = all(len(some) == 1 and some[0].name == name for name, some in parts.items())
    plain = alike and not barred and not any(resident.values())
    fleet = tuple([(kind.name, kind.memory_mib) for some in parts.values() for kind in some])
    found: list[_Placeable] = []
    for task in sorted(pins):
        view, pinned = snapshot.tasks[task], pins[task]
        if not plain or pinned:
            found.append(_placed(view, pinned, parts, barred, resident))
            continue
        # Mostly the same from tick to tick, and one look at each of thousands of candidates.
        known = view.once("placeable", dict[object, _Placeable])
        made = known.get(fleet)
        if made is None:
            if len(known) >= KEPT_FLEETS:
                known.clear()
            made = known[fleet] = _placed(view, pinned, parts, barred, resident)
        found.append(made)
    return found


def _placed(
    view: TaskView,
    pinned: Collection[VariantName],
    parts: Mapping[DeviceKindName, Sequence[AvailableKind]],
    barred: Mapping[DeviceKindName, Collection[VariantKey]],
    resident: Mapping[DeviceKindName, Collection[VariantKey]],
) -> _Placeable:
    """Those of one task; ``pinned`` are the variants that some class names."""
    known = view.once("offers", dict[int, Offer])
    candidates: list[Candidate] = []
    offers: list[Offer] = []
    for candidate in view.by_cost:
        if not (answers(candidate, None) or candidate.variant in pinned):
            continue
        key = (candidate.task, candidate.variant)
        for kind in parts.get(candidate.device_kind, ()):
            fits = _takes_mib(candidate, kind.name, resident) <= kind.memory_mib
            if fits and key not in barred.get(kind.name, ()):
                candidates.append(candidate)
                offers.append(_offer(candidate, kind.name, resident, known))
    return candidates, offers


def largest_batch(qps: float, left_ms: float) -> int:
    """The largest batch to plan for where so much of the SLO is left for waiting and running."""
    return max(1, int(qps * left_ms / 2_000))


def planned_slo_ms(slo_ms: float, able: Iterable[Candidate], overhead_ms: float) -> float:
    """The SLO in ms to plan for, such that the fastest batch of one row fits into it twice where
    one follows on another.

    Args:
        able: those that an idle device answers in time with, at least one.
    """
    least_ms = min([c.busy_table.ms[1] for c in able])
    return max(slo_ms, 2 * least_ms + overhead_ms)


def _slack(
    curves: Iterable[Curve], slo_ms: float, qps: float, most: int
) -> tuple[float, float] | tuple[None, None]:
    """Rows that the devices of a class could work off within the slack of one; and the same behind
    a batch that has half run.

    None where no batch is in time.
    """
    half_ms = slo_ms / 2 * (1 + 1e-9)
    batches = [batch for curve in curves if (batch := curve.cheapest(half_ms, most))]
    if not batches:
        return None, None
    quickest = min(batches, key=lambda batch: batch.unit_ms)
    devices = max(1.0, qps * quickest.unit_ms / 1_000)
    rows_per_ms = devices / max(quickest.unit_ms, 1e-6)
    slack_ms = slo_ms - quickest.latency_ms
    return slack_ms * rows_per_ms, (slack_ms - quickest.latency_ms / 2) * rows_per_ms


def _takes_mib(
    candidate: Candidate,
    kind: DeviceKindName,
    resident: Mapping[DeviceKindName, Collection[VariantKey]],
) -> float:
    """The memory that placing it on a kind takes."""
    there = (candidate.task, candidate.variant) in resident.get(kind, ())
    return 0.0 if there else candidate.memory_mib


def _offer(
    candidate: Candidate,
    kind: DeviceKindName,
    resident: Mapping[DeviceKindName, Collection[VariantKey]],
    known: dict[int, Offer],
) -> Offer:
    """The offer of a candidate on a part of its kind: one of those ``known`` of the task, by
    identity, but where something is resident or kinds were told apart."""
    plain = kind == candidate.device_kind and not resident.get(kind)
    made = known.get(id(candidate)) if plain else None  # the view keeps its candidates
    if made is not None:
        return made
    made = Offer(
        task=candidate.task,
        model=ModelName(candidate.model_version),
        variant=candidate.variant,
        accuracy=candidate.accuracy,
        device_kind=kind,
        curve=candidate.busy_table.curve,
        lone_ms=candidate.table.ms[1],
        memory_mib=_takes_mib(candidate, kind, resident),
        load_s=candidate.load_ms / 1_000,
        canary=candidate.canary,
        energy=candidate.energy,
    )
    if plain:
        known[id(candidate)] = made
    return made
