"""Whether an ONNX file can be served here: every reason to refuse it, before it runs.

Nothing of the model is executed here. Parsing and checking still happen in native code, so callers
that take files from outside do it in a child process.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.checks.class_names import class_names
from variants.checks.onnx_batch import settle_outputs
from variants.checks.onnx_file import check_file, parse_model
from variants.checks.onnx_light import without_weights
from variants.checks.onnx_signature import describe, numeric, row_spec
from variants.checks.onnx_walk import graphs, nodes, sparse_tensors, tensors
from variants.errors import InvalidArtifact
from variants.images import geometry_of
from variants.types import Task, TensorSpec

MAX_OPSET = 26
"""The newest opset that ONNX Runtime 1.31 runs."""
MIN_OPSET = 7
"""The oldest opset that ONNX Runtime guarantees to run."""

ELSEWHERE = "the reference, under 'Files from elsewhere', has the lines for it"

OPTIMISED = (
    "it was optimised for ONNX Runtime, which each worker does by itself: register the model as it"
    " was exported"
)
_FUSED = ("com.microsoft", "com.microsoft.nchwc")
"""Domains of what ONNX Runtime fuses operators into."""

_STANDARD = ("", "ai.onnx")
_CLASSIC = "ai.onnx.ml"
"""Trees, support vectors and other classic models; a part of the standard."""
_MAX_CLASSIC_OPSET = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxLimits:
    """What a model file may take."""

    size_mib: float = 2048
    """At most 2 GiB in any case: a protobuf message holds no more."""
    nodes: int = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxInfo:
    """What a checked file says of itself; shapes are of one row."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    opset: int
    parameters: int
    size_bytes: int
    classes: tuple[str, ...] = ()
    """Names of the classes in the order of the scores, where the file says them."""
    uneven: tuple[str, ...] = ()
    """Outputs whose first axis has another name than those of the inputs: they may have another
    number of rows, which running the model shows."""


def check_model(path: Path, *, limits: OnnxLimits | None = None) -> OnnxInfo:
    """Read a model and refuse it unless it is whole, self-contained, standard and batchable.

    Raises:
        InvalidArtifact: one sentence with the first reason; it names the file.
    """
    limits = limits or OnnxLimits()
    check_file(path, limit_mib=limits.size_mib)
    return check_model_bytes(_read(path), where=path.name, limits=limits)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidArtifact(f"{path.name} cannot be read: {error.strerror}") from error


def check_model_bytes(data: bytes, *, where: str, limits: OnnxLimits | None = None) -> OnnxInfo:
    """``check_model`` for a model that is no file; sentences begin with ``where``.

    Raises:
        InvalidArtifact: one sentence with the first reason.
    """
    limits = limits or OnnxLimits()
    model, size = parse_model(where, data), len(data)
    del data  # the model has a copy of it
    _check_shape_of_model(where, model, limits)
    _check_texts(where, model)
    _check_external_data(where, model)
    opset = _check_opsets(where, model)
    _check_operators(where, model, opset)
    parameters = _check_initialisers(where, model, limits)
    held = {tensor.name for tensor in model.graph.initializer}
    model = _inferred(where, without_weights(model))
    taken = [value for value in model.graph.input if value.name not in held]
    inputs = tuple(row_spec(where, "input", value) for value in taken)
    uneven = _called_otherwise(taken, model.graph.output)
    settle_outputs(model, taken)
    outputs = tuple(row_spec(where, "output", value) for value in numeric(model.graph.output))
    if not inputs:
        raise InvalidArtifact(f"{where}: the model has no inputs")
    if not outputs:
        raise InvalidArtifact(f"{where}: the model has no outputs")
    names = [spec.name for spec in (*inputs, *outputs)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidArtifact(f"{where}: {twice[0]!r} names more than one input or output")
    return OnnxInfo(
        inputs=inputs,
        outputs=outputs,
        opset=opset,
        parameters=parameters,
        size_bytes=size,
        classes=class_names(where, model),
        uneven=tuple(spec.name for spec in outputs if spec.name in uneven),
    )


def _called_otherwise(inputs: Sequence[Any], outputs: Sequence[Any]) -> set[str]:
    """Names of the outputs whose first axis has a name, and none of an input's first axis."""
    batch = {_first_axis(value) for value in inputs}
    return {value.name for value in outputs if _first_axis(value) not in {"", *batch}}


def _first_axis(value: Any) -> str:
    """The name of a tensor's first axis; empty where it has none."""
    axes = value.type.tensor_type.shape.dim
    return str(axes[0].dim_param) if axes else ""


def check_signature(info: OnnxInfo, task: Task, *, where: str) -> None:
    """Refuse a model that does not take and give what the task does. ``where`` names the file.

    Outputs beyond the task's are allowed; they are not computed.

    Raises:
        InvalidArtifact: the first difference.
    """
    wanted = {spec.name: spec for spec in task.inputs}
    given = {spec.name: spec for spec in info.inputs}
    if set(wanted) != set(given):
        raise InvalidArtifact(
            f"{where} takes inputs {_names(given)}, but task {task.name!r} has {_names(wanted)}; "
            + _naming(where, "input", wanted)
        )
    outputs = {spec.name: spec for spec in info.outputs}
    missing = [spec.name for spec in task.outputs if spec.name not in outputs]
    if missing:
        raise InvalidArtifact(
            f"{where} gives outputs {_names(outputs)}, and lacks {', '.join(missing)} of task "
            f"{task.name!r}; " + _naming(where, "output", [spec.name for spec in task.outputs])
        )
    pairs = [(spec, given[spec.name], "input") for spec in task.inputs]
    pairs += [(spec, outputs[spec.name], "output") for spec in task.outputs]
    for spec, found, side in pairs:
        if spec != found:
            raise InvalidArtifact(
                f"{where}: {side} {spec.name!r} is {describe(found)}, but task {task.name!r} has "
                f"{describe(spec)}, as all its models: register it for another task"
                f"{_way(spec, found)}"
            )


def _naming(where: str, side: str, names: Iterable[str]) -> str:
    """How the inputs or outputs of a file come to have the names of a task: those of an archive
    are named where it is written, and nowhere else."""
    if where.endswith(".pt2"):
        return f"export it again with {side}_names={list(names)}"
    return f"--{side}-names, or {side}_names of modelless.export, names them"


def _way(spec: TensorSpec, found: TensorSpec) -> str:
    """How a model of pictures of another size becomes one of a task, where it is such a one."""
    ours, theirs = geometry_of(found.shape), geometry_of(spec.shape)
    if ours is None or theirs is None or len(found.shape) != 3 or not ours.first:
        return ""
    if (ours.channels, True, found.dtype) != (theirs.channels, theirs.first, spec.dtype):
        return ""
    size = ours.height, ours.width
    return (
        ", or have it scale what comes as its first step: torch.nn.functional.interpolate(x,"
        f" {size}, mode='bilinear')"
    )


def _check_shape_of_model(where: str, model: Any, limits: OnnxLimits) -> None:
    # Almost any short text parses as an empty protobuf message.
    if not model.ir_version or not model.opset_import or not model.HasField("graph"):
        raise InvalidArtifact(
            f"{where} is not an ONNX model; modelless.export writes one of PyTorch or scikit-learn"
        )
    count = sum(1 for _ in nodes(model))
    if count == 0:
        raise InvalidArtifact(f"{where}: the model's graph is empty")
    if count > limits.nodes:
        raise InvalidArtifact(
            f"{where}: the model has {count} nodes, more than the {limits.nodes} allowed"
        )
    if model.functions:
        raise InvalidArtifact(f"{where} defines functions of its own; export it inlined")
    if model.training_info:
        raise InvalidArtifact(f"{where} is a training graph; export it for inference")


def _check_texts(where: str, model: Any) -> None:
    """Refuse names that are not UTF-8, which protobuf gives as bytes."""
    for graph in graphs(model):
        named = [*graph.node, *graph.initializer, *graph.input, *graph.output]
        texts = [one.name for one in named]
        texts += [text for node in graph.node for text in (node.op_type, node.domain)]
        if not all(isinstance(text, str) for text in texts):
            raise InvalidArtifact(f"{where} is not an ONNX model: a name in it is no text")


def _check_external_data(where: str, model: Any) -> None:
    from onnx import TensorProto

    for tensor in tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            raise InvalidArtifact(
                f"{where} keeps tensor {tensor.name!r} in another file, which is not beside"
                f" it; register it where it is, or save the model as one file: {ELSEWHERE}"
            )


def _check_opsets(where: str, model: Any) -> int:
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        domain = "" if entry.domain in _STANDARD else entry.domain
        if versions.setdefault(domain, entry.version) != entry.version:
            raise InvalidArtifact(
                f"{where} uses opsets {versions[domain]} and {entry.version} of the same operators"
            )
    # Exporters list domains that no node uses; only what is used matters.
    used = {node.domain for node in nodes(model)}
    foreign = sorted(domain for domain in used if domain not in (*_STANDARD, _CLASSIC))
    if foreign:
        raise InvalidArtifact(
            f"{where} uses operators of {foreign[0]!r}; only standard ONNX operators run here"
            f"{'; ' + OPTIMISED if foreign[0] in _FUSED else ''}"
        )
    opset = versions.get("")
    if opset is None:
        raise InvalidArtifact(f"{where} does not say which ONNX opset it uses")
    if not MIN_OPSET <= opset <= MAX_OPSET:
        raise InvalidArtifact(
            f"{where} uses opset {opset}; it must be between {MIN_OPSET} and {MAX_OPSET}"
        )
    if _CLASSIC in used and not 1 <= versions.get(_CLASSIC, 0) <= _MAX_CLASSIC_OPSET:
        raise InvalidArtifact(
            f"{where} must use an opset of {_CLASSIC} between 1 and {_MAX_CLASSIC_OPSET}"
        )
    return int(opset)


def _check_operators(where: str, model: Any, opset: int) -> None:
    import onnx

    versions = {entry.domain: entry.version for entry in model.opset_import}
    for domain, kind in sorted({(node.domain, node.op_type) for node in nodes(model)}):
        classic = domain == _CLASSIC
        newest = versions[domain] if classic else opset
        try:
            schema = onnx.defs.get_schema(
                kind, max_inclusive_version=newest, domain=domain if classic else ""
            )
        except onnx.defs.SchemaError:
            raise InvalidArtifact(
                f"{where} uses the operator {kind!r}, which opset {newest} does not have"
            ) from None
        if schema.deprecated:
            raise InvalidArtifact(
                f"{where} uses the operator {kind!r}, which opset {newest} has withdrawn"
            )


def _check_initialisers(where: str, model: Any, limits: OnnxLimits) -> int:
    """Number of parameters, once all of them are readable and finite."""
    from onnx import numpy_helper

    for sparse in sparse_tensors(model):
        if math.prod(sparse.dims) * 4 > limits.size_mib * 2**20:
            raise InvalidArtifact(
                f"{where}: tensor {sparse.values.name!r} declares {math.prod(sparse.dims):.3g} "
                "elements, nearly all of them left out"
            )
    parameters = 0
    for tensor in tensors(model):
        try:
            values = numpy_helper.to_array(tensor)
        except Exception as error:  # malformed tensors fail in many ways
            raise InvalidArtifact(
                f"{where}: tensor {tensor.name!r} does not hold what it declares"
            ) from error
        if values.shape != tuple(tensor.dims):  # a size of -1 would be made to fit
            raise InvalidArtifact(f"{where}: tensor {tensor.name!r} does not hold what it declares")
        # -inf is a common mask; NaN never is, and an infinite weight shows in the trial run.
        if _has_nan(values):
            raise InvalidArtifact(f"{where}: tensor {tensor.name!r} contains NaN")
        parameters += values.size
    return parameters


def _has_nan(values: NDArray[Any]) -> bool:
    if values.dtype.kind in "fc":
        return bool(np.isnan(values).any())
    # bfloat16 and the 8-bit floats are not numpy's own.
    return values.dtype.name.startswith(("bfloat", "float")) and bool(
        np.isnan(values.astype(np.float32)).any()
    )


def _inferred(where: str, model: Any) -> Any:
    """The model, which is without its weights, with output shapes filled in, after the checker has
    passed it."""
    import onnx

    try:
        onnx.checker.check_model(model, full_check=False)
        # Classic operators do not all say what they give; the trial run shows it.
        strict = all(node.domain != _CLASSIC for node in nodes(model))
        return onnx.shape_inference.infer_shapes(model, strict_mode=strict)
    except Exception as error:  # the bindings raise several types
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        if "SSA" in reason:
            reason += (
                " (PyTorch's exporter writes that where an output is called as an operator within:"
                " export it with other output_names)"
            )
        raise InvalidArtifact(f"{where} is not a valid ONNX model: {reason}") from error


def _names(specs: dict[str, TensorSpec]) -> str:
    return ", ".join(sorted(specs)) or "none"
