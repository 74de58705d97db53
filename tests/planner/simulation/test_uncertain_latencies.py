"""Devices that take other times than profiles say, and what our own policy makes of it."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from math import exp, log
from random import Random
from statistics import fmean, pstdev

import pytest

from planner.policies.live_latency import LiveLatency
from planner.policies.modelless import Modelless, planner_of
from planner.policies.registry import make
from planner.simulate import accuracies, mean_demand, offers_of, simulate
from planner.simulation.fleet import Fleet, Replica, Worker
from planner.simulation.played_latencies import latency_factors, played_latencies, true_catalog
from planner.simulation.policy import Brief, Learning
from planner.simulation.setting import Setting
from planner.types import Action, Objective
from tests.contracts.test_policy import steady
from tests.planner.simulation.builders import Asked as Row
from tests.planner.simulation.builders import Fifo, Model, engine_of, load, play, setting, trace
from variants.types import Plan, WorkerId

MODELS = [Model("a", name=f"v{n}", latency_ms=10.0 + n, accuracy=0.5 + n / 100) for n in range(40)]


def uncertain(known: Setting, low: float = 1.0, high: float = 1.0, noise: float = 0.0) -> Setting:
    return replace(known, latency_error=(low, high), latency_noise=noise)


def replicas(known: Setting) -> list[Replica]:
    """One of each variant, all on one device."""
    fleet = Fleet(offers_of(known.catalog), known.kinds)
    worker = Worker(WorkerId("gpu-1"), known.kinds[0], Fifo(), 0.0)
    offers = fleet.offers[worker.kind.name]
    return [
        Replica(key, offer, worker, worker.queue.add_variant(offer.task, offer.table))
        for key, offer in offers.items()
    ]


def test_latencies_are_right_unless_told_otherwise() -> None:
    assert played_latencies(setting()) is None
    assert true_catalog(setting()) == setting().catalog


def test_a_factor_is_played_throughout() -> None:
    """20 ms instead of 10: the second of two queries that come together is done after 40."""
    rows = [Row(2.0, latency_ms=45.0), Row(2.0, latency_ms=45.0), Row(2.0, latency_ms=45.0)]
    # The first query loads the variant, so that it is ready after 1 s.
    report = play(uncertain(setting(), 2.0, 2.0), Row(0.0, 5_000.0), *rows, queue=Fifo)
    assert (report.in_time, report.late) == (3, 1)
    assert report.busy_ratio * (2.0 + 0.06) == pytest.approx(0.08)


def test_a_batch_after_a_pause_takes_longer() -> None:
    """Of two queries that come together the first takes 25 ms and the second 10."""
    paused = replace(setting(), latency_pause=2.5)
    for latency_ms, in_time in ((36.0, 3), (34.0, 2)):
        two = [Row(2.0, latency_ms=latency_ms)] * 2
        assert play(paused, Row(0.0, 5_000.0), *two, queue=Fifo).in_time == in_time


def disturbed(known: Setting, part: float) -> Setting:
    return replace(known, kinds=tuple(replace(kind, interference=part) for kind in known.kinds))


def test_a_batch_after_one_of_another_variant_takes_longer() -> None:
    """One by one, 10 ms each: a, a, b, b, a. The third and the last take 15, and no other."""
    both = disturbed(setting(Model("a"), Model("b")), 0.5)
    rows = [Row(2.0 + n, latency_ms=100.0, task=task) for n, task in enumerate("aabba")]
    acts = {0.0: [load("a"), load("b")]}
    report = play(both, *rows, acts=acts)

    assert report.in_time == 5
    assert report.busy_ratio * 6.015 == pytest.approx(0.060)
    late = [row._replace(latency_ms=14.0) for row in rows]
    assert play(both, *late, acts=acts, queue=Fifo).late == 2


def test_a_device_that_runs_one_variant_is_not_disturbed_by_what_it_holds() -> None:
    both = disturbed(setting(Model("a"), Model("b")), 0.5)
    rows = [Row(2.0 + n, latency_ms=12.0) for n in range(3)]
    report = play(both, *rows, acts={0.0: [load("a"), load("b")]}, queue=Fifo)

    assert (report.in_time, report.late) == (3, 0)


def test_workers_learn_what_it_costs_to_take_turns() -> None:
    """Two tasks that take turns on the only device, where batches then take twice as long: by the
    profiles it would admit more than it can do in time."""
    both = disturbed(setting(Model("a"), Model("b")), 1.0)
    known = replace(both, objective=Objective.ACCURACY)
    gaps = Random(0)
    at_s, rows = 2.0, []
    for number in range(3_000):
        at_s += gaps.expovariate(60.0)
        rows.append(Row(at_s, latency_ms=45.0, task="ab"[number % 2]))
    found = simulate(known, trace(*rows), "modelless", clock=lambda: 0.0)

    assert found.late < 0.03 * found.requests
    assert found.in_time > 0.5 * found.requests


class Watched(Modelless):
    """Remembers the plan of each tick, and by what part it has batches longer beside others."""

    def __init__(self, brief: Brief, fleet: Fleet) -> None:
        super().__init__(brief, fleet, planner_of(brief))
        self.plans: list[Plan] = []
        self.parts: list[float] = []

    def tick(self, now_s: float) -> Iterable[Action]:
        actions = super().tick(now_s)
        assert self.plan is not None
        self.plans.append(self.plan)
        self.parts.append(sum(self._live.corrections.interference.values()))
        return actions


def watched(part: float, qps: float = 100.0, latency_ms: float = 100.0) -> Watched:
    """Two tasks of 10 ms on two devices, either asked for at random, for a minute."""
    both = disturbed(setting(Model("a"), Model("b"), devices=2, tick_s=5.0), part)
    known = replace(both, objective=Objective.COST, elastic=False)
    draw, at_s, rows = Random(0), 2.0, []
    while at_s < 62.0:
        at_s += draw.expovariate(qps)
        rows.append(Row(at_s, latency_ms=latency_ms, task=draw.choice("ab")))
    made: list[Watched] = []

    def policy(fleet: Fleet) -> Watched:
        brief = Brief(setting=known, average=lambda: (), clock_s=lambda: 0.0)
        made.append(Watched(brief, fleet))
        return made[0]

    engine_of(known, trace(*rows), policy)
    return made[0]


def test_plans_learn_to_keep_apart_what_disturbs_each_other() -> None:
    """50 queries per second of each task; beside each other batches take twice as long. By the
    profiles both tasks would be divided over both devices."""
    calm, noisy = watched(0.0), watched(1.0)
    assert calm.plan is not None
    assert noisy.plan is not None
    assert not any("longer" in sentence for sentence in calm.plan.explanation)
    assert any("batches are planned to take" in each for each in noisy.plan.explanation)
    mixed, apart = (
        {(route.worker, route.task) for route in one.plan.routes}
        for one in (calm, noisy)
        if one.plan is not None
    )
    assert len(mixed) > len(apart) == 2
    assert len({worker for worker, _ in apart}) == 2


@pytest.mark.parametrize(("qps", "latency_ms"), [(180.0, 100.0), (250.0, 45.0)])
def test_plans_settle_where_variants_disturb_each_other(qps: float, latency_ms: float) -> None:
    """Also where many queries are refused, so that workers forget that their variants were slow: in
    the second half of a minute no plan moves a task, and what was learned stays."""
    found = watched(1.0, qps, latency_ms)
    half = len(found.plans) // 2
    served = [{(route.worker, route.task) for route in plan.routes} for plan in found.plans[half:]]
    assert sum(one != other for one, other in pairwise(served)) == 0
    assert found.parts[half:] == pytest.approx([1.0] * len(served), abs=0.051)
    assert len(set(found.parts[half:])) == 1


def test_factors_differ_by_profile_within_the_limits_and_repeat() -> None:
    known = uncertain(setting(*MODELS), 0.7, 1.5)
    factors = latency_factors(known)
    assert len(set(factors.values())) == len(MODELS)
    assert all(0.7 <= factor <= 1.5 for factor in factors.values())
    assert 1.0 < fmean(factors.values()) < 1.2
    assert latency_factors(known) == factors != latency_factors(replace(known, seed=1))


def test_what_is_played_is_what_the_true_catalog_says() -> None:
    known = uncertain(setting(*MODELS), 0.7, 1.5)
    played = played_latencies(known)
    assert played is not None
    true = offers_of(true_catalog(known))[known.kinds[0].name]
    for replica in replicas(known):
        told_ms = replica.candidate.table.ms[4]
        assert played(replica, told_ms) == pytest.approx(true[replica.key].table.ms[4])


def test_noise_is_drawn_for_each_batch_and_takes_no_capacity() -> None:
    known = uncertain(setting(), noise=0.2)
    played = played_latencies(known)
    assert played is not None
    (replica,) = replicas(known)
    times = [played(replica, 10.0) for _ in range(20_000)]
    assert fmean(times) == pytest.approx(10.0, rel=0.01)
    assert pstdev([log(ms) for ms in times]) == pytest.approx(0.2, rel=0.02)


def test_the_policy_comes_to_decide_by_what_devices_play() -> None:
    """All variants of a task take 1.4 times as long as their profiles say."""
    known = uncertain(setting(Model(latency_ms=20.0)), 1.4, 1.4, noise=0.1)
    fleet = Fleet(offers_of(known.catalog), known.kinds)
    live = LiveLatency(fleet, corrects=True)
    (replica,) = replicas(known)
    fleet.workers[replica.worker.id] = replica.worker
    replica.worker.replicas[replica.key] = replica
    replica.worker.queue = make("modelless")(
        Brief(setting=known, average=lambda: (), clock_s=lambda: 0.0), fleet
    ).queue()
    replica.queue = replica.worker.queue.add_variant("a", replica.candidate.table)
    played = played_latencies(known)
    assert played is not None
    for number in range(100):
        live.ran(replica, 1, played(replica, 20.0), 30.0 * number, 1, 0)
    assert live.look(1.0)
    (ratios,) = live.corrections.ratios.values()
    assert exp(ratios[0].typical) == pytest.approx(1.4, rel=0.1)
    assert ratios[0].high > ratios[0].typical
    assert replica.queue.ms[1] == pytest.approx(28.0, rel=0.1)


def test_ours_learns_and_the_others_need_not() -> None:
    known = uncertain(setting(*MODELS[:2]), 1.2, 1.2)
    fleet = Fleet(offers_of(known.catalog), known.kinds)
    brief = Brief(setting=known, average=lambda: (), clock_s=lambda: 0.0)
    assert isinstance(make("modelless")(brief, fleet), Learning)
    assert not isinstance(make("proteus")(brief, fleet), Learning)


def test_reports_repeat() -> None:
    known = uncertain(setting(*MODELS[:3], devices=2), 0.7, 1.5, noise=0.2)
    rows = steady(20, 20)
    assert mean_demand(rows, accuracies(known.catalog))
    first, second = (simulate(known, rows, "modelless", clock=lambda: 0.0) for _ in range(2))
    assert first == second
