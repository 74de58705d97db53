"""How many workers Ray Serve is told to run, of those that an operator asks for.

Serve makes an actor of each at once, which waits until there is room. Each costs Serve's controller
200 KiB, which it never gives back: told to run 10,000 workers on two cores, it took 2 GB.
"""

from collections.abc import Mapping

from controlplane.settings import Settings
from variants.types import DeviceKindName

AHEAD = 1_000
"""Of a kind of a cluster, Serve is told of so many more than are there; of others as these come."""
BEYOND = 8
"""Of a kind of one machine, Serve is told of so many more than have room: what it says of them is
what status and events show."""


def startable(
    wanted: Mapping[DeviceKindName, int],
    there: Mapping[DeviceKindName, int],
    settings: Settings,
) -> dict[DeviceKindName, int]:
    """The numbers of workers wanted, as far as they could start now.

    Args:
        there: how many of each kind are connected.
    """
    if settings.ray_address:
        return {kind: min(count, there.get(kind, 0) + AHEAD) for kind, count in wanted.items()}
    fits = {
        kind.name: settings.all_gpus
        if kind.gpu is not None
        else settings.all_cores // max(kind.cores, 1)
        for kind in settings.kinds
    }
    return {kind: min(count, fits.get(kind, 0) + BEYOND) for kind, count in wanted.items()}
