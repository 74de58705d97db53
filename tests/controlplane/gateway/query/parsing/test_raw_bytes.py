"""Tensors as raw bytes behind the JSON of a query, and what types they may have."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.query.replies import encode_v2
from controlplane.gateway.query.v2.datatypes import V2_NAMES
from controlplane.gateway.query.v2.parsing import parse_v2
from tests.controlplane.gateway.query.parsing.asked import (
    FLOATS,
    METADATA,
    TASKS,
    entry,
    v2,
    v2_error,
)
from variants.types import TaskName

BINARY = {"inputs": [entry(data=None, parameters={"binary_data_size": 8})]}


@pytest.mark.parametrize(
    ("raw", "header", "message"),
    [
        (b"1234", None, "input 'x' needs 8 raw bytes, binary_data_size is 8 and 4 bytes are left"),
        (b"1" * 12, None, "4 bytes follow the last input"),
        (b"1" * 9, None, "1 byte follows the last input"),
        (b"", b"0", "Inference-Header-Content-Length is 0, the body has 120 bytes"),
        (b"", b"121", "Inference-Header-Content-Length is 121, the body has 120 bytes"),
        (b"", b"-1", "Inference-Header-Content-Length must be a number"),
        (b"", b"", "Inference-Header-Content-Length must be a number"),
        (b"", b"9" * 5_000, "Inference-Header-Content-Length must be a number"),
        (
            np.array([np.nan, 1], "<f4").tobytes(),
            None,
            "input 'x' has NaN, infinite or too large values",
        ),
        (
            np.array([1, np.inf], "<f4").tobytes(),
            None,
            "input 'x' has NaN, infinite or too large values",
        ),
    ],
)
def test_wrong_raw_bytes(raw: bytes, header: bytes | None, message: str) -> None:
    body = json.dumps(BINARY).encode().ljust(120)
    assert v2_error(body, raw=raw, header=header) == message


def test_a_boolean_is_zero_or_one_in_raw_bytes_too() -> None:
    flags = entry(datatype="BOOL", data=None, parameters={"binary_data_size": 2})
    parsed = v2({"inputs": [flags]}, "flags", raw=b"\x00\x01")
    assert parsed.tensors[0].tolist() == [[False, True]]
    message = v2_error({"inputs": [flags]}, "flags", raw=b"\x00\x02")
    assert message == "input 'x' has booleans other than 0 and 1"


@given(
    left=st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=9),
    spaces=st.integers(0, 7),
    pieces=st.booleans(),
)
def test_raw_bytes_make_the_round_trip(
    left: list[tuple[float, float]], spaces: int, pieces: bool
) -> None:
    """Whatever the JSON's length does to their alignment."""
    rows = len(left)
    sent = [np.array(left, "<f4"), np.arange(rows, dtype="<i8").reshape(rows, 1)]
    described = [
        {"name": "left", "datatype": "FP32", "shape": [rows, 2]},
        {"name": "right", "datatype": "INT64", "shape": [rows, 1]},
    ]
    inputs = [
        {**one, "parameters": {"binary_data_size": tensor.nbytes}}
        for one, tensor in zip(described, sent, strict=True)
    ]
    document = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    text = json.dumps(document).encode() + b" " * spaces
    body: bytes | bytearray = text + sent[0].tobytes() + sent[1].tobytes()
    if pieces:
        body = bytearray(body)
    parsed = parse_v2(body, "two", None, TASKS, 0.0, 0, b"%d" % len(text))
    assert [tensor.tobytes() for tensor in parsed.tensors] == [one.tobytes() for one in sent]
    assert parsed.v2 is not None
    reply, length = encode_v2(parsed.task, parsed.v2, [sent[0]], METADATA)
    assert length is not None
    (output,) = json.loads(reply[:length])["outputs"]
    assert output == {
        "name": "y", "datatype": "FP32", "shape": [rows, 2],
        "parameters": {"binary_data_size": 8 * rows},
    }  # fmt: skip
    assert reply[length:] == sent[0].tobytes()


@pytest.mark.parametrize(
    ("name", "datatype", "data"),
    [
        ("pair", "FP16", np.array([1.5, -2], "<f2").tobytes()),
        ("pair", "BF16", (np.array([1.5, -2], "<f4").view("<u4") >> 16).astype("<u2").tobytes()),
        ("pair", "INT8", np.array([1, -2], "i1").tobytes()),
        ("pair", "UINT16", np.array([1, 2], "<u2").tobytes()),
        ("doubles", "FP32", np.array([1.5, -2], "<f4").tobytes()),
        ("doubles", "BF16", (np.array([1.5, -2], "<f4").view("<u4") >> 16).astype("<u2").tobytes()),
        ("long", "UINT32", np.array([1, 2], "<u4").tobytes()),
        ("whole", "INT16", np.array([1, -2], "<i2").tobytes()),
    ],
)
def test_raw_values_of_a_narrower_type_are_widened(name: str, datatype: str, data: bytes) -> None:
    parameters = {"binary_data_size": len(data)}
    parsed = v2(
        {"inputs": [entry(datatype=datatype, data=None, parameters=parameters)]}, name, raw=data
    )
    first = 1.5 if datatype in ("FP16", "FP32", "BF16") else 1
    second = 2 if datatype.startswith("U") else -2
    assert parsed.tensors[0].tolist() == [[first, second]]
    assert parsed.tensors[0].dtype == TASKS[TaskName(name)].inputs[0].dtype


def test_listed_values_of_a_narrower_type_have_to_fit_it() -> None:
    parsed = v2({"inputs": [entry(datatype="INT8", data=[1, -128])]}, "long")
    assert parsed.tensors[0].tolist() == [[1, -128]]
    assert parsed.tensors[0].dtype == "int64"
    message = v2_error({"inputs": [entry(datatype="INT8", data=[1, 128])]}, "long")
    assert message == "input 'x' has values outside int8"


@pytest.mark.parametrize(
    ("name", "datatype"),
    [
        ("pair", "INT32"), ("pair", "FP64"), ("pair", "BOOL"), ("pair", "BYTES"), ("pair", None),
        ("whole", "FP16"), ("whole", "UINT32"), ("whole", "INT64"), ("long", "UINT64"),
        ("flags", "UINT8"), ("bytes", "INT8"), ("bytes", "BOOL"), ("pair", ["FP32"]),
    ],
)  # fmt: skip
def test_what_would_change_values_is_refused(name: str, datatype: object) -> None:
    message = v2_error({"inputs": [entry(datatype=datatype)]}, name)
    expected = V2_NAMES[TASKS[TaskName(name)].inputs[0].dtype]
    assert message.startswith(f"input 'x' must have datatype {expected}, not ")
