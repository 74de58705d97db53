"""The driver's functions through ctypes, over a driver on the host."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.workers.runtimes.host_cuda import HostCuda
from variants.errors import RuntimeFailed
from workers.runtimes.cuda import Device, Driver


@pytest.fixture
def cuda() -> HostCuda:
    return HostCuda()


@pytest.fixture
def device(cuda: HostCuda) -> Device:
    made = cuda.device()
    made.enter()
    return made


def test_a_device_is_described_without_a_context(cuda: HostCuda) -> None:
    device = cuda.device()
    assert (device.name, device.capability, device.multiprocessors, device.uuid) == (
        "NVIDIA H200",
        (9, 0),
        132,
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
    )
    with pytest.raises(RuntimeFailed, match="cuMemAlloc_v2: CUDA_ERROR_INVALID_CONTEXT: invalid"):
        device.allocate(1)


def test_copies_are_made_once_somebody_waits(device: Device) -> None:
    stream, there = device.stream(), device.allocate(4)
    (sent, out), (received, back) = device.pin(4), device.pin(4)
    out[:] = 1, 2, 3, 4
    back[:] = 0
    device.upload(there, sent, 4, stream)
    device.download(received, there, 4, stream)
    assert back.tolist() == [0, 0, 0, 0]
    device.wait(stream)
    assert back.tolist() == [1, 2, 3, 4]


def test_all_that_was_taken_can_be_given_back(cuda: HostCuda, device: Device) -> None:
    before_bytes = cuda.allocated_bytes
    stream, there, (host, _) = device.stream(), device.allocate(1000), device.pin(1000)
    assert cuda.allocated_bytes == before_bytes + 1000
    device.unpin(host)
    device.free(there)
    device.end_stream(stream)
    assert cuda.idle


def test_each_thread_enters_for_itself(device: Device) -> None:
    with ThreadPoolExecutor(1) as other:
        with pytest.raises(RuntimeFailed, match="CUDA_ERROR_INVALID_CONTEXT"):
            other.submit(device.allocate, 1).result()
        other.submit(device.enter).result()
        device.free(other.submit(device.allocate, 1).result())


def test_an_error_is_told_in_the_driver_s_words(device: Device) -> None:
    with pytest.raises(RuntimeFailed) as refused:
        device.free(4711)
    assert refused.value.message == (
        "CUDA: cuMemFree_v2: CUDA_ERROR_INVALID_VALUE: invalid argument"
    )


def test_a_machine_without_a_driver() -> None:
    with pytest.raises(RuntimeFailed, match="no NVIDIA GPU here: libcuda-of-no-machine"):
        Driver.load("libcuda-of-no-machine.so.1")


def test_a_library_that_is_no_driver() -> None:
    with pytest.raises(RuntimeFailed, match=r"no NVIDIA GPU here: .*cuCtxSetCurrent"):
        Driver.load("libc.so.6")


def test_a_driver_that_shows_this_process_no_gpu() -> None:
    with pytest.raises(RuntimeFailed, match="no NVIDIA GPU here that this process may use"):
        HostCuda(devices=0).device()


def test_a_driver_with_fewer_gpus_than_were_thought(cuda: HostCuda) -> None:
    driver = Driver(cuda, cuda)
    driver.start()
    with pytest.raises(RuntimeFailed, match="no NVIDIA GPU here that this process may use"):
        Device(driver, 1)
