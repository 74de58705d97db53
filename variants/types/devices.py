"""Device kinds: the hardware that one worker owns."""

from dataclasses import dataclass

from variants.types.names import DeviceKindName


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKind:
    """The shape of a slice of hardware, as one worker owns it."""

    name: DeviceKindName
    cores: int
    memory_mib: float
    """Memory that variants may take together on one worker of this kind."""
    usd_per_hour: float
    gpu: str | None = None
    idle_w: float | None = None
    """Watts of one worker while nothing runs on it; None where that is not known."""
    carbon_g_per_kwh: tuple[float, ...] = ()
    """Grams of CO2 for a kWh where it stands: one number, or 24 for the hours of the day in UTC.
    Empty where that is not known."""
