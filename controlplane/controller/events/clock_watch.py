"""ClockWatch: that the machine's clock was set back, as an event.

Ray Serve goes by that clock where it looks after its processes, so until it has caught up nothing
starts in the place of a worker that ends.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from math import inf
from socket import gethostname

from controlplane.controller.events.status_events import StatusEvent
from controlplane.timestamps import spoken
from variants.figures import duration

SET_BACK_S = 10.0
"""Of less nobody notices anything: Ray Serve looks at its processes every few seconds."""


class ClockWatch:
    """What the clock said at the last look."""

    def __init__(self) -> None:
        self._last_s = -inf

    def look(self, wall_s: float) -> Iterator[StatusEvent]:
        """Take in what the clock says now, as Unix time in s; tell where it was set back."""
        last_s, self._last_s = self._last_s, wall_s
        if wall_s < last_s - SET_BACK_S:
            until = datetime.fromtimestamp(last_s, UTC).strftime("%H:%M:%S")
            yield (
                "clock_set_back",
                gethostname(),
                f"the clock was set back by {duration(last_s - wall_s)}, to {spoken(wall_s)}: until"
                f" it says {until} again, Ray Serve starts no other worker in the place of one that"
                " ends; `modelless down` and `modelless up` end that at once",
            )
