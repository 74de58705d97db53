"""HADIS: the table of configurations, and who gets the heavy variant."""

import pytest

from planner.policies.published.hadis import _need, _tier
from planner.policies.published.hadis_table import Configuration, best, table
from planner.simulate import simulate
from tests.contracts.test_policy import steady
from tests.planner.policies.published.builders import DIGITS, candidate, kind
from tests.planner.simulation.builders import Model, setting
from variants.types import VariantName

QUICK = candidate("quick", 0.7, 10.0)
MIDDLE = candidate("middle", 0.72, 30.0)
GOOD = candidate("good", 0.9, 40.0)
LATE = candidate("late", 0.99, 500.0)
"""100 and 25 queries per second on a device."""


def test_the_table_has_what_no_other_configuration_beats() -> None:
    """The middle one is not worth its time, and the late one no device answers in time."""
    found = table([QUICK, MIDDLE, GOOD, LATE], 200.0, [kind(1)])
    assert {(c.light, c.heavy) for c in found if 0.0 < c.part < 1.0} == {("quick", "good")}
    assert [c.work for c in found] == sorted(c.work for c in found)
    assert [found[0].quality, found[0].work] == pytest.approx([0.7, 0.01])
    assert [found[-1].quality, found[-1].work] == pytest.approx([0.9, 0.04])
    assert len(found) == 11


def test_twice_the_devices_take_half_of_the_work() -> None:
    one, two = (table([QUICK], 200.0, [kind(n)]) for n in (1, 2))
    assert one[0].work == pytest.approx(2 * two[0].work)


def configuration(work: float, quality: float) -> Configuration:
    name = VariantName(str(quality))
    return Configuration(light=name, heavy=name, part=0.0, work=work, quality=quality)


def test_the_next_step_goes_to_who_gains_most_for_its_time() -> None:
    tables = {
        "a": [configuration(0.01, 0.7), configuration(0.02, 0.9)],
        "b": [configuration(0.01, 0.7), configuration(0.02, 0.8), configuration(0.03, 0.85)],
    }
    qps = {"a": 10.0, "b": 10.0}

    def quality(budget: float) -> tuple[float, float]:
        found = best(tables, qps, budget)
        return found["a"].quality, found["b"].quality

    assert quality(0.1) == (0.7, 0.7)  # even where that does not fit
    assert quality(0.31) == (0.9, 0.7)
    assert quality(0.41) == (0.9, 0.8)
    assert quality(1.0) == (0.9, 0.85)


def test_a_tier_is_a_task_and_a_variant() -> None:
    tier = (DIGITS, VariantName("good"))
    need = _need(tier, 5.0, 200.0, [GOOD])
    assert _tier(need.task) == tier
    assert list(need.unit_ms.values()) == [pytest.approx(40.0)]


@pytest.mark.parametrize(
    ("qps", "least", "most"),
    [(5, 0.9, 0.9), (40, 0.72, 0.82), (65, 0.7, 0.72)],
)
def test_more_load_means_fewer_heavy_answers(qps: int, least: float, most: float) -> None:
    """One device: at 5 per second all answers are heavy (0.2 of its time), at 40 about a third.

    With 1.2 times 40, (1 - p) x 0.01 + p x 0.04 = 1 / 48 gives p = 0.36: 0.77.
    """
    models = (
        Model(name="quick", latency_ms=10.0, accuracy=0.7, load_s=0.1),
        Model(name="good", latency_ms=40.0, accuracy=0.9, load_s=0.1),
    )
    report = simulate(setting(*models), steady(qps, 60, latency_ms=200.0), "hadis",
                      clock=lambda: 0.0)  # fmt: skip
    after = [each for each in report.timeline if each.start_s >= 10]
    accuracy = sum(e.accuracy * e.in_time for e in after) / sum(e.in_time for e in after)
    assert least - 1e-9 <= accuracy <= most + 1e-9
    assert sum(e.in_time for e in after) >= 0.95 * sum(e.arrived for e in after)
