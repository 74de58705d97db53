"""Which tests let others go first where there are more of them than cores.

An installation has a dozen processes and waits most of the time: for its control loop, at niceness
5, and for what it measures or registers, at 10. Beside tests that compute all the while these would
get nothing for long, and each second that an installation is there costs a fifth of one of a core.
So tests that have no installation run at its control loop's niceness, and their processes too.
"""

import os
from contextlib import suppress

from tests.scheduling.order import INTEGRATION
from workers.process.niceness import YIELDING

_OWN = os.getpriority(os.PRIO_PROCESS, 0)
"""Tests may be run niced as a whole."""


def take_turn(nodeid: str) -> None:
    """Give this process the priority of its next test; a better one where that is allowed."""
    wanted = _OWN if nodeid.startswith(INTEGRATION) else _OWN + YIELDING
    if os.getpriority(os.PRIO_PROCESS, 0) != wanted:
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, wanted)
