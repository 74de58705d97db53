"""Which device kinds the nodes of a cluster are. Pure: from facts of nodes to slices.

Nodes that differ in what a worker of theirs can do are different kinds, for which models are
measured and planned apart: those with other instructions, or with another number of cores where
the workers have all of them. What cannot be seen, an operator says by a label of the node.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from controlplane.cluster.kinds.node import (
    KIND_LABEL,
    LABELS,
    NODE_LABEL,
    Node,
    carries,
    cores_left,
    label_of,
)
from controlplane.gpus import NAMES as GPU_NAMES
from controlplane.slices import (
    GPU_CORES,
    MOST_WORKERS,
    NodesWith,
    Slice,
    Source,
    cores_of,
    cpu_kind,
)
from variants.types import NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a look at the nodes says."""

    slices: tuple[Slice, ...] = ()
    """The kinds; none where the settings say all there is to say."""
    remarks: tuple[str, ...] = ()
    """Sentences for the operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Nodes that can have workers of a kind."""

    name: str
    cores: int
    """Of one worker."""
    gpu: str | None = None
    room: dict[str, int] = field(default_factory=dict)
    """How many workers fit, by the id of the node."""
    memory_mib: list[float] = field(default_factory=list)
    """What variants may take on one worker, on each node of which that is known."""


def found_slices(
    nodes: Sequence[Node], *, workers: int = 1, cores: int = 0, gpus: int = -1
) -> Found:
    """The slices of a cluster of which the settings name no kinds.

    Nodes that are alike have workers as the settings say; where these say nothing, each node is one
    worker of all of its cores. Nodes that differ are kinds of their own, bound to them.

    Args:
        workers: how many in all; 1 and no ``cores``: as many as fit.
        cores: of all of these; 0: all of the nodes'.
        gpus: how many of the nodes' to use; -1: all.
    """
    each = max(1, cores // workers) if cores else 0
    if not gpus:  # then they need no cores either
        nodes = [replace(node, gpus=()) for node in nodes]
    offers = offers_of(nodes, each)
    remarks = (*_remarks(nodes, offers), *_in_no_kind(nodes, offers, each))
    cpus = [one for one in offers if one.gpu is None]
    room = [sum(one.room.values()) for one in cpus]
    counts = _dealt(room, workers) if each or workers > 1 else room
    if offers and workers > sum(counts) and (each or workers > 1):
        whole = "" if each else ", each with all cores of its node; MODELLESS_CORES makes them less"
        remarks += (f"the nodes have room for {sum(counts)} of {workers} workers{whole}",)
    if not offers or (each and [one.name for one in offers] == [cpu_kind(each)]):
        return Found(remarks=remarks)
    left = MOST_WORKERS if gpus < 0 else gpus
    for one in offers[len(cpus) :]:
        counts.append(min(sum(one.room.values()), left))
        left -= counts[-1]
    numbered = each or workers > 1 or gpus >= 0
    source = Source.NUMBERED if numbered else Source.FOUND
    slices = (slice_of(one, n, nodes, source) for one, n in zip(offers, counts, strict=True) if n)
    return Found(slices=tuple(slices), remarks=remarks)


def bound_slices(given: Sequence[Slice], nodes: Sequence[Node]) -> Found:
    """The slices that the settings name, bound to the nodes that have their kind."""
    whole = {offer.name: offer for offer in offers_of(nodes, 0)}
    free = [one for one in given if one.gpu is None and one.nodes is None]
    bound = []
    for one in given:
        offers = offers_of(nodes, one.cores if one.gpu is None else 0)
        offer = next((each for each in offers if each.name == one.name), None)
        if one in free and any(other.name in whole for other in free if other != one):
            offer = _with_room(whole.get(one.name), one) or offer
        if one.nodes is not None or offer is None:
            bound.append(one)
        else:
            bound.append(replace(one, nodes=nodes_with(offer, nodes)))
    return Found(slices=tuple(bound), remarks=_remarks(nodes, ()))


def _with_room(whole: Offer | None, one: Slice) -> Offer | None:
    """The nodes whose cores are just those of a worker, where they have room for all: on others it
    would take the place of a kind that fits nowhere else."""
    if whole is None or whole.cores != one.cores or sum(whole.room.values()) < one.most:
        return None
    return whole


def found_words(slices: Iterable[Slice], nodes: Sequence[Node]) -> str:
    """What was found, in words: ``2x cpu-4-avx2 (a, b), 1x cpu-4-amx (c)``."""
    told = []
    for one in slices:
        names = [node.name for node in nodes if one.nodes is None or carries(node, one.nodes)]
        hosts = f" ({', '.join(names)})" if one.nodes is not None else ""
        told.append(f"{one.most}x {one.name}{hosts}")
    return ", ".join(told)


def offers_of(nodes: Sequence[Node], each: int) -> list[Offer]:
    """What nodes can have, by kind; workers have ``each`` cores, or 0: all of their node's."""
    found: dict[str, Offer] = {}
    alike: dict[int, list[Node]] = defaultdict(list)
    smallest = _smallest_by_label(nodes)
    for node in nodes:
        named = label_of(node)
        of_gpu = cores_of(named) is None and named.startswith(GPU_NAMES)
        for model in node.gpus:
            name = named if of_gpu else model.kind
            offer = found.setdefault(name, Offer(name=name, cores=GPU_CORES, gpu=model.name))
            offer.room[node.id] = offer.room.get(node.id, 0) + model.count
            offer.memory_mib.append(model.usable_mib)
        size = cores_of(named) or each or cores_left(node)
        if named and not of_gpu:
            size = cores_of(named) or each or smallest.get(named, 0)
            offer = found.setdefault(named, Offer(name=named, cores=size))
            add_room(offer, node, offer.cores)
        else:
            alike[size].append(node)
    for size, members in sorted(alike.items()):
        levels = {node.instructions for node in members} - {None}
        for node in members:
            if node.instructions is None and len(levels) > 1:
                continue  # nobody knows which of them it is
            name = cpu_kind(size) if len(levels) < 2 else f"{cpu_kind(size)}-{node.instructions}"
            add_room(found.setdefault(name, Offer(name=name, cores=size)), node, size)
    return sorted((one for one in found.values() if one.room), key=lambda one: bool(one.gpu))


def _in_no_kind(nodes: Iterable[Node], offers: Iterable[Offer], each: int) -> tuple[str, ...]:
    """What to know of nodes that are in no kind because they did not say what they are.

    Args:
        each: the cores of a worker; 0: all of its node's.
    """
    hosts = {node_id for one in offers for node_id in one.room}
    return tuple(
        f"no worker runs on {node.name}: other nodes with as many cores differ, and which of them "
        "it is like is not known"
        for node in nodes
        if node.instructions is None and not label_of(node) and node.id not in hosts
        if cores_left(node) >= max(1, each)
    )


def _smallest_by_label(nodes: Iterable[Node]) -> dict[str, int]:
    """The cores of the smallest node that has workers, by the label: each node of a kind has room
    for a worker, and what the kind is does not depend on the order of the nodes."""
    found: dict[str, int] = {}
    for node in nodes:
        if left := cores_left(node):
            name = label_of(node)
            found[name] = min(left, found.get(name, left))
    return found


def add_room(offer: Offer, node: Node, cores: int) -> None:
    """Workers of so many cores on a node, with their part of half of its memory."""
    left = cores_left(node)
    if cores and left >= cores:
        offer.room[node.id] = left // cores
        if node.memory_mib:
            offer.memory_mib.append(node.memory_mib / 2 * cores / left)


def slice_of(
    offer: Offer, count: int, nodes: Sequence[Node], source: Source = Source.FOUND
) -> Slice:
    """So many workers on the nodes of an offer, as a device kind."""
    memory_mib = float(int(min(offer.memory_mib, default=0)))
    return Slice(
        name=offer.name,
        cores=offer.cores,
        most=min(count, MOST_WORKERS),
        memory_mib=memory_mib or None,
        gpu=offer.gpu,
        nodes=nodes_with(offer, nodes),
        source=source,
    )


def nodes_with(offer: Offer, nodes: Sequence[Node]) -> NodesWith | None:
    """The label that tells the nodes of an offer from others that could have its workers too; None
    where there are no others."""
    here = [node for node in nodes if node.id in offer.room]
    others = [node for node in nodes if node.id not in offer.room]
    rivals = [n for n in others if (n.gpus if offer.gpu is not None else n.cores >= offer.cores)]
    if not rivals:
        return None
    for label in LABELS:
        values = {node.labels.get(label, "") for node in here}
        if "" not in values and values.isdisjoint(node.labels.get(label, "") for node in others):
            return NodesWith(label, tuple(sorted(values)))
    return NodesWith(NODE_LABEL, tuple(sorted(offer.room)))


def _dealt(room: Sequence[int], most: int) -> list[int]:
    """So many workers in all, to each kind in proportion to its room (D'Hondt)."""
    counts = [0] * len(room)
    for _ in range(min(most, sum(room))):
        kind = max(range(len(room)), key=lambda one: room[one] / (counts[one] + 1))
        counts[kind] += 1
    return counts


def _remarks(nodes: Sequence[Node], offers: Sequence[Offer]) -> tuple[str, ...]:
    """What an operator should know of the nodes."""
    told = []
    for node in nodes:
        label = node.labels.get(KIND_LABEL, "")
        if label and not NAME.fullmatch(label):
            told.append(f"{KIND_LABEL}={label} of node {node.name} is no name of a kind")
    silent = [n.name for n in nodes if n.instructions is None and KIND_LABEL not in n.labels]
    if silent:
        told.append(
            f"{', '.join(silent)} did not say in time what processor "
            f"{'it has' if len(silent) == 1 else 'they have'}; the label {KIND_LABEL} says it too"
        )
    for one in offers:
        merged = [n.name for n in nodes if n.name in silent and n.id in one.room]
        if merged and one.gpu is None:
            told.append(
                f"{', '.join(merged)} {'counts' if len(merged) == 1 else 'count'} as {one.name}, "
                "whose profiles are wrong there if the processor is another one"
            )
        there = {n.processor for n in nodes if n.id in one.room and n.processor}
        if one.gpu is None and len(there) > 1:
            told.append(
                f"nodes of {one.name} have different processors ({', '.join(sorted(there))}); "
                f"where that matters, tell them apart by the label {KIND_LABEL}"
            )
    return tuple(told)
