"""Checks of the machine: cores, memory, and the niceness of what runs there."""

import resource
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import psutil

from controlplane.cluster.autoscaling.monitor import autoscaler_with, monitors
from controlplane.gpus import machine_gpus
from controlplane.settings import Settings
from controlplane.startup.checks.finding import Finding, fine, problem, warning
from controlplane.startup.checks.state import running_here
from controlplane.views.machines.core_shortage import core_shortages
from variants.builders.gpu_requirements import missing_gpu, missing_onnxruntime_gpu
from variants.container import free_memory_mib
from variants.core_time import CoreMeter
from variants.figures import counted

GATEWAY = "ray::ServeReplica:modelless-gateway"
"""How the title begins that Ray gives the process of a gateway."""

GCS = "--gcs-address="
"""Begins the argument by which a raylet knows its Ray."""
LOOKS_S = 1.0
"""For so long the doctor watches the cores."""


def cores(settings: Settings) -> Iterator[Finding]:
    """Whether each worker has its own cores."""
    from controlplane.startup.settings_warnings import part_of_a_core, too_many_cores

    found = [*too_many_cores(settings), *part_of_a_core(settings)]
    for one in found:
        yield warning("cores", one.what, one.remedy)
    if not found:
        each = " + ".join(
            f"{counted(kind.most, 'worker')} of {counted(kind.cores, 'core')}"
            for kind in settings.cpu_kinds
        )
        yield fine("cores", each or "no worker without a GPU")


def memory(settings: Settings) -> Iterator[Finding]:
    """Whether variants could fill the workers; what is free is not asked while they do it."""
    from controlplane.startup.settings_warnings import too_little_memory, too_much_memory

    if strict := _strict(settings, "memory"):
        yield strict
        return
    if found := [*too_little_memory(settings), *too_much_memory(settings)]:
        yield from (problem("memory", one.what, one.remedy) for one in found)
        return
    needed = sum(kind.memory_mib * kind.most for kind in settings.cpu_kinds)
    free = free_memory_mib()
    said = f"{free:,.0f} MiB free, workers may fill {needed:,.0f} MiB"
    if running_here(settings) is not None or free >= needed:
        yield fine("memory", said)
    else:
        yield problem(
            "memory", said, "end other programs, or set MODELLESS_WORKER_MEMORY_MIB lower"
        )


def _strict(settings: Settings, of: str) -> Finding | None:
    """The problem that a limit of processes is too low for `modelless up`."""
    from controlplane.startup.process_limits import strict_limits

    found = [one for one in strict_limits(settings) if one.of == of]
    return problem(of, found[0].what, found[0].remedy) if found else None


def processes(settings: Settings) -> Iterator[Finding]:
    """Whether as many processes and threads may run as `modelless up` starts."""
    from controlplane.startup.process_limits import allowed_tasks

    if strict := _strict(settings, "processes"):
        yield strict
        return
    most = allowed_tasks()
    yield fine("processes", "any number may run" if most < 0 else f"up to {most:,} may run")


def files(settings: Settings) -> Iterator[Finding]:
    """Whether gateways that are started from here may have files open for enough connections."""
    from controlplane.startup.settings_warnings import too_few_files

    if strict := _strict(settings, "files"):
        yield strict
        return
    if found := too_few_files(settings):
        yield from (warning("files", one.what, one.remedy) for one in found)
        return
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    said = "any number" if allowed == resource.RLIM_INFINITY else f"{allowed:,}"
    yield fine("files", f"{said} may be open in one process")


def gpus(settings: Settings) -> Iterator[Finding]:
    """Whether workers that have a GPU find one here, and something to run on it."""
    wanted = {kind.gpu: kind for kind in settings.kinds if kind.gpu is not None}
    here = machine_gpus()
    for model in here:
        kind = wanted.pop(model.name, None)
        use = f"{kind.most} for workers of {kind.memory_mib:,.0f} MiB" if kind else "none used"
        yield fine("gpus", f"{model.count} x {model.name}, {model.memory_mib:,.0f} MiB, {use}")
    if not here and not wanted:
        yield fine("gpus", missing_gpu() or "no GPU that NVML lists")
    for kind in wanted.values() if not settings.ray_address else ():
        yield problem(
            "gpus",
            f"{kind.name} is to have a GPU, and there is no such GPU here",
            "take it out of MODELLESS_SLICES, or install NVIDIA's driver",
        )
    if here and settings.all_gpus and (why := missing_onnxruntime_gpu()):
        where = "see docs/reference/devices.md"
        yield warning("gpus", f"no ONNX model can run on the GPU: {why}", where)


def nodes(settings: Settings) -> Iterator[Finding]:
    """Whether something starts nodes as a plan needs them; it runs on the head, if anywhere."""
    if not settings.ray_address:
        yield fine("nodes", "one machine: no nodes are asked for")
        return
    found = [one for arguments in monitors() if (one := autoscaler_with(arguments))]
    where = "`modelless nodes list` says what the control loop found"
    yield fine("nodes", f"{found[0] if found else 'no autoscaler on this machine'}; {where}")


def taken_cores(
    settings: Settings,
    meter_of: Callable[[Callable[[], float]], CoreMeter] = lambda used_s: CoreMeter(
        used_s=used_s, least_s=LOOKS_S
    ),
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Finding]:
    """Whether other programs, a quota or a hypervisor take the cores, for a moment."""
    ours = _replicas(settings)
    meter = meter_of(lambda: sum(map(_spent_s, ours)))
    meter.look()
    pause(LOOKS_S)
    seen = meter.look()
    short = core_shortages(() if seen is None else (seen,))
    yield from (warning("core time", one.why, one.remedy) for one in short)
    if not short and (seen is None or seen.waited is None):
        yield fine("core time", "this kernel does not tell whether something waits for a core")
    elif not short and seen is not None:
        share = f"{100 * (seen.waited or 0.0):.0f} %"
        yield fine("core time", f"something waited for a core in {share} of {LOOKS_S:,g} s")


def _spent_s(process: psutil.Process) -> float:
    """Processor time that it has taken; 0 where it has ended."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _replicas(settings: Settings) -> list[psutil.Process]:
    """The gateways and workers of this machine. Where an installation runs on the state directory,
    what others run does not count."""
    state = running_here(settings) or {}
    return [
        process
        for process in psutil.process_iter(("pid", "name", "nice", "cmdline"))
        if answers_queries(process.info["cmdline"] or ()) and _is_of(process, state)
    ]


def niceness(settings: Settings) -> Iterator[Finding]:
    """Whether what answers queries on this machine yields to everything else that runs on it."""
    replicas = [(one.info["pid"], one.info["nice"]) for one in _replicas(settings)]
    if not replicas:
        yield fine("niceness", "no gateway or worker runs on this machine")
        return
    nice = [f"{pid} (niceness {level})" for pid, level in replicas if (level or 0) > 0]
    if nice:
        yield problem(
            "niceness",
            f"{len(nice)} of {len(replicas)} gateways and workers on this machine yield to other"
            f" programs: {', '.join(nice[:8])}",
            "start Ray with RAY_worker_niceness=0 in the environment of `ray start`",
        )
    else:
        yield fine("niceness", f"0 in each of {len(replicas)} gateways and workers on this machine")


def _is_of(process: psutil.Process, state: Mapping[str, object]) -> bool:
    """Whether a process belongs to the installation of this state; where there is none, any does.

    On one machine it is a descendant of ``modelless up``: of its raylet, or forked from the
    template that it has started. On a cluster it was started by a raylet of the cluster that was
    joined.
    """
    if not (of := str(state.get("ray") or "")):
        return True
    try:
        above = process.parents()
        raylet = above[0].cmdline() if above else []
    except psutil.Error:
        return False
    return f"{GCS}{of}" in raylet or state.get("pid") in [one.pid for one in above]


def answers_queries(command: Sequence[str]) -> bool:
    """Whether a process is a gateway or a worker, by the title that Ray gives a Serve replica.

    The control loop is none: it yields to them on purpose.
    """
    return bool(command) and command[0].startswith((GATEWAY, "ray::ServeReplica:modelless-worker"))


def gateway_runs() -> bool:
    """Whether a gateway runs on this machine. On a cluster `modelless up` may be elsewhere."""
    commands = [one.info["cmdline"] or () for one in psutil.process_iter(("cmdline",))]
    return any(command and command[0].startswith(GATEWAY) for command in commands)
