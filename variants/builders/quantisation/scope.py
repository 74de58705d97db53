"""Which nodes of a model are to work on 8 bits, in units that are quantised or left together.

Arithmetic is worth quantising; what lies between two such nodes goes along, so that values are not
turned to fp32 and back on the way. What lies before the first and behind the last stays fp32: it
costs little, and scores keep their full resolution.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

CORES = ("Conv", "Gemm", "MatMul")
"""Operators that do the arithmetic."""
JOINS = ("Add", "Mul", "Concat")
"""Operators with several inputs, which work on 8 bits where all inputs come as 8 bits."""
PASSERS = (
    "AveragePool",
    "Clip",
    "Flatten",
    "GlobalAveragePool",
    "LeakyRelu",
    "MaxPool",
    "Pad",
    "Relu",
    "Reshape",
    "Resize",
    "Sigmoid",
    "Slice",
    "Split",
    "Squeeze",
    "Transpose",
    "Unsqueeze",
)
"""Operators of which only the first input counts; they work on 8 bits where it comes as 8 bits."""
CUTTING = ("Clip", "Relu")
"""Operators that the ends of the 8-bit range replace, where no other node reads the value."""
SHALLOW_CHANNELS = 3
SHALLOW_PRODUCTS = 27
SHALLOW_OUTPUTS = 32


class ScopeOptions(Protocol):
    """What the scope depends on; ``variants.builders.quantisation.qdq.Form`` has it."""

    @property
    def joins(self) -> bool: ...
    @property
    def transposed(self) -> bool: ...
    @property
    def shallow(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A node with arithmetic or several inputs, and what follows it without any."""

    name: str
    """Name of the unit's first node."""
    nodes: tuple[str, ...]


def quantisation_scope(
    model: Any, options: ScopeOptions
) -> tuple[tuple[Unit, ...], tuple[str, ...]]:
    """The units of a ``ModelProto`` in the order of the graph, and the names of the convolutions
    that could be quantised but are quicker in fp32.

    A shallow convolution, over three channels or fewer, is one of those: the 8-bit kernel gathers
    its inputs in strips of as many bytes as there are channels, which takes longer than the
    arithmetic saves.
    """
    from onnx import TensorProto

    graph = model.graph
    shapes = {
        weight.name: tuple(weight.dims)
        for weight in graph.initializer
        if weight.data_type == TensorProto.FLOAT
    }
    odd = _odd_clips(graph)
    members, skipped = _members([n for n in graph.node if n.name not in odd], shapes, options)
    return _units(graph.node, trimmed(graph.node, members)), tuple(skipped)


def pool_first(model: Any, convolutions: Sequence[str]) -> None:
    """Behind the named fp32 convolutions, turn ReLU and MaxPool around; the result is the same.

    ONNX Runtime pulls quantising forward through a MaxPool, which then runs on 8 bits in a slow
    layout, and on what is not pooled yet. It does not pull it through a ReLU, and the ReLU itself
    becomes part of quantising.
    """
    graph = model.graph
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)
    kept = {value.name for value in graph.output}
    for node in [node for node in graph.node if node.name in convolutions]:
        chain = [node]
        for kind in ("Relu", "MaxPool"):
            after = users.get(chain[-1].output[0], [])
            if len(after) != 1 or after[0].op_type != kind or chain[-1].output[0] in kept:
                break
            chain.append(after[0])
        else:
            _, relu, pool = chain
            if len(pool.output) > 1:
                continue
            between, last = relu.output[0], pool.output[0]
            pool.input[0], pool.output[0] = node.output[0], between
            relu.input[0], relu.output[0] = between, last
            _move_behind(graph, relu, pool)
            for value in [v for v in graph.value_info if v.name == between]:
                graph.value_info.remove(value)  # its shape is another one now


def _move_behind(graph: Any, node: Any, other: Any) -> None:
    nodes = list(graph.node)
    nodes.remove(node)
    nodes.insert(nodes.index(other) + 1, node)
    copies = [type(node).FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _members(
    nodes: Sequence[Any], shapes: Mapping[str, tuple[int, ...]], options: ScopeOptions
) -> tuple[set[str], list[str]]:
    """Names of nodes that can take 8 bits, the graph being in order."""
    eight: set[str] = set()
    shared: set[str] = set()
    members: set[str] = set()
    skipped: list[str] = []
    cores = (*CORES, "ConvTranspose") if options.transposed else CORES
    for node in nodes:
        if node.domain not in ("", "ai.onnx"):
            continue
        fed: tuple[str, ...] = ()
        if node.op_type in cores:
            if node.input[1] not in shapes or not _plain(node, shapes[node.input[1]]):
                continue
            if node.op_type == "Conv" and not options.shallow and _is_shallow(node, shapes):
                skipped.append(node.name)
                continue
            fed = (node.input[0],)  # quantised for this node, so there for others too
        elif not options.joins:
            continue
        elif node.op_type in JOINS:
            if not all(name in eight or name in shared for name in node.input):
                continue
        elif node.op_type not in PASSERS or node.input[0] not in eight:
            continue
        members.add(node.name)
        eight.update(node.output)
        shared.update(fed)
    return members, skipped


def trimmed(nodes: Sequence[Any], members: Collection[str]) -> set[str]:
    """The members without what leads to no arithmetic any more, from the outputs backwards.

    What cuts off a convolution's result stays with it: its 8 bits then cover what is left.
    """
    left = set(members)
    users: dict[str, list[Any]] = {}
    makers = {name: node for node in nodes for name in node.output}
    for node in nodes:
        for name in node.input:
            users.setdefault(name, []).append(node)
    for node in reversed(nodes):
        if node.op_type not in (*JOINS, *PASSERS) or node.name not in left:
            continue
        after = [user for name in node.output for user in users.get(name, [])]
        before = makers.get(node.input[0])
        cuts = node.op_type in CUTTING and before is not None and before.op_type == "Conv"
        if not cuts and not any(user.name in left for user in after):
            left.discard(node.name)
    return left


def _units(nodes: Sequence[Any], members: set[str]) -> tuple[Unit, ...]:
    head: dict[str, str] = {}
    units: dict[str, list[str]] = {}
    for node in nodes:
        if node.name not in members:
            continue
        first = head[node.input[0]] if node.op_type in PASSERS else node.name
        units.setdefault(first, []).append(node.name)
        head.update(dict.fromkeys(node.output, first))
    return tuple(Unit(name=name, nodes=tuple(found)) for name, found in units.items())


def _is_shallow(node: Any, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    outputs, channels, *kernel = shapes[node.input[1]]
    group = next((a.i for a in node.attribute if a.name == "group"), 1)
    area = 1
    for size in kernel:
        area *= size
    return (
        group == 1
        and area > 1
        and channels <= SHALLOW_CHANNELS
        and channels * area <= SHALLOW_PRODUCTS
        and outputs <= SHALLOW_OUTPUTS
    )


def _odd_clips(graph: Any) -> set[str]:
    """Names of the ``Clip`` nodes that the ends of a range cannot stand for, because a range always
    holds zero; or whose bounds are not known."""
    from onnx import numpy_helper

    known = {weight.name: weight for weight in graph.initializer}
    found = set()
    for node in graph.node:
        if node.op_type != "Clip":
            continue
        for name, sign in zip(node.input[1:], (1, -1), strict=False):
            if name and (name not in known or sign * numpy_helper.to_array(known[name]) > 0):
                found.add(node.name)
    return found


def _plain(node: Any, weight: tuple[int, ...]) -> bool:
    """Whether a Gemm is a matrix product and a bias, and a MatMul one of two matrices, which is all
    that 8-bit kernels know."""
    values = {a.name: a for a in node.attribute}
    if node.op_type == "MatMul":
        return len(weight) == 2
    return node.op_type != "Gemm" or not (
        ("alpha" in values and values["alpha"].f != 1.0)
        or ("beta" in values and values["beta"].f != 1.0)
        or ("transA" in values and values["transA"].i)
    )
