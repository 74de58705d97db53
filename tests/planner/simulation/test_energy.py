"""What simulated devices take of energy, and plans that take less of it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from planner.simulate import simulate
from planner.simulation.results import EnergyUse, Report
from planner.simulation.setting import Setting
from planner.types import Objective
from tests.planner.simulation.builders import Asked, Model, about, setting, trace

NIGHT_AND_DAY = (100.0,) + (400.0,) * 23
"""Grams of CO2 for a kWh by the hour: clean in the first one."""


def drawing(known: Setting, idle_w: float | None, carbon: Sequence[float] = ()) -> Setting:
    """The same devices, with an idle draw and what their energy emits."""
    [kind], [available] = known.catalog.device_kinds, known.kinds
    emits = tuple(carbon)
    drawn = replace(kind, idle_w=idle_w, carbon_g_per_kwh=emits)
    return replace(
        known,
        catalog=replace(known.catalog, device_kinds=(drawn,)),
        kinds=(replace(available, idle_w=idle_w, carbon_g_per_kwh=emits),),
    )


def played(known: Setting, *rows: Asked, policy: str = "modelless") -> Report:
    return simulate(known, trace(*rows), policy, clock=lambda: 0.0)


def energy(known: Setting, *rows: Asked) -> EnergyUse:
    found = played(known, *rows).energy
    assert found is not None
    return found


def joules(report: Report) -> float:
    assert report.energy is not None
    assert report.energy.energy_j is not None
    return report.energy.energy_j


TEN = [Asked(20.0 + second) for second in range(10)]
"""Answered within 29.01 s, each 10 ms after it came."""


def test_batches_take_their_joules_and_the_rest_is_idle_draw() -> None:
    found = energy(drawing(setting(Model(energy_j=2.0)), 10.0), *TEN)

    assert found == EnergyUse(
        energy_j=about(10 * 2.0 + 10.0 * (29.01 - 10 * 0.01)),
        idle_energy_j=about(10.0 * (29.01 - 10 * 0.01)),
        carbon_g=None,
        energy_unmeasured=0,
    )


def test_what_was_not_measured_leaves_the_sum_unknown() -> None:
    without = energy(drawing(setting(Model()), 10.0), *TEN)
    no_idle = energy(setting(Model(energy_j=2.0)), *TEN)

    assert (without.energy_j, without.energy_unmeasured) == (None, 10)
    assert without.idle_energy_j == about(10.0 * 28.91)
    assert (no_idle.energy_j, no_idle.idle_energy_j) == (None, None)
    assert played(setting(Model()), *TEN).energy is None


def test_grams_are_of_the_hour_in_which_energy_is_taken() -> None:
    """Idle for an hour at 100 g and for a minute at 400 g, 10 W each; a batch of 36 J there."""
    found = energy(
        drawing(setting(Model(energy_j=36.0)), 10.0, NIGHT_AND_DAY), Asked(3_660.0 - 0.01)
    )

    idle_wh = (10.0 * 100.0 + 10.0 / 60.0 * 400.0) / 1_000 - 10.0 * 0.01 / 3_600 * 400.0 / 1_000
    assert found.carbon_g == about(idle_wh + 36.0 / 3.6e6 * 400.0)


@pytest.mark.parametrize(("objective", "chosen"), [(Objective.COST, 0.7), (Objective.ENERGY, 0.9)])
def test_least_energy_is_not_least_cost(objective: Objective, chosen: float) -> None:
    """The quicker and so cheaper variant takes more joules."""
    models = (
        Model(name="quick", accuracy=0.7, latency_ms=10.0, energy_j=3.0),
        Model(name="frugal", accuracy=0.9, latency_ms=15.0, energy_j=1.0),
    )
    known = replace(drawing(setting(*models, objective=objective), 10.0), elastic=False)

    found = played(known, *[Asked(20.0 + tenth / 10) for tenth in range(600)])

    assert found.violation_ratio == 0.0
    assert found.effective_accuracy == about(chosen)


@pytest.mark.campaign
def test_devices_that_are_not_needed_go_under_energy_too() -> None:
    """In twenty minutes: more of them, each time that the time watched has doubled."""
    known = drawing(setting(Model(energy_j=1.0), devices=8, objective=Objective.ENERGY), 50.0)
    asked = [Asked(second / 2) for second in range(2_400)]

    elastic, fixed = played(known, *asked), played(replace(known, elastic=False), *asked)

    assert joules(elastic) < 0.75 * joules(fixed)


def test_without_any_measured_energy_it_is_as_by_cost() -> None:
    models = (
        Model(name="quick", accuracy=0.7, latency_ms=10.0),
        Model(name="slow", accuracy=0.9, latency_ms=15.0),
    )
    asked = [Asked(20.0 + tenth / 10) for tenth in range(300)]

    by_energy = played(setting(*models, objective=Objective.ENERGY), *asked)
    by_cost = played(setting(*models, objective=Objective.COST), *asked)

    assert by_energy == by_cost
