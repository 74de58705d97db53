"""What of ``modelless simulate`` does not go together."""

from collections.abc import Sequence

from planner.simulation.setting import MOST_GATEWAYS
from planner.types import Objective
from variants.errors import InvalidInput

OURS = "modelless"
"""The policy that can be played by a sample, with layouts and with several gateways."""


def check_approximation(
    names: Sequence[str], objective: Objective, tick_s: float, *, instant: bool, beyond: bool
) -> None:
    """Whether a sample can say what is asked for; ``beyond``: bounds or peaks are."""
    if names != [OURS]:
        raise InvalidInput(f"--approximate plays the policy {OURS} only")
    if instant or not tick_s.is_integer():
        raise InvalidInput("--approximate needs time, and whole seconds for --tick-s")
    if objective is Objective.ENERGY:
        raise InvalidInput("--approximate counts no energy")
    if beyond:
        raise InvalidInput("--approximate knows neither --bound nor --peaks")


def check_gateways(
    names: Sequence[str], count: int, *, tasks_stay: bool, others: Sequence[bool]
) -> None:
    if not 1 <= count <= MOST_GATEWAYS:
        raise InvalidInput(f"--gateways {count} is not from 1 to {MOST_GATEWAYS}")
    if count == 1:
        if tasks_stay:
            raise InvalidInput("--tasks-stay needs --gateways, two or more")
    elif names != [OURS] or any(others):
        raise InvalidInput(
            f"--gateways plays the policy {OURS} only, and goes with neither --instant nor"
            " --approximate"
        )


def check_layouts(names: Sequence[str], *, others: Sequence[bool]) -> None:
    if names != [OURS] or any(others):
        raise InvalidInput(
            f"--layouts plays the policy {OURS} only, and goes with none of --instant,"
            " --fixed-fleet, --approximate and --bound"
        )
