"""What running takes of a GPU's memory and of energy, where that can be read.

A GPU is asked through NVML, which comes with the driver; the package nvidia-ml-py calls it. A CPU
is asked through RAPL, which Linux shows under ``/sys/class/powercap`` (kernel documentation,
``power/powercap``), on machines that are not virtual, to root.

Counters of energy are the whole device's: of the GPU, or of all cores and the memory beside them.
They say what a variant takes while nothing else runs.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Protocol

from variants.errors import RuntimeFailed
from workers.runtimes.cuda import first_device

POWERCAP = Path("/sys/class/powercap")

IDLE_S = 1.0
"""How long the idle draw is watched."""
CALM = 0.05
"""Part of the cores that may be busy meanwhile. A core that runs draws several times its share of
the idle draw, so this is up to a fifth of it."""
_IDLE = 3

Reading = tuple[int, ...]
"""Raw counters, one for each part that is counted."""


class PowerMeter(Protocol):
    """Counts the energy that a device has taken."""

    least_s: float
    """The counter moves in steps: over a shorter time its error is above a few per cent."""

    def read(self) -> Reading:
        """The counters now. Takes microseconds to a millisecond.

        Raises:
            OSError: they cannot be read any more.
        """

    def energy_j(self, before: Reading, after: Reading) -> float:
        """Joules taken between two readings of this meter."""


def meter(
    *,
    gpu: bool = False,
    powercap: Path = POWERCAP,
    find: Callable[[], "tuple[Gpu | None, str]"] | None = None,
) -> tuple[PowerMeter | None, str]:
    """The meter of this process's GPU, or of the CPU; or None and why, in one clause."""
    if not gpu:
        return find_rapl(powercap)
    device, why = (find or find_gpu)()
    if device is None:
        return None, why
    try:
        device.read()
    except OSError as error:
        return None, str(error)
    return device, ""


def idle_watts(
    found: PowerMeter,
    *,
    seconds: float = IDLE_S,
    clock_s: Callable[[], float] = perf_counter,
    sleep: Callable[[float], None] = sleep,
    busy_share: Callable[[], "Callable[[], float]"] | None = None,
) -> float | None:
    """What a device draws while nothing runs on it, in watts; takes ``seconds``.

    None where something else kept the machine busy meanwhile, or the counter cannot be read.
    """
    busy = (busy_share or busy_cores)()
    try:
        before, began_s = found.read(), clock_s()
        sleep(max(seconds, found.least_s))
        after, ended_s = found.read(), clock_s()
    except OSError:
        return None
    if busy() > CALM:
        return None
    return found.energy_j(before, after) / max(ended_s - began_s, 1e-9)


def busy_cores(stat: Path = Path("/proc/stat")) -> Callable[[], float]:
    """Begin to watch all processes; the result says what part of the cores was busy since."""
    before = _core_times(stat)

    def busy() -> float:
        spent = [now - was for was, now in zip(before, _core_times(stat), strict=True)]
        return 1.0 - spent[_IDLE] / total if (total := sum(spent)) else 0.0

    return busy


def _core_times(stat: Path) -> list[int]:
    """Time of all cores in user mode, nice, system, idle and more (``man 5 proc_stat``)."""
    return [int(each) for each in stat.read_text().split("\n", 1)[0].split()[1:9]]


# -- CPU -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Zone:
    counter: Path
    """Microjoules since some time."""
    range_uj: int
    """The largest value; the next is 0."""


class Rapl:
    """The packages of the machine's processors, and their memory where it is counted apart.

    A counter begins again about once in a quarter of an hour at full load. Once between two
    readings is seen; more often is not.
    """

    least_s = 0.1
    """The registers move once a millisecond."""

    def __init__(self, zones: tuple[_Zone, ...]) -> None:
        self._zones = zones

    def read(self) -> Reading:
        return tuple(int(zone.counter.read_text()) for zone in self._zones)

    def energy_j(self, before: Reading, after: Reading) -> float:
        taken_uj = 0
        for zone, was, now in zip(self._zones, before, after, strict=True):
            taken_uj += now - was if now >= was else now + zone.range_uj + 1 - was
        return taken_uj / 1e6


def find_rapl(powercap: Path = POWERCAP) -> tuple[Rapl | None, str]:
    """The machine's RAPL counters, or None and why they cannot be read."""
    zones: list[_Zone] = []
    try:
        for folder in sorted(powercap.glob("intel-rapl:*")):  # AMD's are called so, too
            name = (folder / "name").read_text().strip()
            # A package counts its cores, psys counts the packages, and nothing else counts the
            # memory.
            if name.startswith("package") or name == "dram":
                largest = int((folder / "max_energy_range_uj").read_text())
                zones.append(_Zone(counter=folder / "energy_uj", range_uj=largest))
        found = Rapl(tuple(zones))
        found.read()
    except PermissionError:
        return None, "the processor's energy counters are for root only"
    except (OSError, ValueError) as error:
        return None, f"the processor's energy counters cannot be read: {error}"
    if not zones:
        return None, "this machine shows no energy counters of its processor"
    return found, ""


# -- GPU -------------------------------------------------------------------------------------------


class Gpu:
    """One GPU or MIG instance as NVML sees it; also the meter of its energy."""

    least_s = 2.0
    """The counter moves about ten times a second."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self.name = str(self._ask("nvmlDeviceGetName", handle))
        self.driver = str(self._ask("nvmlSystemGetDriverVersion"))
        """Version of the driver."""

    def read(self) -> Reading:
        """Millijoules since the driver was loaded. A MIG instance has no counter of its own."""
        return (int(self._ask("nvmlDeviceGetTotalEnergyConsumption", self._handle)),)

    def energy_j(self, before: Reading, after: Reading) -> float:
        """A counter of 64 bits: it does not begin again."""
        return (after[0] - before[0]) / 1e3

    def used_mib(self) -> float:
        """Memory of the device that all processes use together."""
        return float(self._ask("nvmlDeviceGetMemoryInfo", self._handle).used) / 2**20

    def used_by_mib(self, pid: int) -> float | None:
        """What a process uses of it; None where NVML does not list the process.

        It lists those with a context. In a container it may give them the host's numbers.
        """
        try:
            listed = self._ask("nvmlDeviceGetComputeRunningProcesses", self._handle)
        except OSError:  # not on a MIG instance
            return None
        mine = [process.usedGpuMemory for process in listed if process.pid == pid]
        known = [float(used) for used in mine if used is not None]
        return sum(known) / 2**20 if known else None

    def _ask(self, question: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, question)(*arguments)
        except self._nvml.NVMLError as error:
            raise OSError(f"NVML: {question.removeprefix('nvml')}: {error}") from error


class DeviceMemory:
    """What this process takes of a GPU's memory from now on.

    Make one once the process has a context: from then on NVML lists it, and what it takes is told
    apart from what others do. Where NVML does not, all that is taken counts, whichever process
    takes it.
    """

    def __init__(self, gpu: Gpu, pid: int | None = None) -> None:
        self._gpu = gpu
        self._pid = os.getpid() if pid is None else pid
        self.own = gpu.used_by_mib(self._pid) is not None
        """Whether others are told apart."""
        self._before_mib = self._used_mib()

    def taken_mib(self) -> float:
        """More than at the begin; never below 0.

        Raises:
            OSError: it cannot be read any more.
        """
        return max(0.0, self._used_mib() - self._before_mib)

    def _used_mib(self) -> float:
        if not self.own:
            return self._gpu.used_mib()
        return self._gpu.used_by_mib(self._pid) or 0.0


def import_nvml() -> Any:
    """NVML's Python module."""
    return import_module("pynvml")


def find_gpu(
    uuid: Callable[[], str] = lambda: first_device().uuid,
    nvml: Callable[[], Any] = import_nvml,
) -> tuple[Gpu | None, str]:
    """The GPU that was given to this process, or None and why it cannot be asked.

    NVML shows all GPUs of the machine, whatever the process may use, so it is asked for the one of
    this UUID.
    """
    try:
        wanted = uuid()
        library = nvml()
    except RuntimeFailed as error:
        return None, error.message
    except ImportError:
        return None, "nvidia-ml-py is not installed; pip install nvidia-ml-py"
    try:
        library.nvmlInit()
        return Gpu(library, _handle(library, wanted)), ""
    except (library.NVMLError, OSError) as error:
        return None, f"NVML cannot be used: {error}"


def _handle(nvml: Any, uuid: str) -> Any:
    """CUDA gives a MIG instance its own UUID, and does not say that it is one."""
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
