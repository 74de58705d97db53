"""Watching demand for Proteus and HADIS: smoothed by class, planned for anew when it has moved.

Policies that do not decide how many devices there are order all of them: ``whole_fleet``.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Protocol, TypeVar

from planner.simulation.fleet import Fleet
from planner.simulation.setting import Setting
from planner.types import Action, Scale

RISE, FALL = 0.7, 0.3
"""Weight of the last second in the smoothed demand, where it is above and where it is below."""
MARKED = 0.1
"""Part of the whole demand that classes have to move by."""

KeyT = TypeVar("KeyT", bound=Hashable)


class Watched(Protocol):
    """A class of queries: how many came since it was counted in, and the rate so far."""

    count: int
    qps: float


def count_in(classes: Iterable[Watched], elapsed_s: float) -> None:
    """Take what came in the last ``elapsed_s`` seconds into the rates."""
    for found in classes:
        more_qps = found.count / elapsed_s - found.qps
        found.qps += (RISE if more_qps > 0 else FALL) * more_qps
        found.count = 0


def has_moved(qps: Mapping[KeyT, float], planned: Mapping[KeyT, float]) -> bool:
    """Whether rates differ markedly from those that were planned for."""
    moved = sum(abs(qps.get(key, 0.0) - planned.get(key, 0.0)) for key in {**qps, **planned})
    return moved > MARKED * sum(planned.values())


def whole_fleet(setting: Setting, fleet: Fleet) -> list[Action]:
    """Orders for every device that an elastic setting allows and that is not there."""
    if not setting.fleet_is_elastic:
        return []
    return [
        Scale(device_kind=kind.name, count=kind.count)
        for kind in setting.kinds
        if fleet.count(kind.name) < kind.count
    ]
