"""The device kinds of this machine, as the settings slice it."""

import os
from collections.abc import Callable

from controlplane.settings import PREFIX, Settings
from profiler.hardware_counters import PowerMeter, idle_watts, meter
from variants.errors import InvalidInput
from variants.types import DeviceKind, DeviceKindName


def machine_kinds(
    settings: Settings, power: Callable[[], PowerMeter | None] | None = None
) -> tuple[DeviceKind, ...]:
    """What models are measured on here: the kind that each local worker is.

    Where counters of energy can be read and nothing runs, the idle draw is watched for a second;
    of the machine's, a worker has the part that it has of its cores.

    Raises:
        InvalidInput: the setting of what a kWh emits cannot be read.
    """
    return (
        DeviceKind(
            name=DeviceKindName(settings.device_kind),
            cores=settings.worker_cores,
            memory_mib=settings.memory_mib,
            usd_per_hour=settings.usd_per_hour,
            idle_w=settings.idle_w or _idle_w(settings, power or (lambda: meter()[0])),
            carbon_g_per_kwh=_carbon(settings.carbon_g_per_kwh),
        ),
    )


def _idle_w(settings: Settings, power: Callable[[], PowerMeter | None]) -> float | None:
    found = power()
    watts = None if found is None else idle_watts(found)
    share = min(1.0, settings.worker_cores / (os.cpu_count() or 1))
    return None if watts is None else watts * share


def _carbon(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split())
    except ValueError:
        raise InvalidInput(
            f"setting {PREFIX}CARBON_G_PER_KWH: {text[:40]!r} holds something else than numbers"
        ) from None
