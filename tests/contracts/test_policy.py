"""What every policy keeps in a simulation: ``planner.simulation.policy.Policy``, whatever its
rules.

Every one of ``planner.policies.registry.POLICIES`` runs on the same small fleets: under both
objectives, with devices that fail or take other times than profiles say, with less memory than the
variants take, and without time.
"""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.policies.registry import POLICIES, make
from planner.simulate import accuracies, mean_demand, simulate
from planner.simulation.engine import Engine
from planner.simulation.policy import Brief
from planner.simulation.results import Report
from planner.simulation.setting import Setting
from planner.simulation.trace import Trace
from planner.types import Objective
from tests.planner.simulation.builders import Asked, Model, engine_of, setting, trace
from tests.planner.simulation.watching import Guarded

NAMES = sorted(POLICIES)
MODELS = (
    Model("a", name="small", accuracy=0.7, latency_ms=10.0, memory_mib=300.0, load_s=0.5),
    Model("a", name="large", accuracy=0.9, latency_ms=30.0, memory_mib=600.0, load_s=2.0),
    Model("b", name="small", accuracy=0.6, latency_ms=5.0, memory_mib=200.0, load_s=1.0),
    Model("b", name="large", accuracy=0.8, latency_ms=20.0, memory_mib=1_200.0, load_s=1.0),
    Model("c", name="only", accuracy=0.5, latency_ms=10.0, memory_mib=500.0, load_s=0.0),
)

asked = st.builds(
    Asked,
    arrival_s=st.integers(0, 300).map(lambda tenth: tenth / 10),
    latency_ms=st.sampled_from((8.0, 60.0, 250.0, 3_000.0)),
    task=st.sampled_from(("a", "b", "c")),
    floor=st.sampled_from((None, 0.65, 0.95)),
    ceiling=st.sampled_from((None, 0.02, 0.001)),
)
traces = st.lists(asked, min_size=1, max_size=50).map(
    lambda rows: trace(*sorted(rows, key=lambda row: row.arrival_s))
)
exact_grounds = st.builds(
    setting,
    *[st.just(model) for model in MODELS],
    devices=st.integers(1, 3),
    objective=st.sampled_from(Objective),
    provision_s=st.sampled_from((0.0, 4.0)),
    tick_s=st.sampled_from((1.0, 10.0)),
    failures_every_s=st.sampled_from((None, 3.0)),
    instant=st.sampled_from((False, False, True)),
)
grounds = st.builds(
    lambda known, error, noise: replace(known, latency_error=error, latency_noise=noise),
    exact_grounds,
    st.sampled_from(((1.0, 1.0), (0.7, 1.5))),
    st.sampled_from((0.0, 0.2)),
)
"""Half of them with devices that contradict the profiles."""


def guarded(name: str, known: Setting, rows: Trace) -> tuple[Engine, Report]:
    """Simulate with an eye on every device's memory."""
    brief = Brief(
        setting=known,
        average=lambda: mean_demand(rows, accuracies(known.catalog)),
        clock_s=lambda: 0.0,
    )
    return engine_of(known, rows, lambda fleet: Guarded(make(name)(brief, fleet), fleet))


def steady(
    qps: int, seconds: int, task: str = "a", latency_ms: float = 100.0, floor: float | None = None
) -> Trace:
    """Evenly spaced queries, all alike."""
    return trace(*(Asked(i / qps, latency_ms, task, floor) for i in range(qps * seconds)))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(known=grounds, rows=traces)
def test_every_query_has_one_outcome_and_no_device_is_over_its_memory(
    name: str, known: Setting, rows: Trace
) -> None:
    """Failures lose nothing uncounted, and nothing is left behind."""
    engine, report = guarded(name, known, rows)

    assert report.requests == len(rows) == report.in_time + report.late + report.rejected
    billed = engine.devices.billed
    assert [worker.queue.count for worker in billed] == [0] * len(billed)
    assert all(not r.in_flight for worker in billed for r in worker.replicas.values())


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=2, deadline=None)
@given(known=grounds, rows=traces)
def test_the_same_seed_gives_the_same_report(name: str, known: Setting, rows: Trace) -> None:
    assert guarded(name, known, rows)[1] == guarded(name, known, rows)[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_floor_that_nothing_meets_is_rejected(name: str) -> None:
    """Every second query asks for 0.95: none of those is answered, and all others are."""
    rows = [Asked(i / 10, floor=0.95 if i % 2 else None) for i in range(200)]
    report = simulate(setting(*MODELS), trace(*rows), name, clock=lambda: 0.0)
    after = [each for each in report.timeline if each.start_s >= 10]
    assert sum(each.in_time for each in after) == sum(each.rejected for each in after) == 50


@pytest.mark.parametrize("name", NAMES)
def test_a_floor_is_never_undercut(name: str) -> None:
    """Only the variant of 0.9 may answer."""
    report = simulate(
        setting(*MODELS, devices=3), steady(10, 20, floor=0.8), name, clock=lambda: 0.0
    )
    assert report.in_time > 0
    assert report.effective_accuracy == pytest.approx(0.9)


@pytest.mark.parametrize("name", NAMES)
def test_a_light_load_is_served(name: str) -> None:
    """After ten seconds to load in, no query is late: ten queries per second on three devices."""
    report = simulate(setting(*MODELS, devices=3), steady(10, 40), name, clock=lambda: 0.0)
    after = [each for each in report.timeline if each.start_s >= 10]
    assert sum(each.arrived for each in after) == sum(each.in_time for each in after) == 300


@pytest.mark.parametrize("name", NAMES)
def test_under_cost_devices_are_ordered_and_serve(name: str) -> None:
    known = setting(*MODELS, devices=3, objective=Objective.COST, provision_s=5.0)
    report = simulate(known, steady(10, 90), name, clock=lambda: 0.0)
    after = [each for each in report.timeline if each.start_s >= 60]
    assert sum(each.arrived for each in after) == sum(each.in_time for each in after) == 300
    assert report.cost_usd > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_device_is_loaded_again(name: str) -> None:
    """The only device is away for a second after 20 s, and serves again soon after that."""
    known = replace(setting(*MODELS), failures_every_s=20.0, provision_s=1.0)
    report = simulate(known, steady(10, 39), name, clock=lambda: 0.0)
    after = [each for each in report.timeline if each.start_s >= 35]
    assert sum(each.in_time for each in after) == sum(each.arrived for each in after) > 0


@pytest.mark.parametrize("name", NAMES)
def test_without_time_everything_that_fits_is_answered(name: str) -> None:
    """Two variants that do not fit together take turns on the one device."""
    models = [Model("a", memory_mib=700.0), Model("b", memory_mib=700.0)]
    rows = [Asked(float(i), task="ab"[i % 2]) for i in range(10)]
    report = simulate(setting(*models, instant=True), trace(*rows), name, clock=lambda: 0.0)
    assert (report.in_time, report.loads, report.evictions) == (10, 10, 9)


def test_the_registry_knows_who_is_unknown() -> None:
    with pytest.raises(ValueError, match="policy 'nobody' is unknown; there are: clipper, "):
        make("nobody")
