"""What flows inside a model: its tensors on given rows, a few rows at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.builders.protocol import Rows
from variants.container import usable_cores
from variants.errors import VariantNotBuilt

Tensors = dict[str, NDArray[Any]]
"""Tensor name to its values for a batch, ``(rows, *shape)`` where the first axis counts rows."""

BATCH_BYTES = 128 * 2**20
"""What all shown tensors of one batch may take together, unless a single row takes more."""
LARGEST_BATCH = 16


def open_session(model: Any) -> Any:
    """An ONNX Runtime session on the CPU, on all cores that this process may use.

    ``model`` is a ``ModelProto``, or a path.

    Raises:
        VariantNotBuilt: ONNX Runtime refuses it.
    """
    import onnx
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = usable_cores()
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Beyond this level, ONNX Runtime 1.31 dies of PyTorch's transformers in fp16 on the CPU.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
        return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the binding raises a different type for each cause
        raise VariantNotBuilt(f"ONNX Runtime refuses the model: {first_line(error)}") from error


def observe(model: Any, tensors: Sequence[str], rows: Rows) -> Iterator[Tensors]:
    """Run ``rows`` through a ``ModelProto`` and yield the named tensors of each batch.

    The first batch is one row; what its tensors take decides how many rows run at once after it, so
    that memory stays bounded whatever the model.

    Raises:
        VariantNotBuilt: the model does not run.
    """
    import onnx

    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    inputs = {value.name for value in shown.graph.input}
    known = {value.name for value in shown.graph.output}
    wanted = [name for name in dict.fromkeys(tensors) if name not in inputs]
    shown.graph.output.extend(onnx.ValueInfoProto(name=n) for n in wanted if n not in known)
    passed = [name for name in dict.fromkeys(tensors) if name in inputs]
    session = open_session(shown)
    batch, start, total = 1, 0, row_count(rows)
    while start < total:
        feed = {name: array[start : start + batch] for name, array in rows.items()}
        found = dict(zip(wanted, run(session, wanted, feed), strict=True))
        yield found | {name: feed[name] for name in passed}
        start += batch
        row_bytes = sum(array.nbytes for array in found.values()) // batch
        batch = max(1, min(LARGEST_BATCH, BATCH_BYTES // max(1, row_bytes)))


def first_outputs(model: Any, rows: Rows, name: str | None = None) -> NDArray[Any]:
    """The first output of a ``ModelProto``, or the one of that name, for all rows:
    ``(rows, *shape)``.

    Raises:
        VariantNotBuilt: the model does not run.
    """
    session = open_session(model)
    name = name or session.get_outputs()[0].name
    parts = []
    for start in range(0, row_count(rows), LARGEST_BATCH):
        feed = {n: array[start : start + LARGEST_BATCH] for n, array in rows.items()}
        parts.append(run(session, [name], feed)[0])
    return np.concatenate(parts)


def run(session: Any, outputs: Sequence[str], feed: Rows) -> list[Any]:
    """The named outputs of one batch, each ``(rows, *shape)``.

    Raises:
        VariantNotBuilt: the model does not run.
    """
    try:
        return list(session.run(list(outputs), dict(feed))) if outputs else []
    except Exception as error:  # as above
        raise VariantNotBuilt(f"the model does not run: {first_line(error)}") from error


def row_count(rows: Rows) -> int:
    """Number of rows that every input has; 0 without inputs."""
    return min((len(array) for array in rows.values()), default=0)


def spread(rows: Rows, most: int) -> tuple[Tensors, NDArray[np.intp]]:
    """At most so many rows, evenly spread over all of them, and their indices ``(rows,)``."""
    count = row_count(rows)
    chosen = np.unique(np.linspace(0, max(0, count - 1), min(count, most)).astype(np.intp))
    return {name: array[chosen] for name, array in rows.items()}, chosen


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without the code that ONNX Runtime puts in front."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].rpartition(" : ")[2][:300]
