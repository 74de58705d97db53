"""Whether an ONNX file can be served here: every reason to refuse it, before it runs.

Nothing of the model is executed here. Parsing and checking still happen in native code, so callers
that take files from outside do it in a child process.
"""

import math
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.catalog.validity.tasks import MAX_AXES
from variants.checks.class_names import class_names
from variants.checks.onnx_batch import settle_outputs
from variants.checks.onnx_walk import graphs, nodes, sparse_tensors, tensors
from variants.errors import InvalidArtifact
from variants.figures import apart
from variants.types import Task, TensorSpec

MAX_OPSET = 26
"""The newest opset that ONNX Runtime 1.31 runs."""
MIN_OPSET = 7
"""The oldest opset that ONNX Runtime guarantees to run."""

DTYPES = {1: "float32", 11: "float64", 7: "int64", 6: "int32", 2: "uint8", 9: "bool"}
"""ONNX's numbers of the element types that a task may have."""

ELSEWHERE = "the reference, under 'Files from elsewhere', has the lines for it"
FIXED = "has a fixed batch"
MAX_ROW_MIB = 256
"""Largest row of one input or output, which has to fit into a message."""
LONGEST_NAME = 200

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


def check_model(path: Path, *, limits: OnnxLimits | None = None) -> OnnxInfo:
    """Read a model and refuse it unless it is whole, self-contained, standard and batchable.

    Raises:
        InvalidArtifact: one sentence with the first reason; it names the file.
    """
    limits = limits or OnnxLimits()
    check_file(path, limit_mib=limits.size_mib)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InvalidArtifact(f"{path.name} cannot be read: {error.strerror}") from error
    return check_model_bytes(data, where=path.name, limits=limits)


def check_model_bytes(data: bytes, *, where: str, limits: OnnxLimits | None = None) -> OnnxInfo:
    """``check_model`` for a model that is no file; sentences begin with ``where``.

    Raises:
        InvalidArtifact: one sentence with the first reason.
    """
    limits = limits or OnnxLimits()
    model = parse_model(where, data)
    _check_shape_of_model(where, model, limits)
    _check_texts(where, model)
    _check_external_data(where, model)
    opset = _check_opsets(where, model)
    _check_operators(where, model, opset)
    parameters = _check_initialisers(where, model, limits)
    model = _inferred(where, model)
    held = {tensor.name for tensor in model.graph.initializer}
    taken = [value for value in model.graph.input if value.name not in held]
    inputs = tuple(_spec(where, "input", value) for value in taken)
    settle_outputs(model, taken)
    outputs = tuple(_spec(where, "output", value) for value in _numeric(model.graph.output))
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
        size_bytes=len(data),
        classes=class_names(where, model),
    )


def check_file(path: Path, *, limit_mib: float) -> int:
    """Size in bytes of a plain, readable file that is not a link, not empty and not too large.

    Raises:
        InvalidArtifact: it is something else.
    """
    try:
        found = os.lstat(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidArtifact(f"{path.name} cannot be read: {reason}") from error
    if stat.S_ISLNK(found.st_mode):
        raise InvalidArtifact(f"{path.name} is a symbolic link; give the file itself")
    if not stat.S_ISREG(found.st_mode):
        raise InvalidArtifact(f"{path.name} is not a plain file")
    if found.st_size == 0:
        raise InvalidArtifact(f"{path.name} is empty")
    if found.st_size > limit_mib * 2**20:
        size, limit = apart(found.st_size / 2**20, limit_mib)
        raise InvalidArtifact(f"{path.name} has {size} MiB, more than the {limit} allowed")
    return found.st_size


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
            "--input-names, or input_names of modelless.export, names them"
        )
    outputs = {spec.name: spec for spec in info.outputs}
    missing = [spec.name for spec in task.outputs if spec.name not in outputs]
    if missing:
        raise InvalidArtifact(
            f"{where} gives outputs {_names(outputs)}, and lacks {', '.join(missing)} of task "
            f"{task.name!r}; --output-names, or output_names of modelless.export, names them"
        )
    pairs = [(spec, given[spec.name], "input") for spec in task.inputs]
    pairs += [(spec, outputs[spec.name], "output") for spec in task.outputs]
    for spec, found, side in pairs:
        if spec != found:
            raise InvalidArtifact(
                f"{where}: {side} {spec.name!r} is {describe(found)}, but task {task.name!r} has "
                f"{describe(spec)}"
            )


LEAVE_OUT = "--keep-outputs NAMES leaves it out where there are others"
SCIKIT_HINT = (
    "export scikit-learn classifiers with modelless.export, or convert them with the option "
    "'zipmap': False of skl2onnx"
)


def describe(spec: TensorSpec) -> str:
    """``float32 [batch, 64]``."""
    return f"{spec.dtype} [{', '.join(['batch', *map(str, spec.shape)])}]"


def parse_model(where: str, data: bytes) -> Any:
    """The protobuf message of a model, of which nothing is checked yet.

    Raises:
        InvalidArtifact: the bytes are none; sentences begin with ``where``.
    """
    import onnx
    from google.protobuf.message import DecodeError

    for beginning, what in _NOT_READ:
        if data.startswith(beginning):
            raise InvalidArtifact(f"{where} {what}")
    try:
        model = onnx.load_model_from_string(data)
    except (DecodeError, ValueError) as error:
        raise InvalidArtifact(f"{where} is not an ONNX model, or only a part of one") from error
    return model


_EXPORT_IT = (
    "which is never read; load the model where it was trained and write it with modelless.export"
)
_NOT_READ = (
    (b"PK\x03\x04", f"is a zip archive, such as torch.save writes, {_EXPORT_IT}"),
    (b"\x80", f"is a pickle, {_EXPORT_IT}"),
    (b"version https://git-lfs", "is what Git LFS keeps in its place; `git lfs pull` fetches it"),
    (b"<", "is a page of the web, not the model: what was it downloaded from"),
)
"""How files begin that are often handed in for a model, and what they are. No ONNX model begins so:
its first byte is the tag of a field of ``ModelProto``, a number of at most 25 and a wire type."""


def _check_shape_of_model(where: str, model: Any, limits: OnnxLimits) -> None:
    # Almost any short text parses as an empty protobuf message.
    if not model.ir_version or not model.opset_import or not model.HasField("graph"):
        raise InvalidArtifact(f"{where} is not an ONNX model")
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
    """The model with output shapes filled in, after the checker has passed it."""
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


def _spec(file: str, side: str, value: Any) -> TensorSpec:
    """What a model takes or gives under one name, without the batch axis.

    Args:
        side: ``input`` or ``output``.

    Raises:
        InvalidArtifact: it is no tensor of rows.
    """
    if not value.name.isprintable() or not 0 < len(value.name) <= LONGEST_NAME:
        raise InvalidArtifact(f"{file} has an {side} with a name that cannot be shown")
    where = f"{file}: {side} {value.name!r}"
    if not value.type.HasField("tensor_type"):
        maps = value.type.HasField("sequence_type") and value.type.sequence_type.elem_type.HasField(
            "map_type"
        )
        hint = f"; {SCIKIT_HINT}" if maps else f"; {LEAVE_OUT}" if side == "output" else ""
        raise InvalidArtifact(f"{where} is not a tensor{hint}")
    tensor = value.type.tensor_type
    dtype = _dtype(where, tensor.elem_type)
    if not tensor.HasField("shape"):
        raise InvalidArtifact(f"{where} does not declare its shape")
    axes = list(tensor.shape.dim)
    if not axes:
        fixed = f": --fix-inputs {value.name}=NUMBER gives it one value for good"
        hint = fixed if side == "input" else ""
        raise InvalidArtifact(f"{where} is a scalar; its first axis must be the batch{hint}")
    _check_batch_axis(where, side, value.name, axes)
    if len(axes) > MAX_AXES + 1:
        raise InvalidArtifact(f"{where} has {len(axes)} axes, more than the {MAX_AXES + 1} allowed")
    shape = _row_shape(where, side, value.name, axes)
    row_mib = math.prod(shape) * np.dtype(dtype).itemsize / 2**20
    if row_mib > MAX_ROW_MIB:
        row, limit = apart(row_mib, MAX_ROW_MIB)
        raise InvalidArtifact(f"{where} takes {row} MiB for one row, more than the {limit} allowed")
    return TensorSpec(name=value.name, dtype=dtype, shape=shape)


def _check_batch_axis(where: str, side: str, name: str, axes: Sequence[Any]) -> None:
    """
    Raises:
        InvalidArtifact: the first axis has a size, so that it is no batch.
    """
    if not axes[0].HasField("dim_value"):
        return
    size = axes[0].dim_value
    inner = next((place for place, axis in enumerate(axes) if place and axis.dim_value < 1), None)
    if inner is not None and side == "input":
        one_row = " if they are along that one; --free-batch with --axis-sizes, if that is a row;"
        raise InvalidArtifact(
            f"{where} leaves axis {inner} open, but its first has the size {size}; rows are along"
            f" the first axis: --batch-axes {name}={inner} puts them there,"
            f"{one_row if size == 1 else ''} or export it with the batch first, as batch_first=True"
            " of PyTorch's recurrent layers does"
        )
    if side == "output":
        raise InvalidArtifact(
            f"{where} {FIXED} of {size} however many rows come in, and an answer has one for each;"
            f" {LEAVE_OUT}"
        )
    raise InvalidArtifact(
        f"{where} {FIXED} of {size}; export it with a dynamic first axis, or try --free-batch"
    )


def _row_shape(where: str, side: str, name: str, axes: Sequence[Any]) -> tuple[int, ...]:
    """The sizes of all axes but the first.

    Raises:
        InvalidArtifact: one is open.
    """
    for position, axis in enumerate(axes[1:], start=1):
        if axis.HasField("dim_value") and axis.dim_value >= 1:
            continue
        if side == "output":
            raise InvalidArtifact(
                f"{where} leaves axis {position} open, and its size does not follow from the"
                f" inputs; only the batch axis may vary: {LEAVE_OUT}"
            )
        called = axis.dim_param or f"{name}:{position}"
        raise InvalidArtifact(
            f"{where} leaves axis {position} open; only the batch axis may vary: register it "
            f"with --lengths 16,64,256 or --axis-sizes {called[:LONGEST_NAME]}=SIZE, or export it"
            " with one size"
        )
    return tuple(int(axis.dim_value) for axis in axes[1:])


def _numeric(outputs: Sequence[Any]) -> Sequence[Any]:
    """Without the class's name that skl2onnx writes before the scores: no task has it. Scores that
    are no tensor are left, with what is to be done about them."""
    from onnx import TensorProto

    types = [value.type.tensor_type for value in outputs]
    kinds = [each.elem_type for each in types]
    if kinds in ([TensorProto.STRING, TensorProto.FLOAT], [TensorProto.STRING, 0]):
        return outputs[len(types[0].shape.dim) == 1 :]
    return outputs


def _dtype(where: str, element: int) -> str:
    from onnx import TensorProto

    if element not in DTYPES:
        known = ", ".join(DTYPES.values())
        kinds = {number: name.lower() for name, number in TensorProto.DataType.items()}
        kind = kinds.get(element, str(element)) if element else "undeclared"
        hint = _HINTS.get(kind, "")
        raise InvalidArtifact(f"{where} has type {kind}; it must be one of {known}{hint}")
    return DTYPES[element]


_HINTS = {
    "float16": "; --cast-float16 casts it at the edges",
    "bfloat16": "; export it with inputs and outputs of float32",
    "string": "; export what comes after the tokenizer, and give that by --tokenizer",
}


def _names(specs: dict[str, TensorSpec]) -> str:
    return ", ".join(sorted(specs)) or "none"
