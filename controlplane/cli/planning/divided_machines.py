"""Machines that may be split in several ways, as ``modelless plan solve`` and ``simulate`` take
them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from controlplane.slices import layouts_of, slices_of
from planner.types import Objective
from variants.errors import InvalidInput
from variants.types import DeviceKindName

if TYPE_CHECKING:
    from planner.simulation.setting import Split
    from planner.solver.problem import AvailableKind, Planner, Problem, Solution


class Division:
    """Machines that may be split in several ways."""

    def __init__(
        self, text: str, machines: int, kinds: "Sequence[AvailableKind]", devices: Path
    ) -> None:
        """
        Raises:
            InvalidInput: the layouts cannot be read, or name a kind that is not in the file.
        """
        split = split_of(text, kinds, devices)
        self._layouts, self._cores = split.layouts, split.cores
        self._machines = machines
        self.split: Sequence[Mapping[DeviceKindName, int]] = ()

    def solved(
        self, problem: "Problem", planner: "Planner", objective: Objective
    ) -> "tuple[Problem, Solution]":
        """The best plan, and the problem with the devices that its division has."""
        from planner.layouts import solve_split

        solution, self.split = solve_split(
            problem, self._layouts, self._cores, self._machines, planner, objective
        )
        counts = Counter[DeviceKindName]()
        for one in self.split:
            counts.update(one)
        kinds = tuple(
            replace(kind, count=counts[kind.name]) if kind.name in self._cores else kind
            for kind in problem.kinds
        )
        return replace(problem, kinds=kinds), solution


def split_of(text: str, kinds: "Sequence[AvailableKind]", devices: Path) -> "Split":
    """The ways to split one machine.

    Args:
        kinds: those of the file with the devices.

    Raises:
        InvalidInput: the layouts cannot be read, or name a kind that is not in the file.
    """
    from planner.simulation.setting import Split

    try:
        slices = slices_of(text)
        layouts = layouts_of(text) or ({DeviceKindName(one.name): one.most for one in slices},)
    except ValueError as error:
        raise InvalidInput(f"--layouts: {error}") from error
    cores = {DeviceKindName(one.name): one.cores for one in slices}
    if not cores:
        raise InvalidInput("--layouts names no device kind")
    if unknown := sorted(cores.keys() - {kind.name for kind in kinds}):
        raise InvalidInput(f"--layouts: {devices} has no device kind {unknown[0]}")
    return Split(layouts=layouts, cores=cores)
