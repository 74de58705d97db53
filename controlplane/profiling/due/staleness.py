"""Whether profiles of this machine's device kind still say how it is."""

from collections.abc import Collection
from functools import cache

from controlplane.views.catalog.variants import Changed
from profiler.fingerprint import fingerprint, gpu_and_driver, is_stale
from variants.types import DeviceKindName, Profile, ProfileSource, Variant
from workers.runtimes.registry import libraries_of

BackEnd = tuple[str, bool]
"""What a variant runs by: its runtime, and whether that is on a GPU."""


def host_of(variant: Variant) -> str:
    """The fingerprint of what a variant runs on here."""
    return host_with(variant.runtime, variant.gpu)


@cache
def host_with(runtime: str, gpu: bool) -> str:
    """The fingerprint of a back end here.

    Cached, because a process keeps the libraries that it has imported.
    """
    name, driver = gpu_and_driver() if gpu else ("", "")
    return fingerprint(*libraries_of(runtime), gpu=name, driver=driver)


def changed_on(kinds: Collection[DeviceKindName]) -> Changed:
    """A function that says what has changed on this machine, which is of these kinds; for profiles
    on other kinds it returns None, because nothing is known of them."""

    def changed(variant: Variant, profile: Profile) -> str | None:
        if profile.device_kind not in kinds or profile.source is ProfileSource.EXACT:
            return None
        return is_stale(profile.host, host_of(variant))

    return changed
