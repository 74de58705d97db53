"""Threads that have sessions on a GPU, and the lock that recordings need.

ONNX Runtime keeps what it recorded of a session, and what it needs of the GPU's libraries for it,
for each thread by itself. So each variant has one thread in which all of it runs, whichever thread
asks. Variants have threads of their own, so that one is made ready while another one answers.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, RLock
from typing import TypeVar

RECORDING = Lock()
"""Held while a CUDA graph is recorded, and by each run that may take memory of the device: whoever
takes some while another thread records fails, and breaks the recording. Graphs that are played take
none, and need no lock."""

LOADING = RLock()
"""Held while a variant is loaded or closed, and by each piece of work that a load has left: each of
them may take memory of the device, and may record. Taken before ``RECORDING``."""

ResultT = TypeVar("ResultT")


class GpuThread:
    """One thread for one variant. It begins with the first call."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="gpu")

    def call(self, act: Callable[[], ResultT]) -> ResultT:
        """What ``act`` returns or raises in that thread."""
        return self._pool.submit(act).result()

    def call_alone(self, act: Callable[[], ResultT]) -> ResultT:
        """What ``act`` returns or raises in that thread, while no graph is recorded."""

        def alone() -> ResultT:
            with RECORDING:
                return act()

        return self.call(alone)

    def end(self) -> None:
        """End the thread once it has done what it was asked for; it takes no more calls."""
        self._pool.shutdown()
