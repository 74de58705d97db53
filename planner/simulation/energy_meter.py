"""What simulated devices take of energy: joules of their batches, and idle draw in between.

A batch takes what its profile says, and a device its idle draw for as long as it is billed and runs
nothing. A batch counts in the hour of the day in which it ends; the simulation begins at midnight.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import fsum

from planner.energy import DAY_HOURS, HOUR_S, J_PER_KWH, carbon_at, hour_of
from planner.simulation.fleet import Replica, Worker
from planner.simulation.results import EnergyUse
from planner.solver.problem import AvailableKind
from variants.types import CatalogSnapshot, DeviceKindName

HOUR_MS = 1_000.0 * HOUR_S


class EnergyMeter:
    """Counts joules by device kind and hour of the day."""

    def __init__(self) -> None:
        self._work_j: dict[tuple[DeviceKindName, int], float] = defaultdict(float)
        self._busy_ms: dict[tuple[DeviceKindName, int], float] = defaultdict(float)
        self._unmeasured = 0

    def ran(self, replica: Replica, rows: int, now_ms: float, run_ms: float) -> None:
        """A batch is done."""
        at = (replica.worker.kind.name, hour_of(now_ms / 1_000))
        self._busy_ms[at] += run_ms
        energy = replica.candidate.energy
        if energy is None:
            self._unmeasured += rows
        else:
            self._work_j[at] += energy.joules(rows)

    def use(self, workers: Sequence[Worker], end_ms: float, least_billed_ms: float) -> EnergyUse:
        """What it came to.

        Args:
            workers: every device that was ever billed.
            least_billed_ms: as long as one is billed at least; it draws its idle power meanwhile.
        """
        billed_ms: dict[tuple[DeviceKindName, int], float] = defaultdict(float)
        kinds: dict[DeviceKindName, AvailableKind] = {}
        for worker in workers:
            kinds[worker.kind.name] = worker.kind
            ends_ms = end_ms if worker.released_ms is None else worker.released_ms
            ends_ms = max(ends_ms, worker.ordered_ms + least_billed_ms)
            for hour, ms in _hours(worker.ordered_ms, ends_ms):
                billed_ms[worker.kind.name, hour] += ms
        idle_j = {
            at: (kinds[at[0]].idle_w or 0.0) * max(0.0, ms - self._busy_ms.get(at, 0.0)) / 1_000
            for at, ms in billed_ms.items()
        }
        idle_known = all(kind.idle_w is not None for kind in kinds.values())
        known = idle_known and not self._unmeasured
        carbon = {name: kind.carbon_g_per_kwh for name, kind in kinds.items()}
        grams = fsum(
            joules / J_PER_KWH * (carbon_at(carbon[name], hour) or 0.0)
            for drawn in (idle_j, self._work_j)
            for (name, hour), joules in drawn.items()
        )
        return EnergyUse(
            energy_j=fsum((*idle_j.values(), *self._work_j.values())) if known else None,
            idle_energy_j=fsum(idle_j.values()) if idle_known else None,
            carbon_g=grams if known and all(carbon.values()) else None,
            energy_unmeasured=self._unmeasured,
        )


def meter_of(catalog: CatalogSnapshot) -> EnergyMeter | None:
    """A meter where anything is known of energy; None where counting would be of no use."""
    known = any(kind.idle_w is not None for kind in catalog.device_kinds) or any(
        point.energy_j is not None for profile in catalog.profiles for point in profile.points
    )
    return EnergyMeter() if known else None


def _hours(start_ms: float, end_ms: float) -> Iterable[tuple[int, float]]:
    """The hours of the day that a time goes through, and how long it is in each."""
    days, rest_ms = divmod(max(0.0, end_ms - start_ms), DAY_HOURS * HOUR_MS)
    for hour in range(DAY_HOURS) if days else ():
        yield hour, days * HOUR_MS
    at_ms, last_ms = start_ms, start_ms + rest_ms
    while at_ms < last_ms:
        next_ms = min(last_ms, (at_ms // HOUR_MS + 1) * HOUR_MS)
        yield hour_of(at_ms / 1_000), next_ms - at_ms
        at_ms = next_ms
