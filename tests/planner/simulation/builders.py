"""Simulations small enough to work out by hand, and a policy that does as it is told.

A device has 1,000 MiB and costs 3.60 USD per hour: 0.001 USD per second. A variant takes 100 MiB,
loads in a second, and runs a batch of b rows in 10 x b ms, eight at most. No clock runs: decisions
take no time.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple, cast

import pytest

from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.protocol import Batch, Queue, Verdict
from planner.batching.variant_queues import Item, TaskShare, VariantQueue
from planner.latency_table import LatencyTable
from planner.simulate import least_billed_ms, offers_of
from planner.simulation.engine import Engine
from planner.simulation.fleet import Fleet, Worker
from planner.simulation.policy import Policy
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.solver.problem import AvailableKind
from planner.types import (
    Action,
    Candidate,
    Choice,
    Load,
    Objective,
    Query,
    Reason,
    Refusal,
    RefusalCode,
    Scale,
    Unload,
)
from tests.planner.builders import catalog, kind, profile, variant
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Profile,
    ProfileSource,
    ReplicaState,
    TaskName,
    Variant,
    VariantKey,
    VariantName,
    WorkerId,
)

GPU = DeviceKindName("gpu")
USD_PER_HOUR = 3.6


class Asked(NamedTuple):
    """A row of the trace."""

    arrival_s: float
    latency_ms: float = 100.0
    task: str = "a"
    floor: float | None = None
    ceiling: float | None = None


def trace(*rows: Asked) -> Trace:
    tasks = sorted({row.task for row in rows})
    return Trace(
        tasks=tuple(TaskName(name) for name in tasks),
        arrival_s=array("d", [row.arrival_s for row in rows]),
        task=array("l", [tasks.index(row.task) for row in rows]),
        latency_ms=array("d", [row.latency_ms for row in rows]),
        min_accuracy=array("d", [-inf if row.floor is None else row.floor for row in rows]),
        max_cost=array("d", [inf if row.ceiling is None else row.ceiling for row in rows]),
    )


class Model(NamedTuple):
    """A variant named ``v``, the only one of its task unless told otherwise."""

    task: str = "a"
    accuracy: float = 0.9
    latency_ms: float = 10.0
    memory_mib: float = 100.0
    load_s: float = 1.0
    name: str = "v"
    max_batch: int = 8
    energy_j: float | None = None

    @property
    def variant(self) -> Variant:
        return variant(self.name, self.accuracy, self.task)

    @property
    def profile(self) -> Profile:
        return profile(
            self.name,
            self.latency_ms,
            kind=GPU,
            task=self.task,
            max_batch=self.max_batch,
            memory_mib=self.memory_mib,
            load_s=self.load_s,
            source=ProfileSource.EXACT,
            energy_j=self.energy_j,
        )


def models(*each: Model) -> CatalogSnapshot:
    known = each or (Model(),)
    return catalog(
        [m.variant for m in known],
        [m.profile for m in known],
        kinds=[kind(GPU, USD_PER_HOUR)],
    )


def setting(
    *each: Model,
    devices: int = 1,
    memory_mib: float = 1_000.0,
    objective: Objective = Objective.ACCURACY,
    eviction: str = "lru",
    provision_s: float = 30.0,
    tick_s: float = 10.0,
    seed: int = 0,
    instant: bool = False,
    failures_every_s: float | None = None,
) -> Setting:
    return Setting(
        catalog=models(*each),
        kinds=(
            AvailableKind(
                name=GPU, count=devices, memory_mib=memory_mib, usd_per_hour=USD_PER_HOUR
            ),
        ),
        objective=objective,
        eviction=eviction,
        provision_s=provision_s,
        tick_s=tick_s,
        seed=seed,
        instant=instant,
        failures_every_s=failures_every_s,
    )


# -- queues and policies ------------------------------------------------------------------------


class Fifo:
    """Admits everybody and runs them one by one, however late."""

    def __init__(self) -> None:
        self.busy_until_ms = 0.0
        self._waiting: list[Item] = []

    @property
    def count(self) -> int:
        return len(self._waiting)

    @count.setter
    def count(self, value: int) -> None:
        raise AttributeError(value)

    def add_variant(self, task: str, table: LatencyTable, share: float = 0.0) -> VariantQueue:
        return VariantQueue(task, TaskShare(), table)

    def remove_variant(self, queue: VariantQueue) -> None:
        assert not any(item.queue is queue for item in self._waiting)

    def take(self, queue: VariantQueue) -> list[Item]:
        taken = [item for item in self._waiting if item.queue is queue]
        self._waiting = [item for item in self._waiting if item.queue is not queue]
        return taken

    def backlog_ms(self, now_ms: float) -> float:
        waiting_ms = sum(item.queue.ms[item.rows] for item in self._waiting)
        return max(0.0, self.busy_until_ms - now_ms) + waiting_ms

    def admit(self, item: Item, now_ms: float) -> Verdict:
        self._waiting.append(item)
        return Verdict.ADMITTED

    def pop_expired(self, now_ms: float) -> list[Item]:
        return []

    def next_batch(self, now_ms: float) -> Batch | None:
        if not self._waiting:
            return None
        item = self._waiting.pop(0)
        run_ms = item.queue.ms[item.rows]
        self.busy_until_ms = now_ms + run_ms
        return Batch(item.queue, [item], item.rows, run_ms)

    def wake_ms(self, now_ms: float) -> float:
        return inf

    def finished(self, queue: VariantQueue, now_ms: float, busy_ms: float) -> None:
        self.busy_until_ms = now_ms


class Told:
    """A policy that sends a task to the worker it was told to, and acts at ticks as told.

    ``sends`` names for each task its worker, or several: the first that is usable takes it. The
    variant is ``v``; a query is refused below its floor or above its ceiling, and when no worker is
    usable.
    """

    def __init__(
        self,
        setting: Setting,
        fleet: Fleet,
        *,
        sends: Mapping[str, Sequence[str]],
        acts: Mapping[float, Sequence[Action]],
        queue: Callable[[], Queue],
        again: bool,
    ) -> None:
        self.tick_s = setting.tick_s
        self._fleet = fleet
        self._sends = sends
        self._acts = acts
        self._queue = queue
        self._again = again

    def queue(self) -> Queue:
        return self._queue()

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        for name in self._sends.get(query.task, ("gpu-1",)):
            worker = self._fleet.workers.get(WorkerId(name))
            if worker is None or worker.draining or worker.id == query.avoid:
                continue
            candidate = self._fleet.offers[GPU][query.task, VariantName("v")]
            if _meets(candidate, query):
                return choice(candidate, worker)
        return Refusal(code=RefusalCode.OVERLOADED, message="no worker")

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        return self.choose(query, now_ms) if self._again else None

    def changed(self) -> None:
        pass

    def tick(self, now_s: float) -> Iterable[Action]:
        return self._acts.get(now_s, ())


def _meets(candidate: Candidate, query: Query) -> bool:
    return (query.accuracy is None or candidate.accuracy >= query.accuracy) and (
        query.cost is None or candidate.price_usd_per_1k <= query.cost
    )


def choice(candidate: Candidate, worker: Worker) -> Choice:
    ready = worker.replicas.get((candidate.task, candidate.variant))
    cold = ready is None or ready.state is not ReplicaState.READY
    return Choice(candidate, worker.view, 0.0, cold, Reason.PINNED, True)


def load(task: str = "a", worker: str = "gpu-1") -> Load:
    return Load(worker=WorkerId(worker), task=TaskName(task), variant=VariantName("v"))


def unload(task: str = "a", worker: str = "gpu-1") -> Unload:
    return Unload(worker=WorkerId(worker), task=TaskName(task), variant=VariantName("v"))


def scale(count: int) -> Scale:
    return Scale(device_kind=GPU, count=count)


def play(
    setting: Setting,
    *rows: Asked,
    sends: Mapping[str, Sequence[str]] | None = None,
    acts: Mapping[float, Sequence[Action]] | None = None,
    queue: Callable[[], Queue] = DeadlineQueue,
    again: bool = True,
    watch: Callable[[Policy, Fleet], Policy] = lambda policy, fleet: policy,
) -> Report:
    """Simulate by hand. ``watch`` may put itself around the policy."""

    def told(fleet: Fleet) -> Policy:
        policy = Told(setting, fleet, sends=sends or {}, acts=acts or {}, queue=queue, again=again)
        return watch(policy, fleet)

    return engine_of(setting, trace(*rows), told)[1]


def engine_of(
    setting: Setting, asked: Trace, policy: Callable[[Fleet], Policy]
) -> tuple[Engine, Report]:
    """The engine after it ran, and what it found."""
    fleet = Fleet(offers_of(setting.catalog), setting.kinds)
    engine = Engine(setting, asked, fleet, policy, lambda: 0.0)
    end_ms = engine.run()
    return engine, engine.tally.report(
        "told", engine.devices.billed, end_ms, least_billed_ms(setting)
    )


def about(value: float) -> float:
    """Equal but for rounding."""
    return cast(float, pytest.approx(value))


def totals(report: Report) -> Report:
    """Without the timeline."""
    return replace(report, timeline=())


def expected(
    *,
    requests: int,
    in_time: int,
    late: int = 0,
    rejected: int = 0,
    accuracy: float = 0.9,
    cost_usd: float,
    busy_ratio: float,
    loads: int = 1,
    evictions: int = 0,
    load_s_total: float = 1.0,
) -> Report:
    return Report(
        policy="told",
        requests=requests,
        in_time=in_time,
        late=late,
        rejected=rejected,
        violation_ratio=(late + rejected) / requests,
        effective_accuracy=accuracy if in_time else 0.0,
        cost_usd=about(cost_usd),
        busy_ratio=about(busy_ratio),
        loads=loads,
        evictions=evictions,
        load_s_total=load_s_total,
        decision_us_p50=0.0,
        decision_us_p99=0.0,
        plan_ms_p50=0.0,
        plan_ms_p99=0.0,
    )


def resident(worker: Worker) -> tuple[VariantKey, ...]:
    """What is loaded or loading, in the order it came."""
    return tuple(worker.replicas)
