"""Loki: hardware scaling while it is enough, then accuracy scaling; rerouting before dropping."""

from dataclasses import replace
from math import inf

import pytest

from planner.policies.published.loki import Loki
from planner.policies.published.loki_plan import allocate, most_accurate
from planner.policies.published.proteus_plan import Family, Setup
from planner.simulate import simulate
from planner.simulation.fleet import Fleet, Worker
from planner.simulation.policy import Brief
from planner.solver.milp import Answer, Program, solve
from planner.types import Choice, Demand, Objective, Query, RefusalCode
from tests.contracts.test_policy import steady
from tests.planner.policies.published.builders import DIGITS, GPU, kind
from tests.planner.simulation.builders import Model, engine_of, setting
from variants.types import DeviceKindName, TaskName, VariantName


def setup(variant: str, peak_qps: int, accuracy: float, on: str = GPU) -> Setup:
    return Setup(DeviceKindName(on), DIGITS, VariantName(variant), accuracy, 100.0, 1, peak_qps)


QUICK, GOOD = setup("quick", 100, 0.7), setup("good", 20, 0.9)


def family(qps: float, floor: float = -inf) -> Family:
    return Family(DIGITS, 100.0, floor, qps)


@pytest.mark.parametrize(
    ("qps", "expected", "by_hardware"),
    [
        (10.0, {"good": 1}, True),  # one server is enough
        (50.0, {"good": 3}, True),
        (80.0, {"good": 4}, True),  # all four
        (100.0, {"good": 3, "quick": 1}, False),  # 60 accurately and 40 not
        (180.0, {"good": 2, "quick": 2}, False),  # 40 and 140; three of the good serve 160 only
        (500.0, {"quick": 4}, False),  # not all can be served: as much as possible
    ],
)
def test_hardware_first_and_then_accuracy(
    qps: float, expected: dict[str, int], by_hardware: bool
) -> None:
    found = allocate([family(qps)], [QUICK, GOOD], [kind(4)], {})
    assert {setup.variant: n for setup, n in found.counts.items()} == expected
    assert found.by_hardware is by_hardware
    assert found.served_qps == pytest.approx(min(qps, 400.0), rel=1e-3)


def test_cheaper_servers_come_first() -> None:
    kinds = [replace(kind(4), usd_per_hour=3.0), kind(4, name="cpu")]
    options = [GOOD, setup("good", 10, 0.9, on="cpu")]
    found = allocate([family(40.0)], options, kinds, {})
    assert {setup.kind: n for setup, n in found.counts.items()} == {"cpu": 4}


def test_a_floor_leaves_the_accurate_ones() -> None:
    assert most_accurate([family(1.0), family(1.0, 0.8)], [QUICK, GOOD]) == [GOOD]
    found = allocate([family(500.0, 0.8)], [QUICK, GOOD], [kind(4)], {})
    assert {setup.variant: n for setup, n in found.counts.items()} == {"good": 4}


def loki(qps: int, devices: int = 2) -> tuple[Loki, Fleet]:
    """Two variants of a task; the policy after its devices were loaded."""
    models = (
        Model(name="quick", latency_ms=10.0, accuracy=0.7, load_s=0.1, max_batch=1),
        Model(name="good", latency_ms=40.0, accuracy=0.9, load_s=0.1, max_batch=1),
    )
    known = setting(*models, devices=devices)
    wanted = Demand(task=TaskName("a"), latency_ms=100.0, accuracy=None, qps=qps)
    brief = Brief(setting=known, average=lambda: (wanted,), clock_s=lambda: 0.0)
    engine, _ = engine_of(known, steady(qps, 3), lambda fleet: Loki(brief, fleet))
    assert isinstance(engine.policy, Loki)
    return engine.policy, engine.fleet


def test_queries_go_to_the_most_accurate_up_to_its_capacity() -> None:
    """45 queries per second, 54 with headroom, are more than the 50 of two accurate devices: 25 fit
    one of them, 20 are left for a quick one."""
    policy, fleet = loki(45)
    found = policy._class(TaskName("a"), 100.0, None)
    found.qps = 45.0
    policy._find_routes(found)
    shares = {share.replica.key[1]: share.flow for share in found.shares}
    assert shares == {"good": pytest.approx(25.0), "quick": pytest.approx(20.0)}
    assert sorted(key[1] for w in fleet.workers.values() for key in w.replicas) == ["good", "quick"]


def test_a_query_that_would_be_late_is_rerouted_and_only_then_dropped() -> None:
    policy, fleet = loki(45)
    late = Query(TaskName("a"), 1, 100_000.0, 100.0)
    by_name: dict[str, Worker] = {key[1]: w for w in fleet.workers.values() for key in w.replicas}
    by_name["good"].view.busy_until_ms = 100_090.0
    sent = policy.choose(late, 100_000.0)
    assert isinstance(sent, Choice)
    assert sent.candidate.variant == "quick"
    by_name["quick"].view.busy_until_ms = 100_095.0
    refused = policy.choose(late, 100_000.0)
    assert not isinstance(refused, Choice)
    assert refused.code is RefusalCode.OVERLOADED


def test_under_cost_few_servers_serve_few_queries() -> None:
    """Five queries per second of 40 ms need one device of four, once the calm is seen."""
    known = setting(Model(latency_ms=40.0), devices=4, objective=Objective.COST, provision_s=5.0)
    report = simulate(known, steady(5, 300, latency_ms=400.0), "loki", clock=lambda: 0.0)
    assert report.timeline[-1].devices == 1
    assert report.violation_ratio < 0.05


@pytest.mark.parametrize("policy", ["loki", "proteus"])
def test_searches_end_at_a_number_of_nodes_and_not_by_the_clock(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that computes ten things at once a run of half a second takes more than five."""
    limits: list[tuple[float, int]] = []

    def watched(program: Program, *, time_limit_s: float, gap: float, nodes: int) -> Answer:
        limits.append((time_limit_s, nodes))
        return solve(program, time_limit_s=time_limit_s, gap=gap, nodes=nodes)

    monkeypatch.setattr(f"planner.policies.published.{policy}_plan.solve", watched)
    known = setting(Model(), Model(name="quick", accuracy=0.7, latency_ms=4.0))
    simulate(known, steady(20, 20), policy, clock=lambda: 0.0)
    assert limits
    assert all(limit_s >= 100.0 and nodes > 0 for limit_s, nodes in limits)
