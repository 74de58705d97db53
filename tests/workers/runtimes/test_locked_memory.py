"""Page-locked memory that variants share, over a driver on the host."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.workers.runtimes.host_cuda import HostCuda
from variants.errors import RuntimeFailed
from workers.runtimes.cuda import Device
from workers.runtimes.locked_memory import LockedMemory


@pytest.fixture
def cuda() -> HostCuda:
    return HostCuda()


@pytest.fixture
def memory(cuda: HostCuda) -> LockedMemory:
    device = cuda.device()
    device.enter()
    return LockedMemory(device)


def size(memory: LockedMemory) -> int:
    with memory.held() as (_, there):
        return len(there)


def test_it_is_as_large_as_the_largest_batch(cuda: HostCuda, memory: LockedMemory) -> None:
    memory.join(5_000)
    assert size(memory) == 8_192
    memory.join(100)
    assert size(memory) == 8_192
    memory.join(8_193)
    assert size(memory) == 16_384
    assert list(cuda.pinned.values()) == [16_384]


def test_the_last_one_gives_it_back(cuda: HostCuda, memory: LockedMemory) -> None:
    memory.join(100)
    memory.join(100)
    memory.leave()
    assert size(memory) == 4_096
    memory.leave()
    assert cuda.idle


class Pinning:
    """A device whose pinning is watched, or fails."""

    def __init__(self, device: Device, *, full: bool = False) -> None:
        self.device, self.full = device, full
        self.pinned = threading.Event()

    def pin(self, size: int) -> Any:
        if self.full:
            raise RuntimeFailed("CUDA: cuMemHostAlloc: out of memory")
        self.device.enter()
        found = self.device.pin(size)
        self.pinned.set()
        return found

    def unpin(self, address: int) -> None:
        self.device.unpin(address)


def test_a_batch_goes_on_while_the_memory_grows(cuda: HostCuda) -> None:
    """Its block stays valid until the batch is over."""
    watched = Pinning(cuda.device())
    memory = LockedMemory(watched)  # type: ignore[arg-type]
    memory.join(100)
    watched.pinned.clear()
    with ThreadPoolExecutor(1) as pool:
        with memory.held() as (address, there):
            growing = pool.submit(memory._grow, 50_000)
            assert watched.pinned.wait(10)
            there[:] = 7
            assert address in cuda.pinned
            assert not growing.done()
        growing.result(timeout=10)
    assert size(memory) == 65_536
    assert len(cuda.pinned) == 1


def test_no_room_leaves_nothing(cuda: HostCuda) -> None:
    watched = Pinning(cuda.device(), full=True)
    memory = LockedMemory(watched)  # type: ignore[arg-type]
    with pytest.raises(RuntimeFailed, match="out of memory"):
        memory.join(100)
    watched.full = False
    memory.join(100)
    memory.leave()
    assert cuda.idle
