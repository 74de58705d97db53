"""Whether a model answers several rows as it answers each alone.

For one whose first axis was fixed and has been freed: its nodes may have been made for one size.
The model runs, so this happens in a child process, and after the file was checked.
"""

from pathlib import Path
from typing import Any

import numpy as np

from variants.checks.onnx_check import OnnxLimits, check_model
from variants.checks.onnx_signature import FIXED
from variants.errors import InvalidArtifact
from variants.onnx_halves import crashing_optimisers

TRIED_ROWS = 5
OTHERWISE = "export it with a dynamic first axis where it was made"
ROUNDING = 1e-3
"""How much of the largest answer others may differ: a hundred times what they do by rounding."""
ROUGH = 0.05
"""The same where a model computes in float16, or scales what it quantises by the whole batch."""
_HALVES = (10, 16)
"""ONNX's numbers of float16 and bfloat16."""


def check_freed(path: Path, *, limits: OnnxLimits) -> None:
    """The usual check, which does not give again the advice that was followed.

    Raises:
        InvalidArtifact: the model is refused.
    """
    try:
        check_model(path, limits=limits)
    except InvalidArtifact as error:
        if FIXED not in error.message:
            raise
        raise InvalidArtifact(
            f"{error.message.partition(FIXED)[0]}keeps one size with its batch freed: nodes were"
            f" made for it; {OTHERWISE}"
        ) from error


def try_rows(where: str, path: Path) -> None:
    """Run several rows together, and each alone.

    Raises:
        InvalidArtifact: they do not run, or are answered otherwise.
    """
    refused = f"{where}: with its batch freed it"
    otherwise = OTHERWISE
    try:
        session = session_of(path)
        rows = {value.name: drawn(value, TRIED_ROWS) for value in session.get_inputs()}
        together = session.run(None, rows)
        alone = [
            session.run(None, {name: array[i : i + 1] for name, array in rows.items()})
            for i in range(TRIED_ROWS)
        ]
    except Exception as error:  # the runtime raises several types
        line = str(error).strip().splitlines()[0][:300] if str(error).strip() else "no reason given"
        raise InvalidArtifact(
            f"{refused} does not run with {TRIED_ROWS} rows: its nodes were made for one size;"
            f" {otherwise} ({line})"
        ) from error
    rough = _is_rough(path)
    for i, whole in enumerate(together):
        each = [answer[i] for answer in alone]
        if len(whole) != TRIED_ROWS or any(len(one) != 1 for one in each):
            raise InvalidArtifact(f"{refused} does not answer each of several rows; {otherwise}")
        if _differ(whole, np.concatenate(each), ROUGH if rough else ROUNDING):
            raise InvalidArtifact(
                f"{refused} answers a row otherwise beside others than alone; {otherwise}"
            )


def session_of(path: Path) -> Any:
    """A session of a model to try it with, which says nothing and takes one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return onnxruntime.InferenceSession(
        str(path),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=crashing_optimisers(path),
    )


def _differ(together: Any, alone: Any, share: float) -> bool:
    """Whether answers differ by more than a share of the largest: scores of a model may be small,
    and a mask of another row changes them by little."""
    if together.dtype.kind not in "fc":
        return not np.array_equal(together, alone)
    finite = np.abs(alone[np.isfinite(alone)])
    allowed = share * float(finite.max(initial=0.0))
    return not np.allclose(together, alone, rtol=0.0, atol=allowed, equal_nan=True)


def _is_rough(path: Path) -> bool:
    """Whether a model computes so roughly that other rows may change an answer a little."""
    import onnx

    graph = onnx.load(str(path)).graph
    return any(
        node.op_type in ("DynamicQuantizeLinear", "Cast")
        and (node.op_type != "Cast" or any(one.i in _HALVES for one in node.attribute))
        for node in graph.node
    ) or any(tensor.data_type in _HALVES for tensor in graph.initializer)


_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


def drawn(value: Any, rows: int, length: int = 1) -> Any:
    """Rows of an input: numbers in [0, 1), or 0 and 1, which any table of words has.

    Args:
        length: the size of axes that the model leaves open.
    """
    shape = [rows, *(one if isinstance(one, int) else length for one in value.shape[1:])]
    draw, kind = np.random.default_rng(0), np.dtype(_TYPES[value.type])
    if kind.kind == "f":
        return draw.random(shape).astype(kind)
    return draw.integers(0, 2, shape).astype(kind)
