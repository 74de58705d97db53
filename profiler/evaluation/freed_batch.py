"""Whether a model answers several rows as it answers each alone.

For one whose first axis was fixed and has been freed: its nodes may have been made for one size.
The model runs, so this happens in a child process, and after the file was checked.
"""

from pathlib import Path
from typing import Any

import numpy as np

from variants.errors import InvalidArtifact

TRIED_ROWS = 5


def try_rows(where: str, path: Path) -> None:
    """Run several rows together, and each alone.

    Raises:
        InvalidArtifact: they do not run, or are answered otherwise.
    """
    import onnxruntime

    refused = f"{where}: with its batch freed it"
    otherwise = "export it with a dynamic first axis where it was made"
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        rows = {value.name: _drawn(value) for value in session.get_inputs()}
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
    for i, whole in enumerate(together):
        each = [answer[i] for answer in alone]
        if len(whole) != TRIED_ROWS or any(len(one) != 1 for one in each):
            raise InvalidArtifact(f"{refused} does not answer each of several rows; {otherwise}")
        if not np.allclose(whole, np.concatenate(each), rtol=1e-2, atol=1e-3, equal_nan=True):
            raise InvalidArtifact(
                f"{refused} answers a row otherwise beside others than alone; {otherwise}"
            )


_TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


def _drawn(value: Any) -> Any:
    """Rows of an input: numbers in [0, 1), or 0 and 1, which any table of words has."""
    shape = [TRIED_ROWS, *(one if isinstance(one, int) else 1 for one in value.shape[1:])]
    draw, kind = np.random.default_rng(0), np.dtype(_TYPES[value.type])
    if kind.kind == "f":
        return draw.random(shape).astype(kind)
    return draw.integers(0, 2, shape).astype(kind)
