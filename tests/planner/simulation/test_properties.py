"""What holds for every demand, every policy and every failure."""

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.batching.aimd import AdditiveQueue
from planner.batching.deadline_queue import DeadlineQueue
from planner.batching.protocol import Queue
from planner.eviction.registry import RULES
from planner.policies.registry import POLICIES, make
from planner.simulate import accuracies, mean_demand, simulate
from planner.simulation.fleet import Fleet
from planner.simulation.policy import Brief
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import (
    Action,
    Choice,
    Load,
    Objective,
    Query,
    Refusal,
    RefusalCode,
    Scale,
    Unload,
)
from tests.planner.simulation.builders import (
    GPU,
    Asked,
    Fifo,
    Model,
    choice,
    engine_of,
    setting,
    trace,
)
from tests.planner.simulation.watching import Guarded

MODELS = (
    Model("a", name="v", accuracy=0.9, latency_ms=40, memory_mib=600, load_s=3.0),
    Model("a", name="u", accuracy=0.7, latency_ms=10, memory_mib=300, load_s=0.5),
    Model("b", name="v", accuracy=0.8, latency_ms=20, memory_mib=500, load_s=0.0),
    Model("b", name="u", accuracy=0.6, latency_ms=5, memory_mib=0.0, load_s=1.0),
)

asked = st.builds(
    Asked,
    arrival_s=st.integers(0, 400).map(lambda tenth: tenth / 10),
    latency_ms=st.sampled_from((8.0, 60.0, 500.0, 5_000.0)),
    task=st.sampled_from(("a", "b")),
    floor=st.sampled_from((None, 0.65, 0.75, 0.95)),
    ceiling=st.sampled_from((None, 0.02, 0.001)),
)
traces = st.lists(asked, min_size=1, max_size=60).map(lambda rows: trace(*sorted(rows, key=_time)))
grounds = st.builds(
    setting,
    *[st.just(model) for model in MODELS],
    devices=st.integers(1, 3),
    objective=st.sampled_from(Objective),
    eviction=st.sampled_from(sorted(RULES)),
    provision_s=st.sampled_from((0.0, 4.0)),
    tick_s=st.sampled_from((1.0, 10.0)),
    seed=st.integers(0, 9),
    failures_every_s=st.sampled_from((None, 1.3, 7.0)),
)
QUEUES: tuple[type[DeadlineQueue] | type[AdditiveQueue] | type[Fifo], ...] = (
    DeadlineQueue, AdditiveQueue, Fifo,
)  # fmt: skip


def _time(row: Asked) -> float:
    return row.arrival_s


class Fickle:
    """Decides by lot, and badly: sends to workers that are gone, loads what is there."""

    def __init__(self, setting: Setting, fleet: Fleet) -> None:
        self.tick_s = setting.tick_s
        self._fleet = fleet
        self._lot = random.Random(setting.seed)

    def queue(self) -> Queue:
        return self._lot.choice(QUEUES)()

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        lot, workers = self._lot, list(self._fleet.workers.values())
        refusal = Refusal(code=RefusalCode.OVERLOADED, message="by lot")
        if not workers:
            return refusal
        worker = lot.choice(workers)
        candidate = lot.choice(
            [c for (task, _), c in self._fleet.offers[GPU].items() if task == query.task]
        )
        if lot.random() < 0.1:
            return replace(refusal, load=(candidate, worker.view))
        return choice(candidate, worker)

    def again(self, query: Query, now_ms: float) -> Choice | Refusal | None:
        return None if self._lot.random() < 0.3 else self.choose(query, now_ms)

    def changed(self) -> None:
        pass

    def tick(self, now_s: float) -> Iterable[Action]:
        lot = self._lot
        for name in [*self._fleet.workers, *self._fleet.ordered]:
            for task, variant in self._fleet.offers[GPU]:
                made = lot.choice((Load, Unload, None, None))
                if made is not None:
                    yield made(worker=name, task=task, variant=variant)
        yield Scale(device_kind=GPU, count=lot.randint(0, 4))


@settings(max_examples=30, deadline=None)
@given(known=grounds, asked=traces)
def test_every_query_has_one_outcome_and_nothing_is_left(known: Setting, asked: Trace) -> None:
    engine, report = engine_of(known, asked, lambda fleet: Guarded(Fickle(known, fleet), fleet))

    assert report.requests == len(asked) == report.in_time + report.late + report.rejected
    for worker in engine.devices.billed:
        assert worker.queue.count == 0
        assert worker.batch is None
        assert all(replica.in_flight == 0 for replica in worker.replicas.values())
        assert not any(replica.waiting for replica in worker.replicas.values())


@settings(max_examples=30, deadline=None)
@given(known=grounds, asked=traces)
def test_the_timeline_adds_up(known: Setting, asked: Trace) -> None:
    _, report = engine_of(known, asked, lambda fleet: Fickle(known, fleet))

    line = report.timeline
    assert sum(each.arrived for each in line) == report.requests
    assert sum(each.in_time for each in line) == report.in_time
    assert sum(each.late for each in line) == report.late
    assert sum(each.rejected for each in line) == report.rejected
    assert sum(each.loads for each in line) == report.loads
    assert sum(each.evictions for each in line) == report.evictions
    assert all(each.arrived == each.in_time + each.late + each.rejected for each in line)
    if report.in_time:
        mean = sum(each.accuracy * each.in_time for each in line) / report.in_time
        assert report.effective_accuracy == pytest.approx(mean)


@settings(max_examples=30, deadline=None)
@given(known=grounds, asked=traces)
def test_devices_cost_and_work_no_more_than_there_are(known: Setting, asked: Trace) -> None:
    engine, report = engine_of(known, asked, lambda fleet: Fickle(known, fleet))

    assert 0.0 <= report.busy_ratio <= 1.0 + 1e-9
    assert max(each.devices for each in report.timeline) <= known.kinds[0].count
    assert all(0.0 <= each.busy_ratio <= 1.0 for each in report.timeline)
    if known.objective is Objective.ACCURACY:
        whole_s = max(w.released_ms or 0.0 for w in engine.devices.billed)
        assert whole_s == 0.0  # no device is given back
        assert len(engine.devices.billed) == known.kinds[0].count


@settings(max_examples=30, deadline=None)
@given(known=grounds, asked=traces)
def test_the_same_seed_gives_the_same(known: Setting, asked: Trace) -> None:
    first, second = (
        engine_of(known, asked, lambda fleet: Fickle(known, fleet))[1] for _ in range(2)
    )

    assert first == second


@settings(max_examples=30, deadline=None)
@given(known=grounds, asked=traces)
def test_instantly_the_eviction_rules_answer_the_same_queries(known: Setting, asked: Trace) -> None:
    reports = [
        simulate(replace(known, instant=True, eviction=rule), asked, "modelless", clock=_still)
        for rule in sorted(RULES)
    ]

    outcomes = {(r.requests, r.in_time, r.late, r.rejected) for r in reports}
    assert len(outcomes) == 1
    assert reports[0].late == 0


@settings(max_examples=10, deadline=None)
@given(known=grounds, asked=traces)
def test_the_currency_in_which_prices_are_does_not_matter(known: Setting, asked: Trace) -> None:
    """A power of two, so that nothing is rounded otherwise."""
    dearer = 2.0**14
    kinds = [
        replace(kind, usd_per_hour=dearer * kind.usd_per_hour)
        for kind in known.catalog.device_kinds
    ]
    other = replace(
        known,
        catalog=replace(known.catalog, device_kinds=tuple(kinds)),
        kinds=tuple(replace(k, usd_per_hour=dearer * k.usd_per_hour) for k in known.kinds),
    )
    paid = replace(asked, max_cost=[dearer * ceiling for ceiling in asked.max_cost])

    one = simulate(known, asked, "modelless", clock=_still)
    two = simulate(other, paid, "modelless", clock=_still)

    assert two.cost_usd == pytest.approx(dearer * one.cost_usd)
    counts = [
        (r.in_time, r.late, r.rejected, r.effective_accuracy, r.loads, r.evictions, r.busy_ratio)
        for r in (one, two)
    ]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("policy", sorted(POLICIES))
@settings(max_examples=2, deadline=None)
@given(known=grounds, asked=traces)
def test_every_policy_keeps_the_books(policy: str, known: Setting, asked: Trace) -> None:
    brief = Brief(
        setting=known,
        average=lambda: mean_demand(asked, accuracies(known.catalog)),
        clock_s=_still,
    )

    first, second = (
        engine_of(known, asked, lambda fleet: Guarded(make(policy)(brief, fleet), fleet))[1]
        for _ in range(2)
    )

    assert first == second
    assert first.requests == len(asked) == first.in_time + first.late + first.rejected


def _still() -> float:
    """A clock that stands still: decisions take no time."""
    return 0.0
