"""What a profile, a device kind and a request to measure may be."""

import math
from itertools import pairwise

from variants.catalog.validity.plain_values import (
    check_count,
    check_name,
    check_number,
    check_storable,
)
from variants.errors import InvalidInput
from variants.types import DeviceKind, Profile, ProfileSource, ProfilingRequest

MAX_ERROR = 3.0
"""Largest standard deviation of a predicted latency's logarithm: a factor of 20 either way says
nothing any more."""

DAY_HOURS = 24
"""Values of a curve over a day."""


def check_device_kind(kind: DeviceKind) -> None:
    """Refuse a device kind without cores, memory or a price."""
    check_name(kind.name, "a device kind")
    where = f"device kind {kind.name!r}"
    check_count(kind.cores, f"the number of cores of {where}", least=0 if kind.gpu else 1)
    check_number(kind.memory_mib, f"the memory of {where}")
    check_number(kind.usd_per_hour, f"the price of {where}")
    if kind.gpu is not None:
        check_storable(kind.gpu, f"the GPU of {where}")
    if kind.idle_w is not None:
        check_number(kind.idle_w, f"the idle draw of {where}")
    if len(kind.carbon_g_per_kwh) not in (0, 1, DAY_HOURS):
        raise InvalidInput(
            f"the carbon of {where} has {len(kind.carbon_g_per_kwh)} numbers, not 1 or {DAY_HOURS}"
        )
    for grams in kind.carbon_g_per_kwh:
        check_number(grams, f"the carbon of {where}")


def check_profile(profile: Profile) -> None:
    """Refuse a profile whose points are missing, out of order or not positive and finite."""
    where = f"the profile of variant {profile.variant!r} on {profile.device_kind!r}"
    if not profile.points:
        raise InvalidInput(f"{where} has no points")
    for point in profile.points:
        check_count(point.batch_size, f"a batch size in {where}")
        quantiles = (point.p50_ms, point.p95_ms, point.p99_ms)
        at = f"batch size {point.batch_size}"
        if not all(math.isfinite(ms) and ms > 0 for ms in quantiles):
            shown = ", ".join(f"{ms:g}" for ms in quantiles)
            raise InvalidInput(
                f"{where} has latencies of {shown} ms at {at}; they must be positive and finite"
            )
        if list(quantiles) != sorted(quantiles):
            shown = ", ".join(f"{ms:g}" for ms in quantiles)
            raise InvalidInput(
                f"{where} has a p50, p95 and p99 of {shown} ms at {at}; they must ascend"
            )
        if not 0 <= point.error <= MAX_ERROR:
            raise InvalidInput(
                f"{where} has an error of {point.error:g} at {at}; it must be from 0 to"
                f" {MAX_ERROR:g}"
            )
        if point.energy_j is not None:
            check_number(point.energy_j, f"the energy at {at} in {where}")
    predicted = any(point.error for point in profile.points)
    if predicted and profile.source is ProfileSource.MEASURED:
        raise InvalidInput(f"{where} has predicted points, so it is not a measured one")
    if any(low.batch_size >= high.batch_size for low, high in pairwise(profile.points)):
        raise InvalidInput(f"{where} has batch sizes that do not ascend")
    check_number(profile.memory_mib, f"the memory in {where}")
    check_number(profile.load_s, f"the load time in {where}")
    for optional, what in (
        (profile.cold_load_s, "the cold load time"),
        (profile.host_memory_mib, "the host's memory"),
        (profile.energy_j, "the energy"),
        (profile.working_mib, "the working memory"),
    ):
        if optional is not None:
            check_number(optional, f"{what} in {where}")
    if (profile.working_mib or 0.0) > profile.memory_mib:
        raise InvalidInput(f"{where} has more working memory than memory")
    check_storable(profile.host, f"the host of {where}")
    check_storable(profile.measured_at, f"the time of {where}")
    check_storable(profile.measured_on, f"the machine of {where}")


def check_profiling_request(request: ProfilingRequest) -> None:
    """Refuse a request for a device kind that cannot be one, or with odd text."""
    check_name(request.device_kind, "a device kind")
    check_storable(request.reason, "the reason of a profiling request")
    check_storable(request.at, "the time of a profiling request")
