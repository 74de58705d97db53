"""A model made ready to be rewritten: simplified, its shapes known, every node with a name."""

import tempfile
from pathlib import Path
from typing import Any

from variants.builders.activations import first_line
from variants.builders.onnx_fp32 import simplify
from variants.checks.onnx_light import without_weights
from variants.checks.onnx_walk import inner_names
from variants.errors import VariantNotBuilt

FLOATS_OF_CLASSICAL = {
    "Binarizer": 0,
    "FeatureVectorizer": 0,
    "LinearClassifier": 1,
    "LinearRegressor": 0,
    "Normalizer": 0,
    "SVMClassifier": 1,
    "SVMRegressor": 0,
    "Scaler": 0,
    "TreeEnsembleClassifier": 1,
    "TreeEnsembleRegressor": 0,
}
"""Which output of an operator of ONNX-ML is float32, whatever it is given (ONNX-ML, operators)."""
LIKE_THEIR_INPUT = ("ArrayFeatureExtractor", "Imputer")


def prepared(source: Path, *, opset: int = 1) -> Any:
    """``source`` as a ``ModelProto``: constants folded, normalisation merged into convolutions,
    types and shapes noted, biases of matrix products with one axis, every node with a name of its
    own; of that opset or a newer one.

    Raises:
        VariantNotBuilt: the model is refused, or its operators are too old to be carried over.
    """
    import onnx
    from onnx import version_converter

    with tempfile.TemporaryDirectory() as folder:
        simplified = Path(folder) / "simplified.onnx"
        simplify(source, simplified)
        model = onnx.load(str(simplified))
    has = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    try:
        if has < opset:
            model = version_converter.convert_version(model, opset)
        _note_types(model)
    except Exception as error:  # both raise what their native code gives them
        raise VariantNotBuilt(f"its operators cannot be read: {first_line(error)}") from error
    _flatten_biases(model.graph)
    drop_unused_weights(model)
    drop_stale_shapes(model.graph)
    name_nodes(model)
    return model


def _note_types(model: Any) -> None:
    """Note the type and shape of every value in the graph, as they are inferred without weights."""
    from onnx import shape_inference

    known = shape_inference.infer_shapes(without_weights(model))
    while _type_classical(known.graph):
        known = shape_inference.infer_shapes(known)
    # Graphs within nodes note their values too.
    for field in ("node", "output", "value_info"):
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(getattr(known.graph, field))


def _type_classical(graph: Any) -> int:
    """Note the types that operators of ONNX-ML give, which ONNX does not infer; how many are new.

    Without them nothing that comes after a scaler would be known to be a number.
    """
    from onnx import TensorProto, helper

    values = (*graph.value_info, *graph.input, *graph.output)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    types |= {weight.name: weight.data_type for weight in graph.initializer}
    found = {}
    for node in graph.node:
        if node.domain != "ai.onnx.ml":
            continue
        if node.op_type in LIKE_THEIR_INPUT:
            found[node.output[0]] = types.get(node.input[0], TensorProto.UNDEFINED)
        elif (index := FLOATS_OF_CLASSICAL.get(node.op_type)) is not None:
            found.update(dict.fromkeys(node.output[index : index + 1], TensorProto.FLOAT))
    new = {name: kind for name, kind in found.items() if kind and not types.get(name)}
    graph.value_info.extend(helper.make_tensor_value_info(name, new[name], None) for name in new)
    return len(new)


def drop_stale_shapes(graph: Any) -> None:
    """Take out the noted types of what no node gives: values that were there before the model was
    simplified, and weights, which say by themselves what they are.

    PyTorch's exporter notes both. Who asks for a value by such a note asks for what is not there,
    and the note of a weight contradicts what it becomes when it is transposed.
    """
    given = {name for node in graph.node for name in node.output}
    kept = [value for value in graph.value_info if value.name in given]
    del graph.value_info[:]
    graph.value_info.extend(kept)


def _flatten_biases(graph: Any) -> None:
    """Give biases of shape (1, n) the shape (n,): quantisers count on it.

    scikit-learn's multilayer perceptrons have such biases.
    """
    weights = {weight.name: weight for weight in graph.initializer}
    for node in graph.node:
        bias = weights.get(node.input[2]) if node.op_type == "Gemm" and node.input[2:] else None
        if bias is None or len(bias.dims) != 2 or bias.dims[0] != 1:
            continue
        flat = graph.initializer.add()
        flat.CopyFrom(bias)
        flat.name = f"{bias.name}_of_{node.output[0]}"
        del flat.dims[0]
        node.input[2] = flat.name


def name_nodes(model: Any) -> None:
    """Give every node of the graph a name, and none two the same."""
    taken: set[str] = set()
    for index, node in enumerate(model.graph.node):
        name = node.name or f"{node.op_type}_{index}".lower()
        while name in taken:
            name += "_"
        node.name = name
        taken.add(name)


def float_tensors(model: Any) -> set[str]:
    """Names of the float32 tensors that flow in the graph, weights left out."""
    from onnx import TensorProto

    graph = model.graph
    weights = {weight.name for weight in graph.initializer}
    return {
        value.name
        for value in (*graph.value_info, *graph.input, *graph.output)
        if value.type.tensor_type.elem_type == TensorProto.FLOAT and value.name not in weights
    }


def drop_unused_weights(model: Any) -> None:
    """Take out initialisers that no node reads any more."""
    graph = model.graph
    used = {name for node in graph.node for name in (*node.input, *inner_names(node))}
    used |= {value.name for value in graph.output}
    for weight in [weight for weight in graph.initializer if weight.name not in used]:
        graph.initializer.remove(weight)
