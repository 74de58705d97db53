"""How the time of a machine's cores is used, as one process sees it: by others, by itself, by none.

A process that cannot have a core is late, and nothing in it shows why. The kernel counts it: in
which share of the time something waited for a core (``/proc/pressure/cpu``, or ``cpu.pressure`` of
the own control group), what a quota held back (``cpu.stat``), and what a hypervisor gave to other
machines (steal in ``/proc/stat``); and of the thread that asks, for how long it waited itself
(``schedstat``). What a kernel or a container does not show stays unknown.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from socket import gethostname

from variants.container import CONTROL_GROUPS, OWN_GROUP, groups, quota_cores

WINDOW_S = 10.0
"""Over so long the time is averaged. A process that was started since says nothing yet: its own
start would be most of what it has seen, and of what all processes of a machine say the worst
counts."""
EVERY_S = 0.9
"""How often the files are read at most: reports that follow each other closely say the same."""
STAT_BYTES = 64 * 2**10
"""As much of ``/proc/stat`` as the lines of a thousand cores take; what follows is not read."""
HAD_TO_DO_S = 0.05
"""A thread that had less to do says nothing of how long it waits."""
PERIOD_S = 0.1
"""Of a quota, where it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTime:
    """Of the last ten seconds. What is not known is None, never 0."""

    host: str
    cores: int
    """That this process may run on."""
    used: float
    """So many of them it kept busy itself."""
    busy: float | None = None
    """So many were busy with any program but those of a positive niceness, which give way."""
    waited: float | None = None
    """In this share of the time something waited for a core: of the own control group where it has
    its own account, else of the machine."""
    throttled: float | None = None
    """In this share of the time a quota held the own control group back."""
    quota: float | None = None
    """How many cores that quota amounts to, where it held something back."""
    stolen: float | None = None
    """So many cores had work, and the hypervisor gave them to other machines."""
    delayed: float | None = None
    """Of the time in which the thread that reads this had something to do, the share in which it
    had no core."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """What the kernel has counted, in seconds; all of it only grows."""

    at_s: float
    used_s: float
    busy_s: float | None
    stolen_s: float | None
    waited_s: float | None
    throttled_s: float | None
    ran_s: float | None
    delayed_s: float | None


class CoreMeter:
    """Reads what the kernel counts, about once a second, and says what it grew by."""

    def __init__(
        self,
        *,
        proc: Path = Path("/proc"),
        root: Path = CONTROL_GROUPS,
        own: Path = OWN_GROUP,
        cores: Collection[int] | None = None,
        host: str = "",
        used_s: Callable[[], float] = time.process_time,
        least_s: float = WINDOW_S,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            cores: those that count; None: all that this process may run on now.
            used_s: processor time of this process.
            least_s: over how long a time at least something is said.
        """
        self._root, self._own = root, own
        self._stat, self._own_stat = proc / "stat", proc / "thread-self" / "schedstat"
        self._cores = frozenset(os.sched_getaffinity(0) if cores is None else cores)
        self._host = host or gethostname()
        self._used_s, self._least_s, self._clock_s = used_s, least_s, clock_s
        folders = list(groups("cpu", root, own))
        pressures = [folder / "cpu.pressure" for folder in folders[:1]] + [proc / "pressure/cpu"]
        self._pressure = next((file for file in pressures if file.exists()), None)
        self._quotas = [
            (folder / "cpu.stat", _period_s(folder))
            for folder in folders
            if (folder / "cpu.stat").exists()
        ]
        self._seen: deque[_Counts] = deque()
        self._latest: CoreTime | None = None

    def look(self) -> CoreTime | None:
        """How the cores' time was used lately; None before enough of it has passed."""
        now_s = self._clock_s()
        if self._seen and now_s - self._seen[-1].at_s < EVERY_S:
            return self._latest
        self._seen.append(self._read(now_s))
        while len(self._seen) > 2 and now_s - self._seen[1].at_s >= WINDOW_S:
            self._seen.popleft()
        if now_s - self._seen[0].at_s >= max(self._least_s, EVERY_S):
            self._latest = self._between(self._seen[0], self._seen[-1])
        return self._latest

    def _read(self, now_s: float) -> _Counts:
        busy_s, stolen_s = self._spent()
        ran_s, delayed_s = self._delayed()
        return _Counts(
            at_s=now_s,
            used_s=self._used_s(),
            busy_s=busy_s,
            stolen_s=stolen_s,
            waited_s=self._waited(),
            throttled_s=self._throttled(),
            ran_s=ran_s,
            delayed_s=delayed_s,
        )

    def _spent(self) -> tuple[float | None, float | None]:
        """Busy and stolen time of the cores that count."""
        busy = stolen = 0
        found = False
        with suppress(OSError, ValueError, IndexError):
            with self._stat.open("rb", buffering=0) as file:
                text = file.read(STAT_BYTES)
            for line in text.split(b"\n"):
                name, *numbers = line.split() or [b""]
                if name.startswith(b"cpu") and name != b"cpu" and int(name[3:]) in self._cores:
                    user, _, system, _, _, irq, soft_irq, steal, *_ = map(int, numbers)
                    busy += user + system + irq + soft_irq
                    stolen += steal
                    found = True
                elif found and not name.startswith(b"cpu"):
                    break
            tick_s = 1 / os.sysconf("SC_CLK_TCK")
            return (busy * tick_s, stolen * tick_s) if found else (None, None)
        return None, None

    def _waited(self) -> float | None:
        if self._pressure is not None:
            with suppress(OSError, ValueError):
                for line in self._pressure.read_text().splitlines():
                    if line.startswith("some "):
                        return int(line.rpartition("total=")[2]) / 1e6
        return None

    def _delayed(self) -> tuple[float | None, float | None]:
        """For how long this thread has run, and for how long it could have and had no core."""
        with suppress(OSError, ValueError):
            ran_ns, delayed_ns, _ = self._own_stat.read_text().split()
            return int(ran_ns) / 1e9, int(delayed_ns) / 1e9
        return None, None

    def _throttled(self) -> float | None:
        """Seconds of the periods in which some quota was used up, of all groups above this one."""
        found = None
        for file, period_s in self._quotas:
            with suppress(OSError, ValueError):
                for name, value in _fields(file):
                    if name == "nr_throttled":
                        found = (found or 0.0) + int(value) * period_s
        return found

    def _between(self, first: _Counts, last: _Counts) -> CoreTime:
        for_s = last.at_s - first.at_s

        def grown(before: float | None, now: float | None, most: float) -> float | None:
            if before is None or now is None:
                return None
            # Counters of some hypervisors go back now and then.
            return round(min(most, max(0.0, now - before) / for_s), 3)

        count = len(self._cores)
        throttled = grown(first.throttled_s, last.throttled_s, 1.0)
        return CoreTime(
            host=self._host,
            cores=count,
            used=round(max(0.0, last.used_s - first.used_s) / for_s, 3),
            busy=grown(first.busy_s, last.busy_s, count),
            waited=grown(first.waited_s, last.waited_s, 1.0),
            throttled=throttled,
            quota=quota_cores(self._root, self._own) if throttled else None,
            stolen=grown(first.stolen_s, last.stolen_s, count),
            delayed=_delayed_share(first, last),
        )


def _delayed_share(first: _Counts, last: _Counts) -> float | None:
    """The share of the time with something to do in which the thread had no core."""
    if first.ran_s is None or first.delayed_s is None:
        return None
    if last.ran_s is None or last.delayed_s is None:
        return None
    ran_s, delayed_s = last.ran_s - first.ran_s, last.delayed_s - first.delayed_s
    # Counts may be of another thread than before.
    if min(ran_s, delayed_s) < 0 or ran_s + delayed_s < HAD_TO_DO_S:
        return None
    return round(delayed_s / (ran_s + delayed_s), 3)


def _fields(file: Path) -> Iterator[tuple[str, str]]:
    for line in file.read_text().splitlines():
        name, _, value = line.partition(" ")
        yield name, value


def _period_s(folder: Path) -> float:
    """Over how long a control group's quota is counted, of either version."""
    with suppress(OSError, ValueError, IndexError):
        if (file := folder / "cpu.max").exists():
            return int(file.read_text().split()[1]) / 1e6
        return int((folder / "cpu.cfs_period_us").read_text()) / 1e6
    return PERIOD_S
