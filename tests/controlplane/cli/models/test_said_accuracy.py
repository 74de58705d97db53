"""The cell that says what clients say of a variant's answers, and whether queries go by it."""

from typing import Any

import pytest

from controlplane.cli.commands.models.variant_table import said_accuracy


@pytest.mark.parametrize(
    ("row", "cell"),
    [
        ({"live_accuracy": None, "live_accuracy_rows": 0, "counted_accuracy": None}, ""),
        ({"live_accuracy": 0.5, "live_accuracy_rows": 1_200}, "50.00 % of 1,200"),
        (
            {"live_accuracy": 0.5, "live_accuracy_rows": 40, "counted_accuracy": 0.5},
            "50.00 % of 40, counts",
        ),
        (
            {"live_accuracy": 0.5, "live_accuracy_rows": 40, "counted_accuracy": 0.45},
            "50.00 % of 40, 45.00 % counts",
        ),
        # What was said to gateways that have ended since.
        (
            {"live_accuracy": None, "live_accuracy_rows": 0, "counted_accuracy": 0.45},
            "45.00 % counts",
        ),
    ],
)
def test_it_says_what_clients_say_and_what_counts(row: dict[str, Any], cell: str) -> None:
    assert said_accuracy(row) == cell
