"""Page-locked memory of the host, which the batches of all variants pass through in turn."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from workers.runtimes.cuda import Device


class LockedMemory:
    """One block, as large as the largest batch of those that use it needs.

    Each thread that calls has entered the device.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._in_use = Lock()
        self._address = 0
        self._bytes: NDArray[np.uint8] | None = None
        self._users = 0

    def join(self, size: int) -> None:
        """Count one more, whose batches take ``size`` bytes. Batches of others go on meanwhile.

        Raises:
            RuntimeFailed: the host has no more memory of that kind.
        """
        with self._in_use:
            self._users += 1
        try:
            self._grow(size)
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Count one less; the last one gives the memory back."""
        with self._in_use:
            self._users -= 1
            if self._users:
                return
            address, self._address, self._bytes = self._address, 0, None
        if address:
            self._device.unpin(address)

    @contextmanager
    def held(self) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Its address, and an array over it, for one batch; others wait until it is over."""
        with self._in_use:
            assert self._bytes is not None
            yield self._address, self._bytes

    def _grow(self, size: int) -> None:
        if self._bytes is not None and len(self._bytes) >= size:
            return
        # To lock pages takes tens of milliseconds, in which batches pass through the old block.
        address, memory = self._device.pin(1 << max(12, (size - 1).bit_length()))
        with self._in_use:
            if self._bytes is None or len(self._bytes) < size:
                address, self._address, self._bytes = self._address, address, memory
        if address:
            self._device.unpin(address)


@cache
def locked_memory(device: Device) -> LockedMemory:
    """The one of a device."""
    return LockedMemory(device)
