"""CoreWatch: machines whose cores are short, look by look, as events.

``views.machines.core_shortage`` judges a moment. What is over in seconds is not
told, and what hovers at a threshold is not told again and again.
"""

from collections.abc import Iterable, Iterator

from controlplane.controller.events.status_events import StatusEvent
from controlplane.views.machines.core_shortage import core_shortages
from variants.core_time import CoreTime

BEGINS_S = 15.0
"""So long the cores of a machine are short before it is told: longer than a process takes to
start."""
ENDS_S = 30.0
"""So long they suffice before that is told."""


class CoreWatch:
    """What was told of the cores of machines. Times are on one clock."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}
        """Machines whose cores are short, and since when."""
        self._told: dict[str, float] = {}
        """Machines that were told to be short of cores, and when they were seen short last."""
        self.short: frozenset[str] = frozenset()
        """Machines whose cores are short now, and those that were and hover at a threshold."""

    def look(self, readings: Iterable[CoreTime], now_s: float) -> Iterator[StatusEvent]:
        """How cores are used now. A machine of which nothing is heard any more is forgotten."""
        found = tuple(readings)
        short = {one.host: one for one in core_shortages(found)}
        heard = {one.host for one in found}
        self._since_s = {host: self._since_s.get(host, now_s) for host in short}
        for host, one in short.items():
            if host not in self._told and now_s - self._since_s[host] >= BEGINS_S:
                self._told[host] = now_s
                yield "cores_short", host, f"{one.why}; {one.remedy}"
        self.short = frozenset(one.host for one in core_shortages(found, self.short))
        for one in core_shortages(found, self._told):
            if one.host in self._told:
                self._told[one.host] = now_s
        for host, seen_s in tuple(self._told.items()):
            if host not in heard:
                del self._told[host]
            elif now_s - seen_s >= ENDS_S:
                del self._told[host]
                yield "cores_suffice", host, f"they suffice again, for {now_s - seen_s:,.0f} s now"
