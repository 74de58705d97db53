"""Limits of processes (``ulimit``) within which nothing can be started here.

Ray's processes say nothing of them: without a file descriptor they wait without an end, without
address space they end in C++.
"""

import resource
from dataclasses import dataclass

from controlplane.settings import Settings
from variants.errors import InvalidInput

LEAST_FILES = 128
"""Ray's own processes have some 55 files open each, a gateway more."""
LEAST_ADDRESS_SPACE_MIB = 2_048
"""Gateway, control loop and worker have 1.6 to 1.8 GiB mapped before anything is loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictLimit:
    """A limit that is too low."""

    of: str
    """``files`` or ``memory``, as the checks of `modelless doctor` are called."""
    what: str
    remedy: str


def strict_limits(
    settings: Settings, files: int | None = None, address_space_bytes: int | None = None
) -> list[StrictLimit]:
    """Which limits are too low for what `modelless up` starts; nodes of a cluster have their own.

    Args:
        files: how many a process may have open; else as it is for this one.
        address_space_bytes: how much a process may map; else as it is for this one.
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
    return found


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
