"""A limit for calls that have none: Ray waits for its own processes for as long as it takes."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AGAIN_S = 1.0
"""A raise may be lost, in a destructor for example: then the next one follows."""


@contextmanager
def patience(
    limit_s: float, slow_s: float | None = None, slow: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Interrupt what runs within, in the main thread, when it takes too long.

    It has to be a wait that looks for signals, as ``ray.get`` does and ``ray.init`` does not. It is
    interrupted as by Ctrl-C: of what a handler raises, Ray lets nothing else through.

    Args:
        limit_s: how long it may take, in seconds.
        slow_s: how long it may take before ``slow`` is called, once; less than ``limit_s``.

    Raises:
        TimeoutError: it took longer.
    """
    over = False
    told = slow_s is None

    def ring(_signal: int, _frame: object) -> None:
        nonlocal over, told
        if told:
            over = True
            raise KeyboardInterrupt
        told = True
        signal.setitimer(signal.ITIMER_REAL, max(began + limit_s - time.monotonic(), 0.01), AGAIN_S)
        slow()

    began = time.monotonic()
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_s if slow_s is None else slow_s, AGAIN_S)
    try:
        yield
    except KeyboardInterrupt:
        if not over:
            raise
        raise TimeoutError(f"not done within {limit_s:,g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
