"""Limits of processes (``ulimit``) within which nothing can be started here.

Ray's processes say nothing of them: without a file descriptor they wait without an end, without
address space they end in C++.
"""

import os
import resource
from dataclasses import dataclass

from controlplane.settings import Settings
from variants.container import most_tasks
from variants.errors import InvalidInput

LEAST_FILES = 128
"""Ray's own processes have some 55 files open each, a gateway more."""
LEAST_ADDRESS_SPACE_MIB = 2_048
"""Gateway, control loop and worker have 1.6 to 1.8 GiB mapped before anything is loaded."""

LEAST_TASKS = 256
"""Ray, gateway, control loop and a worker on two cores are 269 processes and threads
while nothing is asked, and 285 while they start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictLimit:
    """A limit that is too low."""

    of: str
    """``files``, ``memory`` or ``processes``, as the checks of `modelless doctor` are called."""
    what: str
    remedy: str


def strict_limits(
    settings: Settings,
    files: int | None = None,
    address_space_bytes: int | None = None,
    tasks: int | None = None,
) -> list[StrictLimit]:
    """Which limits are too low for what `modelless up` starts; nodes of a cluster have their own.

    Args:
        files: how many a process may have open; else as it is for this one.
        address_space_bytes: how much a process may map; else as it is for this one.
        tasks: how many processes and threads there may be; else as it is for this one.
    """
    if settings.ray_address:
        return []
    allowed = _limit(resource.RLIMIT_NOFILE) if files is None else files
    space = _limit(resource.RLIMIT_AS) if address_space_bytes is None else address_space_bytes
    found = []
    if 0 <= allowed < LEAST_FILES:
        found.append(
            StrictLimit(
                of="files",
                what=f"{allowed} open files are allowed (ulimit -Hn), and nothing starts with "
                f"fewer than {LEAST_FILES}",
                remedy="raise that limit: LimitNOFILE= of systemd, --ulimit nofile= of Docker",
            )
        )
    if 0 <= space < LEAST_ADDRESS_SPACE_MIB * 2**20:
        found.append(
            StrictLimit(
                of="memory",
                what=f"a process may map {space / 2**20:,.0f} MiB (ulimit -v), and nothing starts "
                f"with less than {LEAST_ADDRESS_SPACE_MIB:,} MiB",
                remedy="lift that limit, as MODELLESS_WORKER_MEMORY_MIB bounds what variants take",
            )
        )
    together = allowed_tasks() if tasks is None else tasks
    if 0 <= together < LEAST_TASKS:
        found.append(
            StrictLimit(
                of="processes",
                what=f"{together} processes and threads are allowed (ulimit -u, or pids.max of a "
                f"container), and nothing starts with fewer than {LEAST_TASKS}",
                remedy="raise that limit: TasksMax= of systemd, --pids-limit of Docker",
            )
        )
    return found


def allowed_tasks() -> int:
    """Processes and threads that may run, of a container or of this user; negative: any number."""
    limits = [most_tasks(), None if os.geteuid() == 0 else _limit(resource.RLIMIT_NPROC)]
    return min((one for one in limits if one is not None and one >= 0), default=-1)


def check_process_limits(settings: Settings) -> None:
    """Refuse to start within limits that are too low.

    Raises:
        InvalidInput: one is.
    """
    for one in strict_limits(settings):
        raise InvalidInput(f"{one.what}; {one.remedy}")


def _limit(of: int) -> int:
    """The hard limit, which processes raise their own to; negative where there is none.

    Of the address space none raises its own, so the soft one holds.
    """
    soft, hard = resource.getrlimit(of)
    return hard if of == resource.RLIMIT_NOFILE else soft
