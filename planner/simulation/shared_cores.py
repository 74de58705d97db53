"""What batches take while workers of two layouts share the cores of one machine.

Workers of a new layout start beside the old ones, which go on until these have loaded. A batch that
begins while others run, on more cores together than the machine has, takes so many times as long:
each gets its part of the time, as the system schedules threads that all have work.
"""

from typing import TYPE_CHECKING

from planner.simulation.played_latencies import Played
from planner.simulation.setting import Setting, Split

if TYPE_CHECKING:
    from planner.simulation.fleet import Fleet, Replica


def on_shared_cores(setting: Setting, fleet: "Fleet", played: Played | None) -> Played | None:
    """What devices play, where they are slices of one machine that may be split in several ways."""
    return played if setting.split is None else _SharedCores(setting.split, fleet, played)


class _SharedCores:
    def __init__(self, split: Split, fleet: "Fleet", played: Played | None) -> None:
        self._cores = split.cores
        self._there = split.machine_cores
        self._fleet = fleet
        self._played = played

    def __call__(self, replica: "Replica", run_ms: float) -> float:
        if self._played is not None:
            run_ms = self._played(replica, run_ms)
        busy = sum(
            self._cores[worker.kind.name]
            for worker in self._fleet.workers.values()
            if worker.batch is not None or worker is replica.worker
        )
        return run_ms * max(1.0, busy / self._there) if self._there else run_ms
