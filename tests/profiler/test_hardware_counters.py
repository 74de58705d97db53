"""Energy and device memory, read from a made-up ``/sys`` and a made-up NVML; why they cannot be."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.hardware_counters import (
    DeviceMemory,
    Gpu,
    Reading,
    busy_cores,
    find_gpu,
    find_rapl,
    idle_watts,
    meter,
)
from variants.errors import RuntimeFailed

RANGE_UJ = 262_143_328_850
"""Of a server's package."""
MIB = 2**20


def zone(powercap: Path, path: str, name: str, energy_uj: int, range_uj: int = RANGE_UJ) -> Path:
    """A RAPL zone: ``intel-rapl:0`` is a package, ``intel-rapl:0:1`` a part of it."""
    folder = powercap / path
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    return folder / "energy_uj"


def test_joules_between_two_readings(tmp_path: Path) -> None:
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    found, why = meter(powercap=tmp_path)
    assert found is not None
    assert why == ""
    before = found.read()
    counter.write_text("3500000\n")
    assert found.energy_j(before, found.read()) == 2.5


def test_a_counter_that_began_again(tmp_path: Path) -> None:
    counter = zone(tmp_path, "intel-rapl:0", "package-0", RANGE_UJ - 400_000)
    found, _ = find_rapl(tmp_path)
    assert found is not None
    before = found.read()
    counter.write_text("599999\n")
    assert found.energy_j(before, found.read()) == 1.0


@given(st.data())
def test_whatever_is_taken_within_one_turn_is_counted(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    ranges = data.draw(st.lists(st.integers(1, 2**40), min_size=1, max_size=3))
    folder = tmp_path_factory.mktemp("powercap")
    for index, range_uj in enumerate(ranges):
        zone(folder, f"intel-rapl:{index}", f"package-{index}", 0, range_uj)
    found, _ = find_rapl(folder)
    assert found is not None
    before = [data.draw(st.integers(0, range_uj)) for range_uj in ranges]
    taken = [data.draw(st.integers(0, range_uj)) for range_uj in ranges]
    after = [(a + b) % (r + 1) for a, b, r in zip(before, taken, ranges, strict=True)]
    assert found.energy_j(tuple(before), tuple(after)) == sum(taken) / 1e6


def test_all_packages_and_their_memory_are_counted_once(tmp_path: Path) -> None:
    """Not cores, which a package counts, and not psys, which counts the packages."""
    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    zone(tmp_path, "intel-rapl:0:0", "core", 20)
    zone(tmp_path, "intel-rapl:0:1", "dram", 300)
    zone(tmp_path, "intel-rapl:1", "package-1", 4_000)
    zone(tmp_path, "intel-rapl:2", "psys", 50_000)
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", 600_000)
    found, _ = find_rapl(tmp_path)
    assert found is not None
    assert sorted(found.read()) == [1, 300, 4_000]


@pytest.mark.parametrize("there", [True, False])
def test_a_virtual_machine_shows_no_counters(tmp_path: Path, there: bool) -> None:
    powercap = tmp_path / "powercap"
    if there:
        (powercap / "dtpm").mkdir(parents=True)
    why = "this machine shows no energy counters of its processor"
    assert meter(powercap=powercap) == (None, why)


def test_counters_that_are_not_ours_to_read(tmp_path: Path) -> None:
    class Forbidden(type(tmp_path)):  # type: ignore[misc]
        """A folder whose counters only root may read; tests may run as root."""

        def read_text(self, *_: Any, **__: Any) -> str:
            if self.name == "energy_uj":
                raise PermissionError(13, "Permission denied", str(self))
            return str(super().read_text())

    zone(tmp_path, "intel-rapl:0", "package-0", 1)
    why = "the processor's energy counters are for root only"
    assert meter(powercap=Forbidden(tmp_path)) == (None, why)


def test_a_counter_without_a_number(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 1).write_text("")
    found, why = meter(powercap=tmp_path)
    assert found is None
    assert why.startswith("the processor's energy counters cannot be read: invalid literal")


# -- NVML ------------------------------------------------------------------------------------------

UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"


class NvmlError(Exception):
    pass


class HostNvml:
    """NVML's module for a machine with one GPU, or one MIG instance of it."""

    NVMLError = NvmlError

    def __init__(self, *, mig: bool = False) -> None:
        self.mig = mig
        self.millijoules = 5_000
        self.used: dict[int, int | None] = {}
        """Bytes by process; None: it does not know."""
        self.started = False

    def nvmlInit(self) -> None:
        self.started = True

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65"

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        assert self.started
        if uuid != ("MIG-" if self.mig else "GPU-") + UUID:
            raise NvmlError("Not Found")
        return uuid

    def nvmlDeviceGetName(self, handle: str) -> str:
        return "NVIDIA H200"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        if self.mig:
            raise NvmlError("Not Supported")
        return self.millijoules

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(used=sum(used or 0 for used in self.used.values()))

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        if self.mig:
            raise NvmlError("Not Supported")
        return [SimpleNamespace(pid=p, usedGpuMemory=used) for p, used in self.used.items()]


def gpu_of(nvml: HostNvml) -> Gpu:
    found, why = find_gpu(uuid=lambda: UUID, nvml=lambda: nvml)
    assert found is not None
    assert why == ""
    return found


def test_a_gpu_counts_millijoules() -> None:
    nvml = HostNvml()
    found, why = meter(gpu=True, find=lambda: (gpu_of(nvml), ""))
    assert found is not None
    assert why == ""
    before = found.read()
    nvml.millijoules += 1_500
    assert found.energy_j(before, found.read()) == 1.5


def test_a_gpu_has_a_name_and_a_driver() -> None:
    gpu = gpu_of(HostNvml())
    assert (gpu.name, gpu.driver) == ("NVIDIA H200", "580.65")


def test_a_mig_instance_has_no_meter_of_its_own() -> None:
    found, why = meter(gpu=True, find=lambda: (gpu_of(HostNvml(mig=True)), ""))
    assert (found, why) == (None, "NVML: DeviceGetTotalEnergyConsumption: Not Supported")


def test_another_gpu_than_ours_is_not_asked() -> None:
    found, why = find_gpu(uuid=lambda: "another", nvml=HostNvml)
    assert (found, why) == (None, "NVML cannot be used: Not Found")


def test_without_a_gpu_that_is_the_reason() -> None:
    def none() -> str:
        raise RuntimeFailed("no NVIDIA GPU here: libcuda.so.1: no such file")

    assert find_gpu(uuid=none) == (None, "no NVIDIA GPU here: libcuda.so.1: no such file")


def test_without_the_package_that_is_the_reason() -> None:
    def none() -> Any:
        raise ModuleNotFoundError("No module named 'pynvml'")

    found = find_gpu(uuid=lambda: UUID, nvml=none)
    assert found == (None, "nvidia-ml-py is not installed; pip install nvidia-ml-py")


def test_memory_of_this_process_is_told_from_that_of_others() -> None:
    nvml = HostNvml()
    nvml.used = {7: 500 * MIB, 8: 100 * MIB}
    memory = DeviceMemory(gpu_of(nvml), pid=7)
    nvml.used = {7: 530 * MIB, 8: 900 * MIB}
    assert (memory.own, memory.taken_mib()) == (True, 30.0)


@pytest.mark.parametrize("used", [{4242: 500 * MIB}, {7: None, 4242: 500 * MIB}])
def test_where_processes_have_other_numbers_all_that_is_taken_counts(
    used: dict[int, int | None],
) -> None:
    """As in a container, where NVML lists the host's."""
    nvml = HostNvml()
    nvml.used = used
    memory = DeviceMemory(gpu_of(nvml), pid=7)
    nvml.used = {4242: 540 * MIB}
    assert (memory.own, memory.taken_mib()) == (False, 40.0)


def test_memory_of_a_mig_instance_is_the_instance_s() -> None:
    nvml = HostNvml(mig=True)
    memory = DeviceMemory(gpu_of(nvml), pid=7)
    nvml.used = {1: 10 * MIB}
    assert (memory.own, memory.taken_mib()) == (False, 10.0)


def test_memory_that_was_given_back_is_not_less_than_none() -> None:
    nvml = HostNvml()
    nvml.used = {7: 500 * MIB}
    memory = DeviceMemory(gpu_of(nvml), pid=7)
    nvml.used = {7: 100 * MIB}
    assert memory.taken_mib() == 0.0


class Steady:
    """Takes 20 W by a clock that only sleeping moves."""

    least_s = 0.1

    def __init__(self) -> None:
        self.now_s = 0.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def read(self) -> Reading:
        return (round(self.now_s * 1_000),)

    def energy_j(self, before: Reading, after: Reading) -> float:
        return 20.0 * (after[0] - before[0]) / 1_000


@pytest.mark.parametrize(("busy", "watts"), [(0.0, 20.0), (0.04, 20.0), (0.06, None)])
def test_idle_watts_are_those_of_a_calm_machine(busy: float, watts: float | None) -> None:
    found = Steady()

    measured = idle_watts(
        found, clock_s=lambda: found.now_s, sleep=found.sleep, busy_share=lambda: lambda: busy
    )

    assert measured == (None if watts is None else pytest.approx(watts))


def test_busy_cores_are_told_from_the_time_of_all(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 100 700 0 0 0 0 0 0\ncpu0 1 1 1 1\n")
    busy = busy_cores(stat)
    stat.write_text("cpu  120 0 105 775 0 0 0 0 0 0\ncpu0 1 1 1 1\n")
    assert busy() == pytest.approx(0.25)
