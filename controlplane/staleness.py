"""Whether profiles of this machine's device kind still say how it is."""

from functools import cache

from controlplane.frontier import Changed
from profiler.host import LIBRARIES, fingerprint, gpu_and_driver, is_stale
from variants.types import DeviceKindName, Profile, ProfileSource, Variant


def host_of(variant: Variant) -> str:
    """What a variant runs on here: a fingerprint."""
    return _host(variant.runtime, variant.gpu)


@cache
def _host(runtime: str, gpu: bool) -> str:
    """A process keeps the libraries that it has imported."""
    name, driver = gpu_and_driver() if gpu else ("", "")
    return fingerprint(*LIBRARIES.get(runtime, ()), gpu=name, driver=driver)


def changed_on(kind: DeviceKindName) -> Changed:
    """What has changed on this machine, which is of that kind; of other kinds nothing is known."""

    def changed(variant: Variant, profile: Profile) -> str | None:
        if profile.device_kind != kind or profile.source is ProfileSource.EXACT:
            return None
        return is_stale(profile.host, host_of(variant))

    return changed
