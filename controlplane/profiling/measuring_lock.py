"""Who measures on this machine: commands that people wait for beside each other, the control loop
only while no such command runs.

Held through a file of the state directory, so that it ends with the process that holds it.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

FILE = "measuring.lock"


@contextmanager
def measuring_first(run_dir: Path, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
    """For a command that builds or measures: the control loop begins no measurement meanwhile.

    One that it has begun is waited for; ``waits`` is called before.
    """
    run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (run_dir / FILE).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(file, fcntl.LOCK_SH)
        yield


@contextmanager
def measuring_last(run_dir: Path) -> Iterator[bool]:
    """For the control loop: whether it may measure now. Commands wait while this is entered.

    It may not where the file cannot be opened, as on a full disk: no profile could be kept.
    """
    with ExitStack() as stack:
        try:
            file = stack.enter_context((run_dir / FILE).open("a+"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # locked by a command, most likely
            yield False
            return
        yield True


def may_measure(run_dir: Path) -> bool:
    """Whether no command measures now."""
    with measuring_last(run_dir) as free:
        return free
