"""Messages and their bytes: what is read and written by hand is what protobuf reads and writes."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.gateway.grpc.inference import read_query
from controlplane.gateway.grpc.messages import (
    METHODS,
    PROTO,
    ModelInferRequest,
    ModelInferResponse,
    ProtoFile,
    message_class,
)
from controlplane.gateway.grpc.statuses import LONGEST, sentence
from controlplane.gateway.grpc.wire import APART, as_parameters, read_request, with_raw
from controlplane.gateway.query.parsing import ParsedQuery
from tests.controlplane.gateway.grpc.calls import ROW, request
from tests.controlplane.serving import TASK
from variants.errors import InvalidInput
from variants.types import Task, TaskName, TensorSpec

MIXED = Task(
    name=TaskName("mixed"),
    inputs=(
        TensorSpec(name="flags", dtype="bool", shape=(2,)),
        TensorSpec(name="counts", dtype="int64", shape=(1,)),
    ),
    outputs=TASK.outputs,
)
TASKS = {TASK.name: TASK, MIXED.name: MIXED}


def read(message: Any) -> ParsedQuery:
    return read_query(message.SerializeToString(), TASKS, lambda _, version: version, 5.0, 9)


def wrong(message: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        read(message)
    return caught.value.message


@given(
    raw=st.lists(st.binary(max_size=40), max_size=4),
    large=st.booleans(),
    name=st.text(max_size=20),
    timeout=st.integers(-(2**63), 2**63 - 1),
)
def test_raw_contents_are_found_wherever_they_stand(
    raw: list[bytes], large: bool, name: str, timeout: int
) -> None:
    if large:
        raw = [*raw, bytes(APART)]
    asked = ModelInferRequest(model_name=name, raw_input_contents=raw)
    asked.inputs.add(name="x", datatype="FP32", shape=[1, 2]).parameters["a"].double_param = 0.5
    asked.parameters["timeout"].int64_param = timeout
    # Fields may come in any order, and some more of them; the raw ones first here.
    data = ModelInferRequest(raw_input_contents=raw).SerializeToString()
    del asked.raw_input_contents[:]
    message, found = read_request(data + asked.SerializeToString())
    assert [bytes(one) for one in found] == raw
    del message.raw_input_contents[:]
    assert message == asked


@given(st.binary(max_size=60), st.booleans())
def test_whatever_comes_is_a_message_or_refused(data: bytes, large: bool) -> None:
    if large:
        data += ModelInferRequest(raw_input_contents=[bytes(APART)]).SerializeToString()
    try:
        message, raw = read_request(data)
    except InvalidInput:
        return
    del message.raw_input_contents[:]
    again = (
        message.SerializeToString()
        + ModelInferRequest(raw_input_contents=[bytes(one) for one in raw]).SerializeToString()
    )
    assert ModelInferRequest.FromString(again) == ModelInferRequest.FromString(data)


def test_a_tensor_that_is_cut_off_is_refused() -> None:
    data = ModelInferRequest(raw_input_contents=[bytes(APART)]).SerializeToString()
    with pytest.raises(InvalidInput):
        read_request(data[:-1] + b"")
    with pytest.raises(InvalidInput):
        read_request(data + b"\x3a")


@given(st.lists(st.binary(max_size=300), max_size=3))
def test_a_reply_with_raw_contents_is_a_message(raw: list[bytes]) -> None:
    made = ModelInferResponse(model_name="letters", id="7")
    found = ModelInferResponse.FromString(with_raw(made, raw))
    assert list(found.raw_output_contents) == raw
    assert (found.model_name, found.id) == ("letters", "7")


def test_a_large_tensor_is_a_view_of_its_message() -> None:
    rows = np.arange(4 * 2048, dtype="<f4").reshape(2048, 4)
    data = request(rows).SerializeToString()
    parsed = read_query(data, TASKS, lambda _, version: version, 5.0, 9)
    assert parsed.tensors[0].tolist() == rows.tolist()
    assert np.shares_memory(parsed.tensors[0], np.frombuffer(data, "u1"))


# -- requests -----------------------------------------------------------------------------------


def test_parameters_are_those_of_the_protocol() -> None:
    query = read(
        request(
            parameters={
                "latency_slo_ms": 50,
                "min_accuracy": "0.9",
                "max_cost_usd_per_1k": 0.25,
                "prefer": "latency",
                "best_effort": True,
                "timeout": 20_000,
                "priority": 1,
            }
        )
    ).query
    assert (query.latency_ms, query.accuracy, query.cost) == (20.0, 0.9, 0.25)
    assert (query.prefer, query.best_effort, query.variant) == ("latency", True, None)


def test_inputs_of_several_types_are_listed_each_in_its_field() -> None:
    asked = ModelInferRequest(model_name="mixed")
    counts = asked.inputs.add(name="counts", datatype="INT16", shape=[2, 1])
    counts.contents.int_contents.extend([7, -7])
    flags = asked.inputs.add(name="flags", datatype="BOOL", shape=[2, 2])
    flags.contents.bool_contents.extend([True, False, False, True])
    tensors = read(asked).tensors
    assert tensors[0].tolist() == [[True, False], [False, True]]
    assert tensors[1].tolist() == [[7], [-7]]
    assert [str(one.dtype) for one in tensors] == ["bool", "int64"]
    counts.contents.int_contents[0] = 40_000
    assert wrong(asked) == "input 'counts' has values outside int16"


def test_narrow_floats_come_raw_only() -> None:
    assert read(request(ROW.astype("<f2"), datatype="FP16")).tensors[0].tolist() == ROW.tolist()
    upper = (ROW.view("<u4") >> 16).astype("<u2")
    assert read(request(upper, datatype="BF16")).tensors[0].tolist() == ROW.tolist()
    asked = request(ROW, datatype="BF16")
    del asked.raw_input_contents[:]
    assert wrong(asked) == "input 'x': BF16 has to come in raw_input_contents"


def test_raw_contents_belong_to_all_inputs_or_to_none() -> None:
    asked = request()
    asked.raw_input_contents.append(b"")
    assert wrong(asked) == "it has 1 input and 2 raw_input_contents: each needs its own"
    asked = request()
    asked.inputs[0].contents.fp32_contents.append(1)
    assert wrong(asked) == "input 'x' has contents beside raw_input_contents"
    del asked.raw_input_contents[:]
    assert wrong(asked) == ("input 'x' has 1 value in fp32_contents, its shape [1, 4] needs 4")
    asked = request()
    asked.inputs[0].parameters["shared_memory_region"].string_param = "mine"
    assert wrong(asked) == "input 'x': shared memory is not supported"
    assert wrong(ModelInferRequest(model_name="letters")) == "input 'x' is missing"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_have_to_be_finite(value: float) -> None:
    row = np.array([[1, 2, 3, value]], "<f4")
    assert wrong(request(row)) == "input 'x' has NaN, infinite or too large values"
    asked = request(row)
    del asked.raw_input_contents[:]
    asked.inputs[0].contents.fp32_contents.extend(row[0])
    assert wrong(asked) == "input 'x' has NaN, infinite or too large values"


# -- the protocol's file ------------------------------------------------------------------------


def test_every_procedure_has_its_messages() -> None:
    assert [method.name for method in METHODS if method.streams] == ["ModelStreamInfer"]
    assert len(METHODS) == 12
    for method in METHODS:
        assert message_class(method.request).DESCRIPTOR.full_name == f"inference.{method.request}"
        message_class(method.reply)


@pytest.mark.parametrize("name", sorted(path.name for path in PROTO.parent.glob("*.proto")))
def test_every_field_of_a_file_is_read(name: str) -> None:
    written = len(re.findall(r"^  +.* = \d+;", PROTO.with_name(name).read_text(), re.MULTILINE))
    read_file = ProtoFile(name)
    message = read_file.described.message_type[0].name
    file = read_file.message_class(message).DESCRIPTOR.file

    def fields(message: Any) -> int:
        if message.GetOptions().map_entry:
            return 0
        return len(message.fields) + sum(map(fields, message.nested_types))

    read_ones = sum(map(fields, file.message_types_by_name.values()))
    values = sum(len(enum.values) for enum in file.enum_types_by_name.values())
    assert read_ones + values == written


@pytest.mark.parametrize("text", ["a" * 5_000, "ä" * 5_000, "short"])
def test_a_text_fits_into_what_a_client_takes(text: str) -> None:
    said = sentence({"code": "OVERLOADED", "error": text})
    percent_encoded = sum(3 * len(one.encode()) if ord(one) > 126 else 1 for one in said)
    assert percent_encoded <= LONGEST
    assert said.startswith("OVERLOADED: ")
    assert said.endswith(" ...") or said == f"OVERLOADED: {text}"


@pytest.mark.parametrize("length", [0, 1, 113, 114, 115, 116, 117, 300, 20_000])
def test_header_lines_are_parameters(length: int) -> None:
    lines = b"x-choice: pinned\r\nx-zone: %s\r\n" % (b"z" * length)
    body = with_raw(ModelInferResponse(model_name="letters"), [b"raw"])
    response = ModelInferResponse.FromString(body + as_parameters(lines))
    assert {name: one.string_param for name, one in response.parameters.items()} == {
        "x-choice": "pinned", "x-zone": "z" * length,
    }  # fmt: skip
    assert (response.model_name, list(response.raw_output_contents)) == ("letters", [b"raw"])
