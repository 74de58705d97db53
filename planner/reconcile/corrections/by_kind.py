"""What the variants of a device kind that run show of those that do not.

What else computes on a machine slows all variants alike, and what a pause costs is a matter of the
machine as well; only those that run show it.
"""

from collections.abc import Mapping

from planner.reconcile.corrections.correction import ENOUGH, NOTICED, Correction, profile_key
from planner.reconcile.live_profiles import machine_ratio, pause_shown
from planner.rhythms.shared_pause import Pause, shared_pause
from planner.rhythms.shared_slowness import Slowness, shared_slowness
from planner.types import ProfileKey
from variants.types import CatalogSnapshot, DeviceKindName

Known = Mapping[ProfileKey, Correction]
"""The corrections that there are."""


class SharedSlowness:
    """How slow what runs says that each kind is, as plans count it for what does not run."""

    def __init__(self) -> None:
        self._of: dict[DeviceKindName, Slowness] = {}

    def of(self, kind: DeviceKindName) -> Slowness | None:
        """As it is counted with; None where nothing that runs says it."""
        return self._of.get(kind)

    def find(self, catalog: CatalogSnapshot, known: Known) -> None:
        """Take in what runs now; what is counted with moves only if it has moved far enough."""
        shown: dict[DeviceKindName, list[tuple[float, float]]] = {}
        for profile in catalog.profiles:
            one = known.get(profile_key(profile))
            if one is not None and one.used_busy and one.runs:
                shown.setdefault(profile.device_kind, []).append(
                    machine_ratio(profile, one.used_busy)
                )
        before, self._of = self._of, {}
        for kind, said in shown.items():
            now = shared_slowness(said)
            if now is None:
                continue
            used = before.get(kind)
            same = used is not None and abs(now.ratio - used.ratio) <= NOTICED.typical
            self._of[kind] = used if used is not None and same else now


class SharedPauses:
    """What pauses cost on each kind, as queries count it for what does not run."""

    def __init__(self) -> None:
        self._of: dict[DeviceKindName, Pause] = {}
        self._found_with: CatalogSnapshot | None = None
        """The catalog of the last look; None where workers have said something since."""

    def of(self, kind: DeviceKindName) -> Pause | None:
        """As it is counted with; None where nothing has shown it."""
        return self._of.get(kind)

    def look_again(self) -> None:
        """Workers have said something new."""
        self._found_with = None

    def find(self, catalog: CatalogSnapshot, known: Known) -> bool:
        """Take in what is shown now; whether what is counted with has changed.

        Those that run show it, and where none does, those that did. What is counted with moves only
        if it has moved far enough. Nothing is done for the catalog of the last look.
        """
        if self._found_with is catalog:
            return False
        self._found_with = catalog
        shown: dict[DeviceKindName, list[tuple[float, float]]] = {}
        shown_once: dict[DeviceKindName, list[tuple[float, float]]] = {}
        for profile in catalog.profiles:
            one = known.get(profile_key(profile))
            if one is None or one.batches < ENOUGH or not (one.used and one.used_busy):
                continue
            said = pause_shown(profile, one.used, one.used_busy)
            if said is not None:
                (shown if one.runs else shown_once).setdefault(profile.device_kind, []).append(said)
        before, self._of = self._of, {}
        for kind, some in (shown_once | shown).items():
            now = shared_pause(some)
            if now is not None:
                used = before.get(kind)
                self._of[kind] = used if used is not None and now.is_near(used) else now
        return self._of != before
