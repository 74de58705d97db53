"""Queries of both dialects, and the tasks that they ask for."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from controlplane.gateway.query.parsing import ParsedQuery, parse_v1
from controlplane.gateway.query.replies import ReplyMetadata
from controlplane.gateway.query.v2.parsing import parse_v2
from variants.errors import InvalidInput
from variants.types import Prefer, Slo, Task, TaskName, TensorSpec


def spec(name: str, dtype: str = "float32", *shape: int) -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape or (2,))


def task(name: str, *inputs: TensorSpec, **changes: Any) -> Task:
    fields: dict[str, Any] = {"outputs": (spec("y"),), "slo": Slo(latency_ms=100.0), **changes}
    return Task(name=TaskName(name), inputs=inputs or (spec("x"),), **fields)


PAIR = task("pair")
WHOLE = task("whole", spec("x", "int32"))
LONG = task("long", spec("x", "int64"))
BYTES = task("bytes", spec("x", "uint8"))
FLAGS = task("flags", spec("x", "bool"))
DOUBLES = task("doubles", spec("x", "float64"))
IMAGES = task("images", spec("x", "float32", 2, 2))
SCALARS = task("scalars", TensorSpec(name="x", dtype="float32", shape=()))
TWO = task("two", spec("left"), spec("right", "int64", 1))
STRICT = task("strict", slo=Slo(latency_ms=7.0, accuracy=0.5, cost=2.0, prefer=Prefer.LATENCY))
TASKS = {
    one.name: one
    for one in (PAIR, WHOLE, LONG, BYTES, FLAGS, DOUBLES, IMAGES, SCALARS, TWO, STRICT)
}
ROW = [[1.0, 2.0]]


def v1(document: Any, *, received_ms: float = 5.0, draw: int = 9) -> ParsedQuery:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return parse_v1(body, TASKS, received_ms, draw)


def v2(
    document: Any,
    name: str = "pair",
    *,
    pinned: str | None = None,
    raw: bytes = b"",
    header: bytes | None = None,
) -> ParsedQuery:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    if raw and header is None:
        header = b"%d" % len(body)
    return parse_v2(body + raw, name, pinned, TASKS, 5.0, 9, header)


def entry(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0], **changes}


def v2_error(document: Any, name: str = "pair", **more: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        v2(document, name, **more)
    return caught.value.message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["task", "slo", "inputs", "name", "shape", "data", "x", "parameters"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


def assert_sound(parsed: ParsedQuery) -> None:
    """It has what the query path relies on."""
    query = parsed.query
    assert query.task == parsed.task.name
    assert 0 < query.latency_ms <= 3_600_000
    assert query.accuracy is None or 0 <= query.accuracy <= 1
    assert query.cost is None or query.cost >= 0
    assert 1 <= query.rows <= 4096
    for tensor, wanted in zip(parsed.tensors, parsed.task.inputs, strict=True):
        assert (str(tensor.dtype), tensor.shape) == (wanted.dtype, (query.rows, *wanted.shape))
        assert np.isfinite(tensor).all()


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
"""Every number that float32 has."""
METADATA = ReplyMetadata("v", "m-v1", "w", 4, 0.5, 1.5, 0.9, 0.25, True)
