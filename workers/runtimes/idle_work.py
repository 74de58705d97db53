"""What a load on a GPU leaves for moments in which nobody asks for the variant.

A variant answers as soon as it can run batches at all; what only makes some of them quicker is
done afterwards, piece by piece. A batch that comes meanwhile waits for the one piece under way. The
first piece, which most batches gain by, is done at once.
"""

import logging
import threading
import time
from collections.abc import Callable

from workers.runtimes.gpu_thread import LOADING, GpuThread

log = logging.getLogger(__name__)

IDLE_S = 0.1
"""Nobody has asked for so long: then a piece begins."""
PATIENCE_S = 5.0
"""A piece that batches lack and that found no such moment for so long begins anyway."""
LOOK_S = 0.05
"""Between two looks whether there is one."""


class IdleWork:
    """Pieces of work for the thread of one variant.

    Args:
        name: of the variant, for the log.
        thread: in which each piece is done.
        piece: does one, and returns whether there are more.
        idle_s: for how long nobody has asked.
        lacked: whether batches lack what is left.
    """

    def __init__(
        self,
        name: str,
        thread: GpuThread,
        piece: Callable[[], bool],
        idle_s: Callable[[], float],
        lacked: Callable[[], bool] = lambda: True,
    ) -> None:
        self._name = name
        self._gpu = thread
        self._piece = piece
        self._idle_s = idle_s
        self._lacked = lacked
        self._ends = threading.Event()
        self._pacer = threading.Thread(target=self._pace, name="idle-work", daemon=True)

    def begin(self) -> None:
        """Do the pieces from now on, as moments come."""
        self._pacer.start()

    def end(self) -> None:
        """Begin no further piece, and wait for the one under way."""
        self._ends.set()
        if self._pacer.ident is not None:
            self._pacer.join()

    def finish(self) -> None:
        """Do what is left at once, whoever waits."""
        self.end()
        while self._gpu.call(self._piece):
            pass

    def _pace(self) -> None:
        first, since_s = True, time.monotonic()
        while not self._ends.wait(LOOK_S):
            lost_patience = time.monotonic() - since_s >= PATIENCE_S and self._lacked()
            if not first and not lost_patience and self._idle_s() < IDLE_S:
                continue
            # Loads come first, as long as there is patience.
            if not LOADING.acquire(timeout=LOOK_S if lost_patience else 0.0):
                continue
            try:
                if self._ends.is_set() or not self._gpu.call(self._piece):
                    return
            except Exception as error:  # the binding raises a different type for each cause
                log.warning("%s goes without what was left to do: %s", self._name, error)
                return
            finally:
                LOADING.release()
            first, since_s = False, time.monotonic()
