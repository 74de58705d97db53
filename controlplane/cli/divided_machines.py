"""Machines that ``modelless plan solve`` may split in several ways."""

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
        try:
            slices = slices_of(text)
            self._layouts = layouts_of(text) or (
                {DeviceKindName(one.name): one.most for one in slices},
            )
        except ValueError as error:
            raise InvalidInput(f"--layouts: {error}") from error
        self._cores = {DeviceKindName(one.name): one.cores for one in slices}
        self._machines = machines
        self.split: Sequence[Mapping[DeviceKindName, int]] = ()
        if unknown := sorted(self._cores.keys() - {kind.name for kind in kinds}):
            raise InvalidInput(f"--layouts: {devices} has no device kind {unknown[0]}")

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
