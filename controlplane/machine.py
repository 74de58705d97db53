"""The device kinds of this machine, as the settings slice it."""

from controlplane.settings import Settings
from variants.types import DeviceKind, DeviceKindName


def machine_kinds(settings: Settings) -> tuple[DeviceKind, ...]:
    """What models are measured on here: the kind that each local worker is."""
    return (
        DeviceKind(
            name=DeviceKindName(settings.device_kind),
            cores=settings.worker_cores,
            memory_mib=settings.memory_mib,
            usd_per_hour=settings.usd_per_hour,
        ),
    )
