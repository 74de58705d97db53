"""The autoscalers' rules, on cases worked out by hand from their documentation."""

from dataclasses import replace

import pytest

from planner.latency_table import LatencyTable
from planner.policies.autoscalers import dynamo, kubernetes, ray_serve
from planner.policies.autoscalers.scaling_rule import Deployed, Load
from planner.simulate import offers_of
from tests.planner.simulation.builders import setting

GAINING = LatencyTable([(1, 10.0), (8, 38.0)])
"""A further row takes 4 ms."""


def load(
    now_s: float,
    target: int,
    *,
    ready: int | None = None,
    ongoing: float = 0.0,
    busy: float = 0.0,
    arrived: int = 0,
    done: int = 0,
    mean_ms: float = 0.0,
) -> Load:
    return Load(
        now_s=now_s,
        target=target,
        ready=target if ready is None else ready,
        ongoing=ongoing,
        busy=busy,
        arrived=arrived,
        done=done,
        mean_ms=mean_ms,
    )


# -- Ray Serve ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ongoing", "running", "expected"),
    [(4.0, 2, 2), (5.0, 2, 3), (20.0, 2, 10), (1.0, 4, 1), (0.0, 4, 1), (6.1, 4, 4)],
)
def test_ray_has_the_target_on_each_replica(ongoing: float, running: int, expected: int) -> None:
    assert ray_serve.desired_replicas(ongoing, running, 2.0) == expected


def test_ray_scales_up_after_half_a_minute_and_down_after_ten() -> None:
    """Eight ongoing requests on one replica are four; none at all are one."""
    rule = ray_serve.OngoingRequests(batch=1)
    counts = [1]
    for second in range(1, 1_000):
        ongoing = 8.0 if second < 100 else 0.0
        counts.append(rule.wanted(load(float(second), counts[-1], ongoing=ongoing)))
    assert (counts[30], counts[31]) == (1, 4)
    # At 103 s the mean of the last 30 s is below 6 for the first time, so that three would do.
    down = next(at for at, count in enumerate(counts) if at > 100 and count < 4)
    assert 700 <= down <= 710
    assert counts[-1] == 1


def test_ray_begins_again_when_the_decision_does_not_hold() -> None:
    """Eight for eight seconds of each minute: the mean of half a minute is above the target for
    less than half a minute."""
    rule = ray_serve.OngoingRequests(batch=1)
    counts = [1]
    for second in range(1, 200):
        ongoing = 8.0 if second % 60 < 8 else 0.0
        counts.append(rule.wanted(load(float(second), counts[-1], ongoing=ongoing)))
    assert max(counts) == 1


def test_ray_s_target_is_a_batch_where_batches_are_larger() -> None:
    small, large = ray_serve.OngoingRequests(batch=1), ray_serve.OngoingRequests(batch=8)
    found = {
        rule: [rule.wanted(load(float(second), 1, ongoing=8.0)) for second in range(1, 32)][-1]
        for rule in (small, large)
    }
    assert list(found.values()) == [4, 1]


def test_ray_starts_one_where_none_runs() -> None:
    assert ray_serve.OngoingRequests(1).wanted(load(1.0, 0, ready=0, ongoing=3.0)) == 1


# -- Kubernetes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("utilisations", "pods", "expected"),
    [
        ([0.8, 0.8], 2, 2),
        ([0.87, 0.87], 2, 2),  # within a tenth of 1
        ([0.9, 0.9], 2, 3),  # 2 x 0.9 / 0.8 = 2.25
        ([0.4, 0.4, 0.4], 3, 2),  # 1.5
        ([0.0], 1, 1),
        ([1.0, 1.0], 3, 3),  # the third is not ready: 2 / 3 / 0.8 = 0.83 turns it round
        ([1.0] * 5, 6, 6),  # 5 / 6 / 0.8 = 1.04 is within a tenth
        ([1.0] * 8, 9, 10),  # 8 / 9 / 0.8 = 1.11: 10.0
        ([0.4, 0.4], 3, 2),  # (0.4 + 0.4 + 0.8) / 3 / 0.8 = 0.67: 2
        ([], 2, 2),
    ],
)
def test_kubernetes_multiplies_by_the_ratio(
    utilisations: list[float], pods: int, expected: int
) -> None:
    found = kubernetes.desired_pods(sum(utilisations), len(utilisations), pods, 0.8)
    assert found == expected


def test_kubernetes_goes_up_at_once_and_by_four_pods_or_as_many_again() -> None:
    rule = kubernetes.Utilisation(target=0.1)
    assert rule.wanted(load(15.0, 1, busy=1.0)) == 5
    assert rule.wanted(load(30.0, 5, busy=5.0)) == 10


def test_kubernetes_goes_down_to_the_highest_of_five_minutes() -> None:
    """Four were recommended at 30 s for the last time, which counts until 330 s."""
    rule = kubernetes.Utilisation()
    counts = [4]
    for turn in range(1, 30):
        busy = 4 * 0.8 if turn <= 2 else 0.8
        counts.append(rule.wanted(load(15.0 * turn, counts[-1], busy=busy)))
    assert counts[: 330 // 15] == [4] * (330 // 15)
    assert counts[330 // 15 :] == [1] * (30 - 330 // 15)


# -- Dynamo ---------------------------------------------------------------------------------------


def planner(latency_ms: float = 100.0) -> dynamo.SlaPlanner:
    known = setting()
    (offer,) = offers_of(known.catalog)[known.kinds[0].name].values()
    offer = replace(offer, table=GAINING)
    return dynamo.SlaPlanner(Deployed(candidate=offer, latency_ms=latency_ms, batch=1), 60.0)


def test_dynamo_interpolates_the_profile() -> None:
    assert dynamo.expected_ms(GAINING, 0.2) == 10.0
    assert dynamo.expected_ms(GAINING, 2.5) == pytest.approx(16.0)
    assert dynamo.expected_ms(GAINING, 99.0) == 38.0


def test_dynamo_takes_the_best_throughput_within_the_slo() -> None:
    """Half of 60 ms holds six rows, of 76 ms eight; half of 10 ms holds none."""
    assert dynamo.throughput_qps(GAINING, 60.0) == pytest.approx(6 / 0.030)
    assert dynamo.throughput_qps(GAINING, 76.0) == pytest.approx(8 / 0.038)
    assert dynamo.throughput_qps(GAINING, 10.0) == pytest.approx(100.0)


def test_dynamo_has_as_many_as_the_forecast_needs() -> None:
    """400 queries per second at the 8 / 0.038 = 210.5 of one replica."""
    assert planner().wanted(load(60.0, 1, arrived=400 * 60)) == 2


def test_dynamo_corrects_by_live_over_profiled_latency() -> None:
    """One in flight on the replica, 20 ms instead of 10: the SLO of 60 ms counts as 30, half of
    which holds 2 rows, 142.9 per second."""
    seen = load(60.0, 1, arrived=400 * 60, done=50 * 60, mean_ms=20.0)
    assert planner(latency_ms=60.0).wanted(seen) == 3


def test_dynamo_forecasts_by_the_last_value_and_then_by_its_trend() -> None:
    assert dynamo.forecast([10.0, 20.0, 30.0, 40.0]) == 40.0
    assert dynamo.forecast([10.0, 20.0, 30.0, 40.0, 50.0]) == pytest.approx(60.0)
    assert dynamo.forecast([50.0, 40.0, 50.0, 40.0, 50.0]) == pytest.approx(40.0)
    assert dynamo.forecast([5.0] * 9) == 5.0


def test_dynamo_keeps_what_there_is_while_nothing_comes() -> None:
    assert planner().wanted(load(60.0, 3)) == 3
