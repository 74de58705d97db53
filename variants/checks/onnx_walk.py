"""Walking through an ONNX model, into the graphs inside of nodes too. Takes protobuf messages."""

from collections.abc import Iterator
from typing import Any


def graphs(model: Any) -> Iterator[Any]:
    """The main graph, every graph inside a node, and every function's body."""
    from onnx import AttributeProto

    waiting = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.type == AttributeProto.GRAPH:
                    waiting.append(attribute.g)
                elif attribute.type == AttributeProto.GRAPHS:
                    waiting.extend(attribute.graphs)


def nodes(model: Any) -> Iterator[Any]:
    for graph in graphs(model):
        yield from graph.node


def sparse_tensors(model: Any) -> Iterator[Any]:
    for graph in graphs(model):
        yield from getattr(graph, "sparse_initializer", ())
        for node in graph.node:
            for attribute in node.attribute:
                yield from attribute.sparse_tensors
                if attribute.HasField("sparse_tensor"):
                    yield attribute.sparse_tensor


def tensors(model: Any) -> Iterator[Any]:
    """All constant tensors: initialisers, sparse ones, and those in attributes."""
    for graph in graphs(model):
        yield from getattr(graph, "initializer", ())
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("t"):
                    yield attribute.t
                yield from attribute.tensors
    for sparse in sparse_tensors(model):
        yield from (sparse.values, sparse.indices)


def inner_names(node: Any) -> set[str]:
    """Every name that the graphs inside a node (``If``, ``Loop``, ``Scan``) read."""
    found: set[str] = set()
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            found |= {value.name for value in graph.output}
            for inner in graph.node:
                found |= {*inner.input, *inner_names(inner)}
    return found
