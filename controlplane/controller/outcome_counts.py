"""Outcome counts: what queries came to at the gateways, as the room for chance follows it."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from variants.errors import (
    Cold,
    DeadlineExceeded,
    NoWorkers,
    Overloaded,
    ReplicaLost,
)

LOST = frozenset(
    error.code for error in (Overloaded, NoWorkers, Cold, DeadlineExceeded, ReplicaLost)
)
"""Errors for want of time or room: with more workers there would be fewer of them. Whoever asks for
what no variant could do, or asks wrongly, is none of those."""


class Outcomes(NamedTuple):
    """Queries that were answered in time, and those that were late or refused."""

    in_time: int = 0
    lost: int = 0


class OutcomeCounts:
    """Follows the reports of all gateways. A gateway counts from its second report on."""

    def __init__(self) -> None:
        self._before: dict[str, Outcomes] = {}

    def growth(self, reports: Mapping[str, Mapping[str, Any]]) -> Outcomes:
        """What has come to pass since the last call.

        A gateway that counts less than before, as where a task was removed, says nothing this time.

        Args:
            reports: what each gateway wrote last: ``tasks`` with the numbers of queries met, missed
                and refused since it started.
        """
        now = {id_: _counted(report) for id_, report in reports.items()}
        in_time = lost = 0
        for id_, found in now.items():
            before = self._before.get(id_, found)
            if found.in_time >= before.in_time and found.lost >= before.lost:
                in_time += found.in_time - before.in_time
                lost += found.lost - before.lost
        self._before = now
        return Outcomes(in_time, lost)


def _counted(report: Mapping[str, Any]) -> Outcomes:
    tasks = report.get("tasks", {}).values()
    return Outcomes(
        in_time=sum(task["met"] for task in tasks),
        lost=sum(
            task["missed"] + sum(n for code, n in task["errors"].items() if code in LOST)
            for task in tasks
        ),
    )
