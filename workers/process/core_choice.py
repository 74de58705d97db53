"""Which of a machine's cores a slice takes: those that belong together, decided from values."""

import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from variants.figures import counted

SYSTEM = Path("/sys/devices/system")


@dataclass(frozen=True, slots=True)
class Topology:
    """How the cores that the kernel numbers belong together; what is not known stands alone."""

    node_of: Mapping[int, int]
    """NUMA node of each core."""
    physical_of: Mapping[int, int]
    """First of the cores (hyper-threads) that share a physical core with each."""


def chosen(count: int, free: Collection[int], topology: Topology) -> tuple[int, ...]:
    """So many of the free cores, or none where there are fewer.

    All are of one NUMA node where one has so many: the one with the fewest left over, so that
    others keep room for larger slices. There whole physical cores are taken first, and what is
    then missing from those of which a part is taken already: two slices share a physical core only
    where there are no others. The same cores are free again when a worker has ended, and are
    chosen again.
    """
    by_node: dict[int, list[int]] = {}
    for core in sorted(free):
        by_node.setdefault(topology.node_of.get(core, 0), []).append(core)
    if count > sum(map(len, by_node.values())):
        return ()
    nodes = sorted(by_node, key=lambda node: (len(by_node[node]) < count, len(by_node[node]), node))
    if len(by_node[nodes[0]]) < count:
        nodes.sort(key=lambda node: (-len(by_node[node]), node))  # over as few nodes as possible
    taken: list[int] = []
    for node in nodes:
        taken += _of_node(count - len(taken), by_node[node], topology)
    return tuple(sorted(taken))


def _of_node(count: int, free: Collection[int], topology: Topology) -> list[int]:
    """As many of a node's free cores as there are, up to ``count``."""
    siblings: dict[int, list[int]] = {}
    for core in sorted(free):
        siblings.setdefault(topology.physical_of.get(core, core), []).append(core)
    groups = sorted(siblings.values(), key=lambda group: (-len(group), group[0]))
    taken: list[int] = []
    for group in groups:
        if len(taken) + len(group) <= count:
            taken += group
    rest = [core for group in reversed(groups) for core in group if core not in taken]
    return taken + rest[: count - len(taken)]


def topology(system: Path = SYSTEM) -> Topology:
    """What the kernel says of this machine; on one that says nothing all cores are alike."""
    node_of: dict[int, int] = {}
    for folder in sorted(system.glob("node/node[0-9]*")):
        for core in _cores_of(folder / "cpulist"):
            node_of[core] = int(folder.name.removeprefix("node"))
    physical_of: dict[int, int] = {}
    for folder in system.glob("cpu/cpu[0-9]*"):
        threads = _cores_of(folder / "topology" / "thread_siblings_list")
        physical_of |= dict.fromkeys(threads, min(threads, default=0))
    return Topology(node_of, physical_of)


def why_not(allowed: Collection[int], quota: float | None) -> str:
    """Why no core of this process may be taken as its own; empty where they may be."""
    if not hasattr(os, "sched_setaffinity"):
        return "this system pins no processes"
    if quota is not None and quota < len(allowed):
        return (
            f"its container may use {quota:g} of {counted(len(allowed), 'core')}, by a quota, and "
            "shares all of them with others"
        )
    return ""


def _cores_of(path: Path) -> list[int]:
    """The cores that a list such as ``0-3,8`` names."""
    found: list[int] = []
    with suppress(OSError):
        for first, last in re.findall(r"([0-9]+)(?:-([0-9]+))?", path.read_text()):
            found += range(int(first), int(last or first) + 1)
    return found
