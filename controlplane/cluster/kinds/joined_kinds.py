"""What nodes are that join a running installation: more of a kind that it has, or a new one. Pure.

Kinds keep their names and their nodes: a worker is never taken from a node because another node has
come. So a node is of the kind whose workers it has, or else of the one whose name says what it is.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from controlplane.cluster.kinds.found_kinds import Offer, add_room, nodes_with, slice_of
from controlplane.cluster.kinds.node import (
    KIND_LABEL,
    NODE_LABEL,
    Node,
    carries,
    cores_left,
    label_of,
)
from controlplane.gpus import NAMES as GPU_NAMES
from controlplane.gpus import GpuModel
from controlplane.slices import (
    GPU_CORES,
    MOST_KINDS,
    MOST_WORKERS,
    NodesWith,
    Slice,
    cores_of,
    cpu_kind,
)
from variants.types import DeviceKindName


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The kinds of an installation with the nodes that have joined and without those that left."""

    slices: tuple[Slice, ...]
    """With as many workers as there is room for, at least those of the start; 0 of a kind that came
    later and whose nodes have left."""
    nodes: Mapping[DeviceKindName, Set[str]]
    """The ids of the nodes of each kind."""
    waiting: frozenset[str] = frozenset()
    """The ids of nodes that a worker of a known kind may be put on, and are no new kind yet."""
    remarks: tuple[str, ...] = ()
    """Sentences for the operator."""


def joined_kinds(
    started: Iterable[Slice],
    now: Sequence[Slice],
    nodes: Sequence[Node],
    homes: Mapping[str, Set[str]],
    missing: Set[str] = frozenset(),
    waited: Set[str] = frozenset(),
    *,
    autoscaled: bool = False,
) -> Joined:
    """The kinds now, of nodes that may all have workers.

    Args:
        started: the kinds of the start: they keep at least their workers.
        now: all kinds, as they were at the last look.
        homes: names of the kinds whose workers run, or ran, on a node, by its id.
        missing: kinds whose workers wait for room, and are put wherever there is some.
        waited: ids of nodes that have waited long enough for one.
        autoscaled: whether nodes come and go by themselves: a worker that each of them got would
            keep it from going, so none gets one.
    """
    known = {one.name: one for one in now}
    by_kind = _sorted(known, nodes, homes, missing, waited)
    room = {name: _staying(found, nodes) for name, found in by_kind.room.items()}
    remarks = by_kind.remarks
    least = {one.name: one.most for one in started}
    slices = [
        replace(
            one,
            most=max(
                least.get(one.name, 0),
                min(one.most if autoscaled else MOST_WORKERS, sum(room[one.name].values())),
            ),
            nodes=_widened(one, room[one.name], nodes),
        )
        for one in now
    ]
    strange = [one for one in by_kind.strange if not (one[0].draining or autoscaled)]
    for offer in _new_kinds(strange, known):
        if len(slices) < MOST_KINDS:
            slices.append(slice_of(offer, sum(offer.room.values()), nodes))
            room[offer.name] = offer.room
        else:
            remarks.append(
                f"{offer.name} would be one kind more than the {MOST_KINDS} there may be"
            )
    return Joined(
        slices=tuple(slices),
        nodes={DeviceKindName(name): frozenset(found) for name, found in room.items()},
        waiting=frozenset(by_kind.waiting),
        remarks=tuple(remarks),
    )


@dataclass(slots=True)
class _Sorted:
    """Nodes by what they are."""

    room: dict[str, dict[str, int]]
    """How many workers of each kind fit on each node of it, by its id."""
    strange: list[tuple[Node, GpuModel | None]] = field(default_factory=list)
    """What is of no known kind: GPUs, or else the cores of a node."""
    waiting: set[str] = field(default_factory=set)
    remarks: list[str] = field(default_factory=list)


def _sorted(
    known: Mapping[str, Slice],
    nodes: Sequence[Node],
    homes: Mapping[str, Set[str]],
    missing: Set[str],
    waited: Set[str],
) -> _Sorted:
    """What nodes are, of the kinds there are; the arguments are ``joined_kinds``'."""
    levels: defaultdict[str, set[str]] = defaultdict(set)
    for node in nodes:
        for name in homes.get(node.id, ()):
            levels[name] |= {node.instructions} if node.instructions else set()
    found = _Sorted({name: {} for name in known})
    for node in nodes:
        for model in node.gpus:
            name = _gpu_kind(node, model)
            if name in known:
                room = found.room[name]
                room[node.id] = room.get(node.id, 0) + model.count
            else:
                found.strange.append((node, model))
        own = _own_kind(node, known, homes.get(node.id, frozenset()), levels)
        if own is None and node.id not in waited and _may_take(node, known, missing):
            found.waiting.add(node.id)
        elif own is None:
            found.strange.append((node, None))
        elif (fit := _fitting(node, own)) and not _lacks_memory(node, own):
            found.room[own.name][node.id] = fit
        elif fit:
            found.remarks.append(
                f"no worker of {own.name} is started on {node.name}: it has {node.memory_mib:,.0f} "
                f"MiB, and each takes {own.memory_mib:,.0f} MiB for variants alone"
            )
    return found


def _staying(room: Mapping[str, int], nodes: Sequence[Node]) -> dict[str, int]:
    """Without nodes that drain, unless these are all: then what replaces them is wanted."""
    going = {node.id for node in nodes if node.draining}
    return {id_: fit for id_, fit in room.items() if id_ not in going} or dict(room)


def _may_take(node: Node, known: Mapping[str, Slice], missing: Set[str]) -> bool:
    """Whether a worker that waits for room may be put on a node."""
    return any(
        one.name in missing
        and one.gpu is None
        and cores_left(node) >= one.cores
        and (one.nodes is None or carries(node, one.nodes))
        for one in known.values()
    )


def _gpu_kind(node: Node, model: GpuModel) -> str:
    named = label_of(node)
    return named if cores_of(named) is None and named.startswith(GPU_NAMES) else model.kind


def _own_kind(
    node: Node, known: Mapping[str, Slice], home: Set[str], levels: Mapping[str, Set[str]]
) -> Slice | None:
    """The kind that the cores of a node are, of those there are."""
    at_home = [
        one
        for one in known.values()
        if one.gpu is None and (one.name in home or _is_named_by(one, node))
    ]
    if at_home:  # a worker that may run anywhere takes no node from a kind that is bound to it
        return min(at_home, key=lambda one: (not _bound_to(one, node), one.name))
    named = label_of(node)
    if named and not named.startswith(GPU_NAMES):
        return known.get(named)
    plain = cpu_kind(cores_left(node))
    exact = known.get(f"{plain}-{node.instructions}")
    if exact is not None:
        return exact
    if plain in known and levels.get(plain, frozenset()) <= {node.instructions}:
        return known[plain]
    return None


def _bound_to(kind: Slice, node: Node) -> bool:
    return kind.nodes is not None and carries(node, kind.nodes)


def _is_named_by(kind: Slice, node: Node) -> bool:
    """Whether a kind is bound to this very node, or by the label in which an operator names it."""
    of_one = kind.nodes is not None and kind.nodes.label in (NODE_LABEL, KIND_LABEL)
    return of_one and _bound_to(kind, node)


def _fitting(node: Node, kind: Slice) -> int:
    return cores_left(node) // kind.cores


def _lacks_memory(node: Node, kind: Slice) -> bool:
    """Whether variants would take more than all that a worker's cores have there."""
    if not node.memory_mib or not kind.memory_mib:
        return False
    return kind.memory_mib > node.memory_mib * kind.cores / cores_left(node)


def _widened(kind: Slice, room: Mapping[str, int], nodes: Sequence[Node]) -> NodesWith | None:
    """Where workers of a kind run; as before, unless a node of it would have none."""
    here = [node for node in nodes if node.id in room]
    if kind.nodes is None or all(carries(node, kind.nodes) for node in here):
        return kind.nodes
    return nodes_with(Offer(name=kind.name, cores=kind.cores, gpu=kind.gpu, room=dict(room)), nodes)


def _new_kinds(
    strange: Iterable[tuple[Node, GpuModel | None]], known: Mapping[str, Slice]
) -> list[Offer]:
    """What nodes offer that no kind has. Those that did not say what they are wait."""
    found: dict[str, Offer] = {}
    alike: defaultdict[int, list[Node]] = defaultdict(list)
    labelled: defaultdict[str, list[Node]] = defaultdict(list)
    for node, model in strange:
        named = label_of(node)
        if model is not None:
            name = _gpu_kind(node, model)
            offer = found.setdefault(name, Offer(name=name, cores=GPU_CORES, gpu=model.name))
            offer.room[node.id] = offer.room.get(node.id, 0) + model.count
            offer.memory_mib.append(model.usable_mib)
        elif node.instructions is None or not cores_left(node):
            continue
        elif named and not named.startswith(GPU_NAMES):
            labelled[named].append(node)
        else:
            alike[cores_left(node)].append(node)
    for name, members in sorted(labelled.items()):
        cores = cores_of(name) or min(map(cores_left, members))
        offer = Offer(name=name, cores=cores)
        for node in members:
            add_room(offer, node, cores)
        found[name] = offer
    for cores, members in sorted(alike.items()):
        plain = cpu_kind(cores)
        told = plain in known or len({node.instructions for node in members}) > 1
        for node in members:
            name = f"{plain}-{node.instructions}" if told else plain
            add_room(found.setdefault(name, Offer(name=name, cores=cores)), node, cores)
    return [one for one in found.values() if one.room]
