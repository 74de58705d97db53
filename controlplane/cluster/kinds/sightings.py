"""Which nodes have the kinds of an installation, and what an operator may do about others. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from controlplane.cluster.kinds.found_kinds import offers_of
from controlplane.cluster.kinds.node import Node, carries, label_of
from controlplane.slices import Kind, Source, cores_of, cpu_kind
from variants.types import DeviceKindName


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Which nodes have which kinds, now."""

    nodes: Mapping[str, tuple[str, ...]]
    """Names of nodes, by device kind."""
    advice: tuple[str, ...] = ()
    """What an operator may do about the others."""


def sighted(
    kinds: Sequence[Kind],
    wanted: Mapping[DeviceKindName, int],
    nodes: Sequence[Node],
    known: Mapping[DeviceKindName, Set[str]] | None = None,
) -> Sighting:
    """Which nodes have the kinds of an installation, and what others could do.

    Args:
        wanted: how many workers of each kind there shall be.
        known: the ids of the nodes of each kind, where that is known better than by their cores.
    """
    hosts = [node for node in nodes if _is_host(node)]
    has = {
        kind.name: [
            node
            for node in hosts
            if (has_kind(node, kind) if known is None else node.id in known.get(kind.name, ()))
        ]
        for kind in kinds
    }
    used = {node.id for found in has.values() for node in found}
    used |= {node.id for node in hosts if node.draining}
    advice: list[str] = []
    new: defaultdict[str, list[str]] = defaultdict(list)
    for offer in offers_of(nodes, 0):
        for node in hosts:
            if node.id in offer.room and node.id not in used:
                new[offer.name].append(node.name)
    for node, name, cores in _too_small(hosts, used, kinds):
        new[name] = [other for other in new[name] if other != node.name]
        advice.append(
            f"node {node.name} has {node.cores} cores, and a worker of {name}, which its label "
            f"names, has {cores}: none runs there"
        )
    told = ", ".join(f"{kind} ({', '.join(names)})" for kind, names in new.items() if names)
    if told:
        advice.append(
            f"nodes offer kinds that no workers use: {told}; `modelless down` and `modelless up` "
            "look anew, or name them in MODELLESS_SLICES"
        )
    for kind in kinds:
        advice += _advice_on(kind, has[kind.name], wanted.get(kind.name, 0), nodes)
    return Sighting(
        nodes={name: tuple(node.name for node in found) for name, found in has.items()},
        advice=tuple(advice),
    )


def _advice_on(
    kind: Kind, has: Sequence[Node], wanted: int, nodes: Sequence[Node]
) -> Iterator[str]:
    """What an operator may do about a kind.

    Args:
        has: the nodes that have it.
        wanted: how many workers of it there shall be.
        nodes: all of the cluster.
    """
    levels = sorted({node.instructions or "" for node in has} - {""})
    if kind.nodes is None and kind.gpu is None and len(levels) > 1:
        names = " and ".join(f"{cpu_kind(kind.cores)}-{level}" for level in levels)
        yield (
            f"nodes of {kind.name} differ, and its profiles are true of one sort of them: name "
            f"{names} in MODELLESS_SLICES, or leave it empty and start anew with `modelless "
            "down` and `modelless up`"
        )
    least = kind.least_of(wanted)
    unseen = kind.gpu is not None and any(node.instructions is None for node in nodes)
    if any(map(_is_host, nodes)) and least and not has and not unseen:
        yield (
            f"no node can have a worker of {kind.name}, and {least} "
            f"{'is' if least == 1 else 'are'} wanted"
        )
    if kind.source is not Source.SET and len(has) > wanted > 0:
        yield (
            f"{len(has)} nodes have {kind.name}, and {wanted} "
            f"{'worker is' if wanted == 1 else 'workers are'} wanted; "
            f"`modelless workers scale {kind.name} {len(has)}` uses them all"
        )


def _is_host(node: Node) -> bool:
    return bool(node.cores or node.gpus)


def _too_small(
    nodes: Iterable[Node], used: Set[str], kinds: Iterable[Kind]
) -> Iterator[tuple[Node, str, int]]:
    """Nodes without a worker that have fewer cores than one of the kind that their label names,
    with this name and its cores."""
    cores_by_kind = {str(kind.name): kind.cores for kind in kinds}
    for node in nodes:
        name = label_of(node)
        cores = cores_by_kind.get(name) or cores_of(name) or 0
        if node.id not in used and node.cores < cores:
            yield node, name, cores


def has_kind(node: Node, kind: Kind) -> bool:
    """Whether workers of a kind may run on a node."""
    if kind.nodes is not None and not carries(node, kind.nodes):
        return False
    if kind.gpu is None:
        return node.cores >= kind.cores
    return kind.nodes is not None or bool(node.gpus)
