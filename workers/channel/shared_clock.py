"""Deadlines between processes that read one clock.

How much time a query has left is a budget that shrinks while its frame waits: for the end of the
sender's turn, in the socket, and until the worker gets a processor. Under load these are
milliseconds that neither side sees. Where both read the same clock, a frame says when its time is
over, not how much is left.
"""

import sys
import time
from functools import cache
from pathlib import Path

_ALL = 2**32
LONGEST_US = 2**30
"""A deadline further away is told as a budget: moments repeat after 71 minutes."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE = Path("/proc/self/ns/time")


@cache
def clock_name() -> str:
    """Which clock ``time.monotonic`` reads here; "" where that is not known.

    Processes with the same name read the same one: they were started since one boot of one kernel,
    and no container has shifted theirs.
    """
    if not sys.platform.startswith("linux"):
        return ""
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        return ""
    try:
        shifted = str(_NAMESPACE.readlink())
    except FileNotFoundError:
        shifted = ""  # a kernel without such namespaces
    except OSError:
        return ""
    return f"{boot} {shifted}"


def moment_us(budget_us: int) -> int:
    """When a budget is used up, as a u32: µs of ``time.monotonic`` without its high part.

    Args:
        budget_us: at most ``LONGEST_US``.
    """
    return (time.monotonic_ns() // 1_000 + budget_us) % _ALL


def left_us(moment: int) -> int:
    """What is left of the budget of ``moment_us``; 0 once it is used up."""
    left = (moment - time.monotonic_ns() // 1_000) % _ALL
    return left if left <= LONGEST_US else 0
