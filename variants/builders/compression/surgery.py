"""Taking channels out of a graph: what is left is a smaller graph of the same signature."""

from typing import Any

import numpy as np

from variants.builders.compression.channels import Channels, Mask
from variants.builders.compression.graph import (
    copied,
    drop_unused,
    fresh,
    initialisers,
    names,
    replace_initialisers,
    shapes,
)


def separable(model: Any) -> Any:
    """A copy whose weights each have one user, and whose reshapes say what they make.

    Exporters store equal constants once, and compute the shape of a view from the tensor before it;
    neither survives if channels leave.
    """
    model = copied(model)
    _unshare(model)
    _settle_reshapes(model)
    drop_unused(model)
    return model


def without(model: Any, channels: Channels, kept: Mask) -> Any:
    """A copy of a separable model with only the ``kept`` of its units."""
    model = copied(model)
    values = initialisers(model)
    changed: dict[str, Any] = {}
    for cut in channels.cuts:
        places = np.flatnonzero(kept[cut.units])
        value = changed.get(cut.name, values[cut.name])
        if len(places) < value.shape[cut.axis]:
            changed[cut.name] = value.take(places, cut.axis)
    makers = {name: node for node in model.graph.node for name in node.output}
    for name, units in channels.depthwise:
        entry = next(entry for entry in makers[name].attribute if entry.name == "group")
        entry.i = int(kept[units].sum())
    taken = names(model)
    for name, shape, axis, units in channels.reshapes:
        sizes = [*shape[:axis], int(kept[units].sum()), *shape[axis + 1 :]]
        _give_shape(makers[name], sizes, changed, taken)
    replace_initialisers(model, changed)
    drop_unused(model)
    return model


def _unshare(model: Any) -> None:
    values, taken = initialisers(model), names(model)
    seen: set[str] = set()
    copies = {}
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            value = values.get(name)
            if value is None or value.dtype.kind != "f" or value.size == 1:
                continue
            if name in seen:
                copy = fresh(name, taken)
                taken.add(copy)
                copies[copy] = value
                node.input[place] = copy
            seen.add(name)
    replace_initialisers(model, copies)


def _settle_reshapes(model: Any) -> None:
    """Give every reshape along which only the batch grows a constant shape."""
    values, taken, known = initialisers(model), names(model), shapes(model)
    added: dict[str, Any] = {}
    for node in model.graph.node:
        if node.op_type != "Reshape" or len(node.input) < 2 or node.input[1] in values:
            continue
        growing = known.batch_axes(node.output[0])
        if len(growing) == 1:
            sizes = [
                -1 if axis in growing else size
                for axis, size in enumerate(known.one[node.output[0]])
            ]
            _give_shape(node, sizes, added, taken)
    replace_initialisers(model, added)


def _give_shape(node: Any, sizes: list[int], values: dict[str, Any], taken: set[str]) -> None:
    name = fresh(f"{node.output[0]}_shape", taken)
    taken.add(name)
    values[name] = np.array(sizes, np.int64)
    node.input[1] = name
    for place, entry in enumerate(node.attribute):
        if entry.name == "allowzero":
            del node.attribute[place]
            break
