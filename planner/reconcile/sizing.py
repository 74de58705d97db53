"""Sizing: how many workers of each kind there should be.

Workers are there for the envelope of the demand: ``planner.forecasting.provisioning`` says how
much room pays beyond what is expected, and for how long. They are added at once, and stopped only
when what replaces them is running. Before anything is known of the demand all workers are started,
and they are stopped little by little, as far as the demand has been observed: some minutes of too
many workers cost less than the first queries. Where the demand stays as it is and needs most of
them, the few that it does not need go sooner: no burst that all of them could serve is much larger
than what the others can.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, log

from planner.reconcile.problem_builder import build_problem
from planner.solver.power import idle_price
from planner.solver.problem import AvailableKind, Planner, Problem, Solution
from planner.types import Demand, Objective, Observation, Snapshot
from variants.types import DeviceKind, DeviceKindName, Placement, ReplicaState, TaskName

MOST_LOAD = 0.985
"""Most of a worker's time that fleets are sized for with the whole room for chance, whatever the
slack; what chance needs with little slack is added per class (``REFUSED``), and what it needs over
a step of provisioning is in the envelope. How much of both there is to be follows from what is lost
(``planner.forecasting.chance_room``)."""
REFUSED = 0.0005
"""Part of a class that may be refused by chance for want of slack: a twentieth of the violations
that ``cost`` tolerates. With 0.001 and 0.0005, three classes of tight and loose SLOs violate 2.1
and 1.4 %, a steady rate 0.15 and 0.13 % at a cost 0.2 % higher (docs/decisions/0006-forecast.md).
"""
WORTH_SHRINKING = 0.99
"""The smaller fleet has to cost less than this part of the present one."""
ALIKE = 0.95
"""Changing to other kinds is not worth it where they cost at least this part of those of now."""
FREE_PART = 0.001
"""What a worker without a price counts as, as a part of the cheapest that has one: it comes before
whatever costs something, and no more of them run than are needed."""
DISPERSION_STEP = 1.5
"""Arrivals that vary less than so many times more than a Poisson process count as one: over two
minutes its estimate is off by 0.11 (standard deviation), and is 1.0 to 1.2."""


def size(
    snapshot: Snapshot,
    kinds: Mapping[DeviceKindName, DeviceKind],
    most: Mapping[DeviceKindName, int],
    running: Mapping[DeviceKindName, int],
    usable: Mapping[DeviceKindName, int],
    envelope: Sequence[Demand],
    planner: Planner,
    *,
    watched: float = 1.0,
    steady: float = 0.0,
    objective: Objective = Objective.COST,
    least: Mapping[DeviceKindName, int] | None = None,
    interference: Mapping[DeviceKindName, float] | None = None,
    room: float = 1.0,
    dispersion: Mapping[TaskName, float] | None = None,
    before: "FleetPlanner | None" = None,
) -> tuple[dict[DeviceKindName, int], str, "FleetPlanner"]:
    """Worker counts by kind, with the reason, and what found them, for the next tick.

    Args:
        most: upper bound for each kind.
        running: how many workers of each kind Ray Serve was last told to run.
        usable: how many workers of each kind are there and do not drain.
        envelope: what workers are to be there for.
        watched: which part of the inventory may be stopped, from 0 to 1.
        steady: which part may be stopped, by its price, where all the rest is needed.
        objective: under ``energy`` the fleet of least power is sought, if the idle draw of every
            kind is known; the fleet of least cost otherwise.
        least: fewest workers of each kind, which are there whatever is asked; what they can serve
            needs no others.
        interference: by what part batches take longer on a worker that serves with several
            variants; kinds where that was not seen are missing.
        room: the part of the room for chance that they are to have, from 0 to 1.
        dispersion: how many times more than Poisson arrivals those of tasks vary, where that is
            known.
        before: what found them in the tick before. The demand that workers are to
            be there for changes every few seconds, and ticks may come each second.
    """
    least = {kind: min(count, (least or {}).get(kind, 0)) for kind, count in most.items()}
    # More may run than there may be by now: an upgrade is over, or an operator wants fewer.
    now = {kind: min(running.get(kind, 0), count) for kind, count in most.items()}
    possible = [kinds[kind] for kind, count in most.items() if count and kind in kinds]
    by_power = objective is Objective.ENERGY and all(kind.idle_w is not None for kind in possible)
    aim = Objective.ENERGY if by_power else Objective.COST
    if by_power and not all(kind.carbon_g_per_kwh for kind in possible):
        # Fleets of different kinds are compared: all of them in grams, or all in watts.
        kinds = {name: replace(kind, carbon_g_per_kwh=()) for name, kind in kinds.items()}
    free = {kind.name for kind in possible if kind.usd_per_hour == 0.0}
    several = sum(count > 0 for count in most.values()) > 1
    fleet = FleetPlanner(
        snapshot,
        _priced(kinds, possible),
        planner,
        aim,
        least if several else {},
        interference or {},
        room,
        in_steps(dispersion or {}),
    )
    if before is not None and fleet.finds_as(before):
        fleet = replace(fleet, known=before.found)
    counts, why = _sized(
        fleet, most, now, usable, envelope, watched, free,
        steady=steady, least=least, by_power=by_power,
    )  # fmt: skip
    return counts, why, fleet


def _sized(
    fleet: "FleetPlanner",
    most: Mapping[DeviceKindName, int],
    now: dict[DeviceKindName, int],
    usable: Mapping[DeviceKindName, int],
    envelope: Sequence[Demand],
    watched: float,
    free: Collection[DeviceKindName],
    *,
    steady: float,
    least: Mapping[DeviceKindName, int],
    by_power: bool,
) -> tuple[dict[DeviceKindName, int], str]:
    """Worker counts by kind, with the reason; arguments as of ``size``.

    Args:
        now: how many workers run, of those that may.
        free: the kinds without a price.
        by_power: whether the fleet of least power is sought.
    """
    needed = _at_least(least, fleet.cheapest(envelope, most))
    if needed == now:
        return now, "as many as needed"
    price_now, price_needed = fleet.price(now, envelope), fleet.price(needed, envelope)
    enough = "fewer suffice, and have for a while"
    if steady and price_needed >= (1.0 - steady) * fleet.price(most, envelope):
        enough = "fewer suffice, and what comes hardly changes"
    elif watched < 1.0:
        kept = {kind: min(now[kind], ceil(most[kind] * (1.0 - watched))) for kind in now}
        needed = {kind: max(kept[kind], needed[kind]) for kind in now}
        price_needed = fleet.price(needed, envelope)
        if needed == now:
            return now, "the demand is not known for long enough to let any go"
    if all(now[kind] >= needed[kind] for kind in now):
        if any(usable.get(kind, 0) < needed[kind] for kind in now):
            # What stays is not there, or is about to go.
            return now, "those to stay do not run"
        # What free workers count as is lost in the price of the others.
        fewer_free = any(needed[kind] < now[kind] * WORTH_SHRINKING for kind in free)
        if price_needed < price_now * WORTH_SHRINKING or (fewer_free and not by_power):
            return needed, enough
        return now, "hardly fewer would do"
    if price_needed >= price_now * ALIKE and fleet.suffice(envelope, now, most):
        if all(now[kind] >= least[kind] for kind in now):
            return now, "enough for what is expected"
        return _at_least(least, now), "as many as have to be there"
    grown = {kind: max(now[kind], needed[kind]) for kind in now}
    if grown != now:
        return grown, "more is expected than these can serve"
    if any(usable.get(kind, 0) < needed[kind] for kind in now):
        return now, "their replacements are not there yet"
    return needed, "their replacements are there"


def cheapest(
    snapshot: Snapshot,
    kinds: Mapping[DeviceKindName, DeviceKind],
    most: Mapping[DeviceKindName, int],
    demand: Sequence[Demand],
    planner: Planner,
    objective: Objective,
    interference: Mapping[DeviceKindName, float],
) -> dict[DeviceKindName, int]:
    """The cheapest worker counts for a demand, whatever runs; those that serve most where none
    serve all."""
    aim = Objective.COST if objective is Objective.ACCURACY else objective
    possible = [kinds[kind] for kind, count in most.items() if count and kind in kinds]
    fleet = FleetPlanner(snapshot, _priced(kinds, possible), planner, aim, {}, interference)
    return fleet.cheapest(demand, most)


def _priced(
    kinds: Mapping[DeviceKindName, DeviceKind], possible: Iterable[DeviceKind]
) -> Mapping[DeviceKindName, DeviceKind]:
    """The kinds with a price for those that have none, because all fleets of them cost the same."""
    prices = {kind.name: kind.usd_per_hour for kind in possible}
    cheapest_usd = min((usd for usd in prices.values() if usd > 0.0), default=None)
    free_usd = 1.0 if cheapest_usd is None else FREE_PART * cheapest_usd
    return {
        name: replace(kind, usd_per_hour=free_usd) if prices.get(name) == 0.0 else kind
        for name, kind in kinds.items()
    }


def in_steps(dispersion: Mapping[TaskName, float]) -> dict[TaskName, float]:
    """Rounded down to powers of ``DISPERSION_STEP``, so that what is estimated hardly ever changes;
    tasks that vary less than one step more than a Poisson process are left out."""
    steps = {
        task: floor(log(times, DISPERSION_STEP) + 1e-9)
        for task, times in dispersion.items()
        if times >= DISPERSION_STEP
    }
    return {task: DISPERSION_STEP**step for task, step in steps.items()}


def going_kinds(
    wanted: Mapping[DeviceKindName, int], observation: Observation
) -> frozenset[DeviceKindName]:
    """Kinds of workers that are there and of which none is to stay."""
    there = {worker.device_kind for worker in observation.workers}
    running = observation.running
    return frozenset(kind for kind in there if running.get(kind) and not wanted.get(kind))


def until_replaced(
    wanted: Mapping[DeviceKindName, int],
    going: Collection[DeviceKindName],
    observation: Observation,
) -> frozenset[DeviceKindName]:
    """Those of the kinds on their way out that go on as they are, because workers that are wanted
    are not there. A kind of which nobody wants any goes: others may need its room."""
    there = Counter(one.device_kind for one in observation.workers if not one.draining)
    if all(there[kind] >= count for kind, count in wanted.items()):
        return frozenset()
    return frozenset(kind for kind in going if observation.inventory.get(kind))


def without(observation: Observation, going: Collection[DeviceKindName]) -> Observation:
    """The same, as if workers of these kinds were on their way out: others take over first."""
    workers = (
        replace(one, draining=True) if one.device_kind in going else one
        for one in observation.workers
    )
    return replace(observation, workers=tuple(workers))


def staying(
    wanted: Mapping[DeviceKindName, int],
    going: Collection[DeviceKindName],
    placements: Iterable[Placement],
    observation: Observation,
) -> Mapping[DeviceKindName, int]:
    """The worker counts for now: those on their way out stay until all that has a part of the
    demand is loaded on others."""
    if not going or not any(
        one.share and state is ReplicaState.LOADING
        for one, state in _states(placements, observation)
    ):
        return wanted
    return {**wanted, **{kind: observation.running[kind] for kind in going}}


def _states(
    placements: Iterable[Placement], observation: Observation
) -> Iterator[tuple[Placement, ReplicaState]]:
    """Placements with what became of them; what is not there yet counts as loading."""
    there = {
        one.id: {(r.task, r.variant): r.state for r in one.replicas} for one in observation.workers
    }
    for one in placements:
        key = (one.task, one.variant)
        yield one, there.get(one.worker, {}).get(key, ReplicaState.LOADING)


def _at_least(
    least: Mapping[DeviceKindName, int], counts: Mapping[DeviceKindName, int]
) -> dict[DeviceKindName, int]:
    return {kind: max(least[kind], count) for kind, count in counts.items()}


def _standing(kind: DeviceKindName) -> DeviceKindName:
    """Stands for the workers of a kind that are there whatever is asked; no kind has this name."""
    return DeviceKindName(f"{kind} there anyway")


def available(
    kinds: Mapping[DeviceKindName, DeviceKind],
    counts: Mapping[DeviceKindName, int],
    interference: Mapping[DeviceKindName, float],
    *,
    powered: bool,
) -> tuple[AvailableKind, ...]:
    """So many workers of each kind, for the solver; without kinds that nothing is known of."""
    return tuple(
        AvailableKind(
            name=name,
            count=count,
            memory_mib=kinds[name].memory_mib,
            usd_per_hour=kinds[name].usd_per_hour,
            idle_w=kinds[name].idle_w,
            carbon_g_per_kwh=kinds[name].carbon_g_per_kwh,
            powered=powered,
            interference=interference.get(name, 0.0),
        )
        for name, count in sorted(counts.items())
        if name in kinds
    )


_Asked = tuple[tuple[Demand, ...], tuple[tuple[DeviceKindName, int], ...], bool]
"""A demand, how many workers of each kind there are, and whether they draw power anyway."""
_Found = tuple[Solution | None, tuple[Demand, ...]]
"""The cheapest solution, and the classes that no device could serve."""


@dataclass(frozen=True, slots=True)
class FleetPlanner:
    """The device kinds that can be opened, and the solver that chooses among them."""

    snapshot: Snapshot
    kinds: Mapping[DeviceKindName, DeviceKind]
    planner: Planner
    objective: Objective
    least: Mapping[DeviceKindName, int]
    """Workers that are there anyway, and cost nothing more."""
    interference: Mapping[DeviceKindName, float]
    """By what part batches take longer on a worker that serves with several variants."""
    room: float = 1.0
    """The part of the room for chance that fleets are to have."""
    dispersion: Mapping[TaskName, float] = field(default_factory=dict)
    """How many times more than Poisson arrivals those of tasks vary, as of ``in_steps``."""
    known: Mapping[_Asked, _Found] = field(default_factory=dict)
    """What is known to be found."""
    found: dict[_Asked, _Found] = field(default_factory=dict)
    """What was asked for."""

    def finds_as(self, other: "FleetPlanner") -> bool:
        """Whether it finds the same as another one, whatever is asked."""
        tasks = other.snapshot.tasks
        return (
            (self.kinds, self.planner, self.objective)
            == (other.kinds, other.planner, other.objective)
            and (self.least, self.interference) == (other.least, other.interference)
            and (self.room, self.dispersion) == (other.room, other.dispersion)
            and self.snapshot.transport_ms == other.snapshot.transport_ms
            and self.snapshot.tasks.keys() == tasks.keys()
            and all(
                view.by_cost is tasks[name].by_cost for name, view in self.snapshot.tasks.items()
            )
        )

    def cheapest(
        self, demand: Sequence[Demand], most: Mapping[DeviceKindName, int]
    ) -> dict[DeviceKindName, int]:
        """The cheapest worker counts for a demand; those that serve most where none serve all."""
        found, _ = self._solve(demand, most)
        counts = dict.fromkeys(most, 0)
        standing = {_standing(kind) for kind in counts}
        for kind in found.devices if found else ():
            if kind not in standing:
                counts[kind] += 1
        return {kind: self.least.get(kind, 0) + count for kind, count in counts.items()}

    def suffice(
        self,
        demand: Sequence[Demand],
        counts: Mapping[DeviceKindName, int],
        most: Mapping[DeviceKindName, int],
    ) -> bool:
        """Whether given workers serve all of a demand that any could."""
        found, unanswerable = self._solve(demand, counts)
        if found is not None and not found.feasible:
            return False
        return not unanswerable or unanswerable == self._solve(demand, most)[1]

    def _solve(
        self,
        demand: Sequence[Demand],
        counts: Mapping[DeviceKindName, int],
        *,
        powered: bool = False,
    ) -> tuple[Solution | None, tuple[Demand, ...]]:
        """The cheapest solution, and the classes that no device could serve."""
        asked = (tuple(demand), tuple(sorted(counts.items())), powered)
        found = self.found.get(asked) or self.known.get(asked)
        if found is None:
            found = self._look(demand, counts, powered=powered)
        if found[0] is None or not found[0].timed_out:
            self.found[asked] = found
        return found

    def _look(
        self, demand: Sequence[Demand], counts: Mapping[DeviceKindName, int], *, powered: bool
    ) -> _Found:
        made = build_problem(
            self.snapshot,
            self._available(counts, powered=powered),
            demand,
            load=1.0 - self.room * (1.0 - MOST_LOAD),
            refused=REFUSED,
            dispersion=self.dispersion,
            room=self.room,
        )
        if not made.problem.demand:
            return None, made.unanswerable
        problem = self._with_standing(made.problem, powered=powered)
        return self.planner(problem, self.objective), made.unanswerable

    def _with_standing(self, problem: Problem, *, powered: bool) -> Problem:
        """The problem with the workers that are there anyway as kinds of their own, without a
        price."""
        if not any(self.least.get(kind.name) for kind in problem.kinds):
            return problem
        kinds = []
        for kind in problem.kinds:
            standing = min(kind.count, self.least.get(kind.name, 0))
            kinds.append(replace(kind, count=kind.count - standing))
            kinds.append(
                replace(
                    kind,
                    name=_standing(kind.name),
                    count=standing,
                    usd_per_hour=0.0,
                    powered=True,
                )
            )
        kinds = [kind for kind in kinds if kind.count]
        offers = [
            replace(offer, device_kind=name)
            for offer in problem.offers
            for name in (offer.device_kind, _standing(offer.device_kind))
        ]
        there = {kind.name for kind in kinds}
        return replace(
            problem,
            kinds=tuple(kinds),
            offers=tuple(offer for offer in offers if offer.device_kind in there),
            common=None,
        )

    def _available(
        self, counts: Mapping[DeviceKindName, int], *, powered: bool
    ) -> tuple[AvailableKind, ...]:
        return available(self.kinds, counts, self.interference, powered=powered)

    def price(self, counts: Mapping[DeviceKindName, int], demand: Sequence[Demand]) -> float:
        """USD per hour beyond those that are there anyway; or the power of so many workers that
        serve this demand."""
        if self.objective is Objective.COST:
            return sum(
                max(0, n - self.least.get(k, 0)) * self.kinds[k].usd_per_hour
                for k, n in counts.items()
                if k in self.kinds
            )
        found, _ = self._solve(demand, counts, powered=True)
        work = 0.0 if found is None or found.power is None else found.objective
        return work + idle_price(self._available(counts, powered=True))
