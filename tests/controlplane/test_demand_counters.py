"""Names of demand counters: what a gateway writes is what the control loop reads."""

import pytest

from controlplane.demand_counters import counter_name, parse_counter_name
from variants.types import TaskName, VariantName

TASK = TaskName("digits")


@pytest.mark.parametrize(
    ("floor", "variant", "name", "parsed"),
    [
        (None, None, "digits|50.0|", (TASK, 50.0, None, None)),
        (0.85, None, "digits|50.0|0.9", (TASK, 50.0, 0.9, None)),
        (0.95, None, "digits|50.0|1.0", (TASK, 50.0, 1.0, None)),
        (0.85, VariantName("a"), "digits|50.0|@a", (TASK, 50.0, None, VariantName("a"))),
    ],
)
def test_an_slo_is_counted_as_its_class(
    floor: float | None, variant: VariantName | None, name: str, parsed: object
) -> None:
    assert counter_name(TASK, 60.0, floor, [0.9, 0.8], variant) == name
    assert parse_counter_name(name) == parsed


@pytest.mark.parametrize("name", ["", "digits", "digits|soon|", "digits|50.0|high", "a|1.0||"])
def test_a_name_of_another_form_is_none(name: str) -> None:
    assert parse_counter_name(name) is None
