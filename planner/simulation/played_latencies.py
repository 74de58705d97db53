"""What devices play that policies are not told: other latencies than profiles say.

Each profile, a variant on a device kind, is off by a factor of its own, drawn once for a
simulation, and each batch by noise of its own. The noise is log-normal with a mean of 1, so that it
takes no capacity and gives none. A batch that comes after one of another variant takes longer by
the ``interference`` of its device kind, because that one's data are in the caches: on a device
whose variants take turns all batches do, as plans count, and on one that runs one variant none.
One that begins after a pause takes ``latency_pause`` times as long.
"""

from collections.abc import Callable
from dataclasses import replace
from math import exp
from typing import TYPE_CHECKING

from planner.reconcile.corrections.correction import profile_key
from planner.reconcile.live_profiles import scaled
from planner.simulation.setting import Setting
from planner.types import ProfileKey
from variants.types import CatalogSnapshot

if TYPE_CHECKING:
    from numpy.random import Generator

    from planner.simulation.fleet import Replica

DRAWS = 4_096
"""Normal deviates are drawn for so many batches at once, which is much quicker."""
PAUSE_MS = 1.0
"""What is no pause yet, as for workers (``planner.batching.live_costs.IDLE_MS``)."""
_FACTORS, _NOISE = 1, 2
"""Streams of random numbers beside the simulation's own, which stays as it is without errors."""

Played = Callable[["Replica", float], float]
"""How long a batch of a replica takes that should take so many ms by its profile, as it begins."""


def played_latencies(setting: Setting) -> Played | None:
    """What the devices of a setting play; None when profiles are right."""
    disturbed = any(kind.interference for kind in setting.kinds)
    if not (setting.latency_is_uncertain or disturbed):
        return None
    return _Played(setting)


def latency_factors(setting: Setting) -> dict[ProfileKey, float]:
    """The factor of each profile, between the two of ``setting.latency_error``, even in between.

    They depend on the seed and on which profiles there are, but not on their order.
    """
    import numpy as np

    low, high = setting.latency_error
    keys = sorted(profile_key(profile) for profile in setting.catalog.profiles)
    drawn = np.random.default_rng([setting.seed, _FACTORS]).uniform(low, high, len(keys))
    return dict(zip(keys, drawn.tolist(), strict=True))


def true_catalog(setting: Setting) -> CatalogSnapshot:
    """The catalog whose profiles say what the devices play, the noise aside: to bound what is
    possible."""
    if not setting.latency_is_uncertain:
        return setting.catalog
    factors = latency_factors(setting)
    profiles = [
        scaled(profile, factors[profile_key(profile)]) for profile in setting.catalog.profiles
    ]
    return replace(setting.catalog, profiles=tuple(profiles))


class _Played:
    def __init__(self, setting: Setting) -> None:
        import numpy as np

        self._factors = latency_factors(setting)
        self._sigma = setting.latency_noise
        self._pause = setting.latency_pause
        self._random: Generator = np.random.default_rng([setting.seed, _NOISE])
        self._noise: list[float] = []

    def __call__(self, replica: "Replica", run_ms: float) -> float:
        (task, variant), worker = replica.key, replica.worker
        run_ms *= self._factors[task, variant, worker.kind.name]
        if worker.ran_last != replica.key:
            if worker.ran_last is not None:
                run_ms *= 1.0 + worker.kind.interference
            worker.ran_last = replica.key
        if worker.idle_ms >= PAUSE_MS:
            run_ms *= self._pause
        if not self._sigma:
            return run_ms
        if not self._noise:
            self._noise = self._random.standard_normal(DRAWS).tolist()
        return run_ms * exp(self._sigma * self._noise.pop() - self._sigma**2 / 2)
