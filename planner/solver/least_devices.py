"""How many devices of a kind some rates need at least, whatever way they are packed.

All that they take fits into the time and the memory of the devices, and what a filled device leaves
unused is of no use to the others. Where variants slow one another, what a variant takes beside
others counts by so much more. Only what it has devices alone for does not: of a time t alone, as
much as fills whole devices, and of the rest what would no longer fit one beside others.
"""

from collections.abc import Mapping
from math import ceil, fsum, inf

from planner.solver.capacity import SLACK
from planner.solver.device import ROUNDING, Device
from planner.solver.options import Options

INEXACT = 1e-4
"""Devices by which rounding, and rates too small to be placed, may lower what is needed."""


class LeastDevices:
    """The number for some rates while devices are filled with them.

    Args:
        rates: per option of the kind, in queries per second.
    """

    __slots__ = ("_held", "_memory_mib", "_needs", "_room_mib", "_slower", "_time", "_whole")

    def __init__(self, options: Options, kind: int, rates: Mapping[int, float]) -> None:
        self._needs = options.needs
        self._whole = options.problem.load * (1 + ROUNDING)
        self._slower = options.slowdown(kind, 2)
        self._room_mib = options.problem.kinds[kind].memory_mib * (1 + SLACK)
        self._held: set[int] = set()
        """Offers on devices that are filled."""
        memory: dict[int, float] = {}
        times: dict[int, float] = {}
        for index, rate in rates.items():
            offer, memory[offer], alone, _, _, _ = self._needs[index]
            times[offer] = times.get(offer, 0.0) + rate * alone.unit_ms / 1_000
        self._time = fsum(
            [
                time - time % self._whole + self._shared(time % self._whole)
                for time in times.values()
            ]
        )
        """Of all devices: what rates take, and what filled ones leave unused."""
        self._memory_mib = fsum(memory.values())
        """Memory of all devices: what rates take, and what filled ones leave unused."""

    @property
    def devices(self) -> int:
        """The filled ones included."""
        least = self._time / self._whole
        if 0.0 < self._room_mib < inf:
            least = max(least, self._memory_mib / self._room_mib)
        return ceil(least * (1 - INEXACT**2) - INEXACT)

    def filled(self, device: Device) -> None:
        """Nothing is added to a device any more."""
        used = self._whole - device.left
        self._time += self._whole - (self._shared(used) if len(device.offers) == 1 else used)
        held = {self._needs[index][0]: self._needs[index][1] for index in device.parts}
        again_mib = sum([mib for offer, mib in held.items() if offer in self._held])
        self._memory_mib += device.memory_mib + again_mib
        self._held.update(held)

    def _shared(self, time: float) -> float:
        """What may be alone on a device, counted as if it were not, as far as a device has time."""
        return min(time * self._slower, self._whole)
