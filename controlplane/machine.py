"""This machine: its device kinds, as the settings slice it, and the disks that are written."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from socket import gethostname

from controlplane.given_settings import grams_in
from controlplane.settings import Settings
from profiler.hardware_counters import PowerMeter, idle_watts, meter
from variants.catalog.protocol import Catalog
from variants.disk import DiskRoom, disk_rooms
from variants.types import DeviceKind


def machine_kinds(
    settings: Settings, power: Callable[[], PowerMeter | None] | None = None
) -> tuple[DeviceKind, ...]:
    """What models are measured on here: the kinds that local workers are.

    Where counters of energy can be read and nothing runs, the idle draw is watched for a second;
    of the machine's, a worker has the part that it has of its cores. That of a GPU is not watched:
    its worker may be at work.
    """
    carbon = grams_in(settings.carbon_g_per_kwh)
    told = bool(settings.idle_w) or all(kind.idle_w or kind.gpu for kind in settings.kinds)
    watts = None if told else _machine_idle_w(power or (lambda: meter()[0]))
    return tuple(
        DeviceKind(
            name=kind.name,
            cores=kind.cores,
            memory_mib=kind.memory_mib,
            usd_per_hour=kind.usd_per_hour,
            gpu=kind.gpu,
            idle_w=kind.idle_w
            or (settings.idle_w or _part(watts, kind.cores) if kind.gpu is None else None),
            carbon_g_per_kwh=carbon,
        )
        for kind in settings.kinds
    )


def kinds_to_register(settings: Settings) -> tuple[DeviceKind, ...]:
    """What a new model is measured on where it is registered.

    On a cluster that is the first kind without a GPU, for accuracy and to have a profile to begin
    with, and those with one. The control loop has the others measured where their workers run, and
    these again where the machines differ. Where all kinds have a GPU, this machine's cores are the
    first: a model is judged on them.
    """
    kinds = machine_kinds(settings)
    if not settings.ray_address:
        return kinds
    cpus = [kind for kind in kinds if kind.gpu is None] or machine_kinds(_without_gpus(settings))
    return (*cpus[:1], *(kind for kind in kinds if kind.gpu is not None))


def changed_kinds(
    known: Iterable[DeviceKind], here: Iterable[DeviceKind]
) -> tuple[DeviceKind, ...]:
    """The kinds of this machine that the catalog knows otherwise: another price, other memory.

    What is not known here any more, such as an idle draw, is as it was. A kind that the catalog
    does not know comes with its first profile.
    """
    before = {kind.name: kind for kind in known}
    return tuple(
        kind
        for kind in here
        if (old := before.get(kind.name)) is not None
        and replace(kind, idle_w=kind.idle_w or old.idle_w) != old
    )


def renew_kinds(catalog: Catalog, here: Iterable[DeviceKind]) -> tuple[DeviceKind, ...]:
    """Have the catalog know the kinds of this machine as they are set now.

    What a worker may take and what it costs is read from the catalog by whoever plans, chooses or
    refuses. Returns the kinds that differed.
    """
    changed = changed_kinds(catalog.snapshot().device_kinds, here)
    if changed:
        catalog.put_profiles((), changed)
    return changed


def rooms_here(settings: Settings) -> tuple[DiskRoom, ...]:
    """The room on the disks of this machine that are written: that of the state directory, and
    those of artifacts and of their copies where they are on others."""
    folders = {
        "state": settings.state_dir,
        "artifacts": settings.artifacts_dir,
        "copies": settings.copies_dir,
    }
    return disk_rooms(folders, gethostname())


def _without_gpus(settings: Settings) -> Settings:
    """One worker with all cores of this machine."""
    return settings.model_copy(update={"slices": "", "workers": 1, "cores": 0, "gpus": 0})


def _machine_idle_w(power: Callable[[], PowerMeter | None]) -> float | None:
    found = power()
    return None if found is None else idle_watts(found)


def _part(watts: float | None, cores: int) -> float | None:
    """A worker's part of what the machine draws."""
    return None if watts is None else watts * min(1.0, cores / (os.cpu_count() or 1))
