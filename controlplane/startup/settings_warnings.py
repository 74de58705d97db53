"""Settings that are allowed and probably not meant: they are warned of, never refused."""

import resource
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from dotenv.parser import parse_stream

from controlplane.gateway.protection.connections import connections_within
from controlplane.given_settings import PREFIX
from controlplane.settings import FILE, Settings, known_names, names_given
from variants.container import quota_cores, total_memory_mib, usable_cores
from variants.figures import figure, some_of
from variants.types import Task

FEW_CONNECTIONS = 1_000
"""A gateway that can take fewer is warned of, unless it is to take no more."""
LEAST_MEMORY_MIB = 1_024
"""On one machine, for Ray, gateway, control loop and a worker that holds a few small variants."""
SHOWN = 3
"""So many tasks are named."""


class SettingsWarning(NamedTuple):
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}"


def oversights(settings: Settings) -> list[SettingsWarning]:
    return [
        *misspelled(settings),
        *too_many_cores(settings),
        *part_of_a_core(settings),
        *too_little_memory(settings),
        *too_much_memory(settings),
        *too_few_files(settings),
        *nodes_of_no_cluster(settings),
        *open_to_all_clients(settings),
    ]


def followed_by_none(settings: Settings, tasks: Iterable[Task]) -> list[SettingsWarning]:
    """Tasks whose queries do not follow the plans, unless they say that they prefer the same."""
    wanted = settings.planning.prefer
    by_default: dict[str, list[str]] = {}
    for task in tasks:
        if task.slo.prefer is not wanted:
            by_default.setdefault(task.slo.prefer.value, []).append(task.name)
    return [
        SettingsWarning(
            f"plans are for {wanted.value} (MODELLESS_OBJECTIVE), and queries of "
            f"{some_of(sorted(names), SHOWN)} that do not say what they prefer, prefer {prefer} "
            "and do not follow them",
            f'send "prefer": "{wanted.value}" in their SLO, or register tasks with `--prefer '
            f"{wanted.value}`",
        )
        for prefer, names in sorted(by_default.items())
    ]


def misspelled(settings: Settings) -> list[SettingsWarning]:
    """What nothing is set by: names that are none, and lines that cannot be read."""
    return [*unknown_names(settings), *broken_lines(settings.state_dir / FILE)]


def broken_lines(file: Path) -> list[SettingsWarning]:
    """Lines of the settings file that set nothing. What they say is not told: it may be secret."""
    try:
        with file.open(encoding="utf-8") as text:
            bindings = [*parse_stream(text)]
    except (OSError, UnicodeDecodeError):  # where there is such a file, reading settings says so
        return []
    return [
        SettingsWarning(
            f"line {one.original.line} of {file} is not NAME=value and sets nothing", "correct it"
        )
        for one in bindings
        if one.error or (one.key is not None and one.value is None)
    ]


def unknown_names(settings: Settings) -> list[SettingsWarning]:
    """Names that look like settings and are none, with the nearest that is."""
    known = known_names()
    return [
        SettingsWarning(f"{name} in {where} is no setting", _meant(name, known))
        for where, names in names_given(settings.state_dir).items()
        for name in sorted(names)
        if name.upper() not in known
    ]


def too_many_cores(settings: Settings, cores: int | None = None) -> list[SettingsWarning]:
    """Whether workers on this machine would share cores. ``cores`` is how many it has."""
    have = usable_cores() if cores is None else cores
    # A worker that has a GPU needs little of its core.
    wanted = max(
        sum(kind.cores * layout.get(kind.name, 0) for kind in settings.cpu_kinds)
        for layout in settings.layouts or (settings.begins_with,)
    )
    if settings.ray_address or wanted <= have:
        return []
    name = "SLICES" if settings.slices else "CORES" if settings.cores > have else "WORKERS"
    needed = f" is {wanted} cores" if settings.slices else ""
    return [
        SettingsWarning(
            f"MODELLESS_{name}={getattr(settings, name.lower())}{needed}, and this machine has "
            f"{have} {'core' if have == 1 else 'cores'}: workers share them, and are slower than "
            "their profiles say",
            "set it lower",
        )
    ]


def part_of_a_core(settings: Settings, quota: float | None = None) -> list[SettingsWarning]:
    """Whether a quota leaves less than the one core that a worker has at least. ``quota`` is what
    that of this process's control groups amounts to."""
    cores = quota_cores() if quota is None else quota
    if settings.ray_address or cores is None or cores >= 1:
        return []
    return [
        SettingsWarning(
            f"a quota of processor time leaves {figure(cores, 2)} of a core to all of modelless, "
            "and a worker counts with a whole one: what runs is held back for a part of the time, "
            "so answers come late and profiles say what a full core does",
            "raise it (`cpus` of Docker, `limits.cpu` of Kubernetes, `CPUQuota=` of systemd)",
        )
    ]


def too_little_memory(settings: Settings, total_mib: float | None = None) -> list[SettingsWarning]:
    """Whether this machine, or the limit of its container, leaves what starts here too little.
    The kernel kills processes there, and Ray and Serve do not say so."""
    have_mib = total_memory_mib() if total_mib is None else total_mib
    if settings.ray_address or have_mib >= LEAST_MEMORY_MIB:
        return []
    return [
        SettingsWarning(
            f"there are {have_mib:,.0f} MiB of memory for this machine or its container, and "
            "modelless takes some 650 MiB with small models: the kernel will kill some of its "
            "processes",
            "give it 2 GiB",
        )
    ]


def too_much_memory(settings: Settings, total_mib: float | None = None) -> list[SettingsWarning]:
    """Whether variants may take more memory than there is. ``total_mib`` is what this machine has,
    or what the limit of its container leaves."""
    have_mib = total_memory_mib() if total_mib is None else total_mib
    wanted_mib = max(
        sum(kind.memory_mib * layout.get(kind.name, 0) for kind in settings.cpu_kinds)
        for layout in settings.layouts or (settings.begins_with,)
    )
    if settings.ray_address or wanted_mib <= have_mib:
        return []
    return [
        SettingsWarning(
            f"variants may take {wanted_mib:,.0f} MiB on the workers of this machine, which has "
            f"{have_mib:,.0f} MiB: where they do, the kernel ends workers",
            "set MODELLESS_WORKER_MEMORY_MIB or memory_mib= in MODELLESS_SLICES lower",
        )
    ]


def too_few_files(settings: Settings, files: int | None = None) -> list[SettingsWarning]:
    """Whether gateways could take few connections. ``files`` is how many a process that is started
    from here may have open; a gateway raises its own limit so far."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1] if files is None else files
    wanted = settings.max_connections
    if settings.ray_address or allowed == resource.RLIM_INFINITY:
        return []
    room = connections_within(allowed, wanted)
    if room >= min(wanted, FEW_CONNECTIONS):
        return []
    return [
        SettingsWarning(
            f"{allowed} open files are allowed (ulimit -Hn), so each gateway takes at most {room} "
            "connections of HTTP and as many of gRPC",
            "raise that limit before `modelless up`: LimitNOFILE= of systemd, --ulimit nofile= of "
            "Docker",
        )
    ]


def nodes_of_no_cluster(settings: Settings) -> list[SettingsWarning]:
    """Whether nodes are to be waited for, and there is no cluster that they could join."""
    if settings.ray_address or not settings.nodes:
        return []
    return [
        SettingsWarning(
            f"MODELLESS_NODES={settings.nodes} waits for nodes of a cluster, and "
            "MODELLESS_RAY_ADDRESS names none",
            "set both or neither",
        )
    ]


def open_to_all_clients(settings: Settings) -> list[SettingsWarning]:
    """Whether a proxy leads others to a gateway that takes whoever asks for the operator: only on
    loopback it may be without a token, where the proxy is among those who ask."""
    if settings.api_token or not settings.behind_tls_proxy:
        return []
    return [
        SettingsWarning(
            "MODELLESS_BEHIND_TLS_PROXY says that a proxy leads clients here, and no token is set: "
            "each of them may do what the operator may",
            "set MODELLESS_API_TOKEN, and give clients keys of their own (`modelless keys add`)",
        )
    ]


def _meant(name: str, known: Collection[str]) -> str:
    """The nearest known name as a question, where one is near."""
    # Compared without the prefix, whose letters would make every name a near one.
    bare = {one.removeprefix(PREFIX): one for one in sorted(known, key=_has_prefix)}
    asked = name.upper().removeprefix(PREFIX).lstrip("_")
    near = get_close_matches(asked, bare, n=1, cutoff=0.6)
    return f"did you mean {bare[near[0]]}?" if near else "remove it"


def _has_prefix(name: str) -> tuple[bool, str]:
    return name.startswith(PREFIX), name
