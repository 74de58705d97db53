"""GPUs found through a made-up NVML: by name, as far as this process may use them."""

from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.gpus import GpuModel, gpus

MIB = 2**20
H100 = ("NVIDIA H100 80GB HBM3", "GPU-8d2abe25", 81_559)
H200 = ("NVIDIA H200", "GPU-11112222", 143_771)


class NvmlError(Exception):
    pass


class HostNvml:
    """NVML of a machine with these GPUs: name, UUID, MiB."""

    NVMLError = NvmlError

    def __init__(self, *found: tuple[str, str, int], split: frozenset[str] = frozenset()) -> None:
        self._found = found
        self._split = split

    def nvmlInit(self) -> None:
        """There is a driver."""

    def nvmlDeviceGetCount(self) -> int:
        return len(self._found)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> tuple[str, str, int]:
        return self._found[index]

    def nvmlDeviceGetName(self, handle: tuple[str, str, int]) -> str:
        return handle[0]

    def nvmlDeviceGetUUID(self, handle: tuple[str, str, int]) -> bytes:
        return handle[1].encode()

    def nvmlDeviceGetMemoryInfo(self, handle: tuple[str, str, int]) -> Any:
        return SimpleNamespace(total=handle[2] * MIB)

    def nvmlDeviceGetMigMode(self, handle: tuple[str, str, int]) -> list[int]:
        if handle[0] == "NVIDIA T4":
            raise NvmlError("not supported")
        return [int(handle[1] in self._split), 0]


def found(nvml: HostNvml, visible: str | None = None) -> dict[str, int]:
    return {model.kind: model.count for model in gpus(visible, lambda: nvml)}


def test_gpus_are_counted_by_name() -> None:
    nvml = HostNvml(H100, H200, ("NVIDIA H100 80GB HBM3", "GPU-33334444", 81_559))

    assert gpus(None, lambda: nvml) == (
        GpuModel(name="NVIDIA H100 80GB HBM3", count=2, memory_mib=81_559),
        GpuModel(name="NVIDIA H200", count=1, memory_mib=143_771),
    )
    assert found(nvml) == {"nvidia-h100-80gb-hbm3": 2, "nvidia-h200": 1}


def test_a_tenth_of_the_memory_is_left_to_libraries() -> None:
    (model,) = gpus(None, lambda: HostNvml(H100))

    assert model.usable_mib == 73_403


@pytest.mark.parametrize(
    ("visible", "kinds"),
    [
        (None, {"nvidia-h100-80gb-hbm3": 1, "nvidia-h200": 1}),
        ("0,1", {"nvidia-h100-80gb-hbm3": 1, "nvidia-h200": 1}),
        ("1", {"nvidia-h200": 1}),
        ("GPU-8d2a", {"nvidia-h100-80gb-hbm3": 1}),
        ("", {}),
        ("-1", {}),
        ("7", {}),
    ],
)
def test_only_those_that_this_process_may_use(visible: str | None, kinds: dict[str, int]) -> None:
    assert found(HostNvml(H100, H200), visible) == kinds


def test_where_a_gpu_is_in_mig_mode_none_is_taken() -> None:
    t4 = ("NVIDIA T4", "GPU-55556666", 15_360)  # has no such mode

    assert found(HostNvml(H100, t4)) == {"nvidia-h100-80gb-hbm3": 1, "nvidia-t4": 1}
    assert found(HostNvml(H100, t4, split=frozenset({H100[1]}))) == {}
    assert found(HostNvml(H100, t4, split=frozenset({H100[1]})), "1") == {"nvidia-t4": 1}


def test_every_kind_begins_with_the_vendor() -> None:
    assert found(HostNvml(("Tesla V100-SXM2-16GB", "GPU-1", 16_384))) == {
        "nvidia-tesla-v100-sxm2-16gb": 1
    }


def test_without_a_driver_there_is_none() -> None:
    def none() -> HostNvml:
        raise ModuleNotFoundError("pynvml")

    assert gpus(None, none) == ()
