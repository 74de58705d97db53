"""What the driver and NVML say of a real GPU."""

import re
import time

import pytest

from profiler.hardware_counters import DeviceMemory, find_gpu, meter
from tests.gpu.machine import NEEDS_GPU
from workers.runtimes.cuda import first_device

pytestmark = NEEDS_GPU

MIB = 2**20


def test_the_driver_describes_the_device() -> None:
    device = first_device()
    assert device.name
    assert device.capability >= (5, 0)
    assert device.multiprocessors > 0
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", device.uuid)


def test_what_is_uploaded_comes_back() -> None:
    device = first_device()
    device.enter()
    size = 3 * MIB + 5
    stream, there = device.stream(), device.allocate(size)
    (sent, out), (received, back) = device.pin(size), device.pin(size)
    out[:] = 7
    back[:] = 0
    device.upload(there, sent, size, stream)
    device.download(received, there, size, stream)
    device.wait(stream)
    assert (back == 7).all()
    del out, back
    device.unpin(sent)
    device.unpin(received)
    device.free(there)
    device.end_stream(stream)


def test_nvml_sees_what_this_process_takes() -> None:
    gpu, why = find_gpu()
    if gpu is None:
        pytest.skip(why)
    device = first_device()
    device.enter()
    memory = DeviceMemory(gpu)
    there = device.allocate(256 * MIB)
    assert 256 <= memory.taken_mib() <= 300
    device.free(there)
    assert memory.taken_mib() <= 44


def test_a_gpu_takes_energy() -> None:
    found, why = meter(gpu=True)
    if found is None:
        pytest.skip(why)
    before = found.read()
    time.sleep(1)
    assert 5 < found.energy_j(before, found.read()) < 2_000
