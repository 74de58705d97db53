"""What fleets of a fixed size violate at least."""

import pytest

from tests.bench.simulation.regret.fleets import after, violated, violated_by
from tests.planner.simulation.builders import Asked, Model, setting, trace


def test_half_of_the_fleet_that_is_needed_leaves_out_half() -> None:
    """Of two hundred queries at once, of 10 ms each, one device does a hundred in their second."""
    asked = trace(Asked(1.0, 100.0), *(Asked(20.0, 1_000.0) for _ in range(200)))
    given = setting(Model(latency_ms=10.0))
    kind = given.kinds[0]

    found = violated(given, after(asked, 10.0), kind.name, (1, 2, 3))

    each = kind.usd_per_hour
    assert [usd for usd, _ in found] == pytest.approx([each, 2 * each, 3 * each])
    assert [part for _, part in found] == pytest.approx([0.5, 0.0, 0.0], abs=0.01)


def test_what_a_policy_violates_is_counted_once_it_knows_the_workload() -> None:
    """Fifty queries in the first minute have no time; of two hundred at once later, one device
    does a hundred in their second."""
    asked = trace(
        *(Asked(20.0, 5.0) for _ in range(50)), *(Asked(70.0, 1_000.0) for _ in range(200))
    )
    given = setting(Model(latency_ms=10.0))

    few, enough = violated_by("static-cheapest", given, asked, given.kinds[0].name, (1, 3))

    assert few == pytest.approx(0.5, abs=0.01)
    assert enough == 0.0
