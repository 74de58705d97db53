"""An ONNX graph as a torch module, whose trained weights can be written back. Imports torch."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from variants.builders.activations import first_line
from variants.builders.compression.graph import copied, initialisers, opset, replace_initialisers
from variants.builders.compression.layers import LAYERS
from variants.builders.compression.operators import Call, Operator, Tensor, Unsupported
from variants.errors import VariantNotBuilt

_WEIGHTS = {
    "BatchNormalization": (1, 2),
    "Conv": (1, 2),
    "ConvTranspose": (1, 2),
    "Gather": (0,),
    "Gemm": (1, 2),
    "GroupNormalization": (1, 2),
    "InstanceNormalization": (1, 2),
    "LayerNormalization": (1, 2),
    "MatMul": (0, 1),
    "PRelu": (1,),
    "RMSNormalization": (1,),
}
"""The places of an operator's inputs that are weights."""
_SHIFTS = frozenset({"Add", "Concat", "Div", "Mul", "Sub"})
"""Their constants are weights behind the first layer (a bias, a learned scale, a class token);
before it they prepare the input and stay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """One node, ready to run."""

    operator: Operator
    call: Call
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    done_with: tuple[str, ...]
    """Tensors that nothing reads after this step: memory stays bounded."""


class TrainableGraph(nn.Module):  # type: ignore[misc]
    """Runs the graph's nodes one by one; weights are parameters, other constants stay.

    Normalisation runs as it does at inference, with the statistics that it has, and nothing is
    dropped out: what is tuned here is what will be served.

    Raises:
        VariantNotBuilt: it has an operator, or a form of one, that cannot be trained through.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        """The graph as it was given; training leaves it alone."""
        self.inputs = tuple(value.name for value in model.graph.input)
        self.outputs = tuple(value.name for value in model.graph.output)
        values = initialisers(model)
        self._names = _weights(model, values)
        self.weights = nn.ParameterList(torch.tensor(values[name]) for name in self._names)
        try:
            self._constants = {
                name: torch.tensor(value)
                for name, value in values.items()
                if name not in set(self._names)
            }
        except TypeError as error:
            raise VariantNotBuilt(f"holds a constant that torch does not know: {error}") from error
        self._nodes = [_node(node, opset(model)) for node in model.graph.node]
        self._plans: dict[tuple[str, ...], list[_Step]] = {}

    def forward(
        self, rows: Mapping[str, Tensor], wanted: Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        """The tensors named by ``wanted``, or the graph's outputs, for a batch ``(rows, *shape)``.

        Raises:
            VariantNotBuilt: an operator is used in a form that has no counterpart in torch.
        """
        names = tuple(wanted or self.outputs)
        if names not in self._plans:
            self._plans[names] = self._plan(names)
        values = dict(self._constants)
        values.update(zip(self._names, self.weights, strict=True))
        values.update((name, rows[name]) for name in self.inputs)
        for step in self._plans[names]:
            given = [values[name] if name else None for name in step.inputs]
            try:
                made = step.operator(step.call, given)
            except Unsupported as error:
                raise VariantNotBuilt(f"cannot be trained: {step.call.kind} {error}") from error
            except (RuntimeError, TypeError, IndexError, KeyError) as error:  # torch's refusals
                reason = f"{step.call.kind} fails in torch: {first_line(error)}"
                raise VariantNotBuilt(f"cannot be trained: {reason}") from error
            made = made if isinstance(made, tuple) else (made,)
            values.update(zip(step.outputs, made, strict=False))
            for name in step.done_with:
                del values[name]
        return {name: values[name] for name in names}

    def parameter(self, name: str) -> Tensor:
        """The parameter made of an initialiser.

        Raises:
            KeyError: the initialiser is no weight.
        """
        if name not in self._names:
            raise KeyError(name)
        return self.weights[self._names.index(name)]

    def trained(self) -> Any:
        """A copy of the model with the weights as they are now.

        Raises:
            VariantNotBuilt: training has diverged.
        """
        values = {
            name: weight.detach().numpy()
            for name, weight in zip(self._names, self.weights, strict=True)
        }
        if not all(np.isfinite(value).all() for value in values.values()):
            raise VariantNotBuilt("training diverged: a weight is no longer finite")
        model = copied(self.model)
        replace_initialisers(model, values)
        return model

    def _plan(self, wanted: Iterable[str]) -> list[_Step]:
        """The nodes that ``wanted`` needs, each with the tensors that are no longer read after."""
        wanted = set(wanted)
        needed, chosen = set(wanted), []
        for operator, call, inputs, outputs in reversed(self._nodes):
            if needed.isdisjoint(outputs):
                continue
            made = {name for name in inputs if name and name not in needed}
            chosen.append(
                _Step(
                    operator=operator,
                    call=call,
                    inputs=inputs,
                    outputs=outputs,
                    done_with=tuple(sorted(made)),
                )
            )
            needed.update(inputs)
        return chosen[::-1]


def _weights(model: Any, values: Mapping[str, Any]) -> list[str]:
    """Initialisers that are trained, in the graph's order."""
    found: set[str] = set()
    behind: set[str] = set()
    for node in model.graph.node:
        places = set(_WEIGHTS.get(node.op_type, ()))
        later = any(name in behind for name in node.input)
        if node.op_type in _SHIFTS and later:
            places = {
                place
                for place, name in enumerate(node.input)
                if name in values and values[name].size > 1
            }
        chosen = {
            node.input[place]
            for place in places
            if place < len(node.input)
            and node.input[place] in values
            and values[node.input[place]].dtype.kind == "f"
        }
        found |= chosen
        if later or chosen:
            behind.update(node.output)
    return [name for name in values if name in found]


def _node(node: Any, version: int) -> tuple[Operator, Call, tuple[str, ...], tuple[str, ...]]:
    from onnx import TensorProto, helper, numpy_helper

    if node.domain not in ("", "ai.onnx") or node.op_type not in LAYERS:
        raise VariantNotBuilt(f"cannot be trained: it has the operator {node.op_type!r}")
    attributes = {}
    for entry in node.attribute:
        value = helper.get_attribute_value(entry)
        if isinstance(value, TensorProto):
            value = torch.tensor(numpy_helper.to_array(value))
        attributes[entry.name] = value
    call = Call(
        kind=node.op_type,
        attributes=attributes,
        outputs=sum(1 for name in node.output if name),
        opset=version,
    )
    return LAYERS[node.op_type], call, tuple(node.input), tuple(node.output)
