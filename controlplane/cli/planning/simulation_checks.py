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
    """Whether a sample can say what is asked for; ``beyond``: bounds or peaks are.

    Raises:
        InvalidInput: it cannot.
    """
    if names != [OURS]:
        raise InvalidInput(f"--approximate plays the policy {OURS} only: leave --policy out")
    if instant:
        raise InvalidInput("--approximate needs time, of which --instant leaves none")
    if not tick_s.is_integer():
        raise InvalidInput(f"--approximate needs whole seconds for --tick-s, not {tick_s:g}")
    if objective is Objective.ENERGY:
        raise InvalidInput("--approximate counts no energy: give another --objective")
    if beyond:
        raise InvalidInput("--approximate goes with neither --bound nor --peaks")


def check_gateways(
    names: Sequence[str], count: int, *, tasks_stay: bool, others: Sequence[bool]
) -> None:
    """Whether so many gateways can be played; ``others``: options that go with one alone are given.

    Raises:
        InvalidInput: they cannot.
    """
    if not 1 <= count <= MOST_GATEWAYS:
        raise InvalidInput(f"--gateways must be from 1 to {MOST_GATEWAYS}, not {count}")
    if count == 1:
        if tasks_stay:
            raise InvalidInput(f"--tasks-stay is for several gateways, and --gateways is {count}")
    elif names != [OURS] or any(others):
        raise InvalidInput(
            f"--gateways plays the policy {OURS} only, and goes with neither --instant nor"
            " --approximate"
        )


def check_layouts(names: Sequence[str], *, others: Sequence[bool]) -> None:
    """Whether layouts can be played; ``others``: options that do not go with them are given.

    Raises:
        InvalidInput: they cannot.
    """
    if names != [OURS] or any(others):
        raise InvalidInput(
            f"--layouts plays the policy {OURS} only, and goes with none of --instant,"
            " --fixed-fleet, --approximate and --bound"
        )
