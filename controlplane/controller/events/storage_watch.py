"""Whether what has to be kept can be written, look by look: what ``views.storage_status`` judges.

While nothing can be written its events wait in the journal, with the time at which they began.
"""

from collections.abc import Iterable, Iterator

from controlplane.controller.events.status_events import StatusEvent
from controlplane.views.storage_status import LIVE_STATE_SLOW, nearly_full, room_words
from variants.disk import DiskRoom

PATIENCE_S = 5.0
"""A write that fails once, because another one takes long, is no news."""
ENOUGH = 1.2
"""So many times as much has to be free for the end as for the beginning: a disk that hovers at the
bound is told once."""


class StorageWatch:
    """What was told of disks and of the catalog. Times are on one clock."""

    def __init__(self) -> None:
        self._full: set[tuple[str, str]] = set()
        """Host and folder of the disks that are nearly full."""
        self._since_s: float | None = None
        self._told = False
        self._slow_since_s: dict[str, float] = {}
        """What takes long to answer, and since when."""

    def rooms(self, rooms: Iterable[DiskRoom]) -> Iterator[StatusEvent]:
        """The disks as they are now."""
        for room in rooms:
            disk = (room.host, room.folder)
            if disk in self._full:
                if not nearly_full(room, ENOUGH):
                    self._full.discard(disk)
                    yield "disk_has_room", room.of, f"{room_words(room)} again"
            elif nearly_full(room):
                self._full.add(disk)
                yield "disk_nearly_full", room.of, f"{room_words(room)}: free some space"

    def written(self, why_not: str, now_s: float) -> Iterator[StatusEvent]:
        """The last attempt to write the catalog; ``why_not`` is empty where it went well."""
        if why_not and self._since_s is None:
            self._since_s = now_s
        if why_not and not self._told and now_s - (self._since_s or 0.0) >= PATIENCE_S:
            self._told = True
            goes_on = "queries go on, and what has to be kept waits in memory"
            yield "catalog_unwritable", "catalog", f"{why_not.rstrip('.')}; {goes_on}"
        if not why_not:
            since_s, self._since_s = self._since_s, None
            if self._told and since_s is not None:
                self._told = False
                words = f"it can be written again after {now_s - since_s:,.0f} s"
                yield "catalog_writable", "catalog", words

    def answered(self, slow_ms: float, now_s: float) -> Iterator[StatusEvent]:
        """How long the catalog takes to answer; 0 where it is not slow."""
        turned, after_s = self._turned_slow("catalog", bool(slow_ms), now_s)
        if turned and slow_ms:
            goes_on = "queries go on, plans, registrations and commands take longer"
            words = f"it takes {slow_ms:,.0f} ms to give one row; {goes_on}"
            yield "catalog_slow", "catalog", words
        elif turned:
            yield "catalog_quick", "catalog", f"it is slow no more after {after_s:,.0f} s"

    def live_state_answered(self, slow_ms: float, now_s: float) -> Iterator[StatusEvent]:
        """The same of the live state."""
        turned, after_s = self._turned_slow("live state", bool(slow_ms), now_s)
        if turned and slow_ms:
            words = f"it takes {slow_ms:,.0f} ms to give one key; {LIVE_STATE_SLOW}"
            yield "live_state_slow", "live state", words
        elif turned:
            yield "live_state_quick", "live state", f"it is slow no more after {after_s:,.0f} s"

    def _turned_slow(self, what: str, slow: bool, now_s: float) -> tuple[bool, float]:
        """Whether something has become slow, or quick again, and how long it was slow."""
        since_s = self._slow_since_s.get(what)
        if slow:
            self._slow_since_s.setdefault(what, now_s)
        else:
            self._slow_since_s.pop(what, None)
        return slow is (since_s is None), 0.0 if since_s is None else now_s - since_s
