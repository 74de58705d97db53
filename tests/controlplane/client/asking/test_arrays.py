"""Arrays, sent and answered as they lie in memory."""

import asyncio
from typing import Any

import httpx
import numpy as np
import pytest

from controlplane.client import (
    AsyncClient,
    Client,
    InvalidInput,
    Reply,
    TaskNotFound,
    Unauthenticated,
    Unreachable,
    binary,
)
from controlplane.client.binary import LEAST_BYTES, Signatures, binary_content
from tests.controlplane.client.asking.asked import TOKEN, answering, refusal, using
from tests.controlplane.serving import FAST, Served


async def test_rows_are_lists_or_arrays(served: Served) -> None:
    rows = np.arange(8, dtype=np.float32).reshape(2, 4)
    forms = {
        "an array": rows,
        "of half precision": rows.astype(np.float16),
        "with strides": np.repeat(rows, 2, axis=1)[:, ::2],
        "column by column": np.asfortranarray(rows),
        "a list of arrays": list(rows),
        "lists": rows.tolist(),
        "by name": {"x": rows},
    }

    def ask(client: Client) -> dict[str, Reply]:
        return {form: client.query("letters", inputs) for form, inputs in forms.items()}

    replies = await using(served, ask)
    assert {form: reply.outputs for form, reply in replies.items()} == dict.fromkeys(
        forms, rows.tolist()
    )
    assert {(reply.labels, reply.scores) for reply in replies.values()} == {
        (("d", "d"), (3.0, 7.0))
    }


async def test_arrays_are_answered_with_arrays_and_the_rest_is_the_same(served: Served) -> None:
    rows = np.arange(8, dtype=np.float32).reshape(2, 4) + np.float32(0.1)
    forms = {
        "an array": rows,
        "of double precision": rows.astype(np.float64),
        "of whole numbers": rows.astype(np.int64),
        "with strides": np.repeat(rows, 2, axis=1)[:, ::2],
        "column by column": np.asfortranarray(rows),
        "lists": rows.tolist(),
        "by name": {"x": rows},
    }

    def ask(client: Client) -> dict[str, tuple[Reply, Reply]]:
        return {
            form: (
                client.query("letters", inputs, arrays=True, variant=FAST, accuracy=0.5),
                client.query("letters", inputs, variant=FAST, accuracy=0.5),
            )
            for form, inputs in forms.items()
        }

    for form, (arrays, lists) in (await using(served, ask)).items():
        expected = np.asarray(forms[form]["x"] if isinstance(forms[form], dict) else forms[form])
        assert arrays.outputs.dtype == np.float32
        assert np.array_equal(arrays.outputs, expected.astype(np.float32)), form
        assert isinstance(lists.outputs, list)
        assert np.allclose(arrays.scores, lists.scores)
        for name in ("labels", "variant", "model_version", "accuracy", "slo_met", "choice_reason"):
            assert getattr(arrays, name) == getattr(lists, name)
        assert arrays.request_id


async def test_large_arrays_go_as_bytes_and_are_answered_as_lists(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binary, "LEAST_BYTES", 128)
    rows = np.full((8, 4), 0.1, np.float32)
    asked: list[httpx.Request] = []

    def ask(client: Client) -> list[Reply]:
        client._http.event_hooks["request"] = [asked.append]
        return [
            client.query("letters", rows, latency_ms=5_000),
            client.query("letters", rows.astype(np.float64), latency_ms=5_000),
            client.query("letters", rows.tolist(), latency_ms=5_000),
        ]

    arrays, wider, lists = await using(served, ask)
    assert [request.url.path for request in asked] == [
        "/v2/models/letters", "/v2/models/letters/infer", "/v2/models/letters/infer", "/v1/query",
    ]  # fmt: skip
    assert arrays.outputs == wider.outputs == lists.outputs == [[0.1] * 4] * len(rows)
    assert (arrays.labels, arrays.scores) == (lists.labels, lists.scores)


@pytest.mark.parametrize(
    "inputs",
    [
        np.zeros((LEAST_BYTES, 3), np.float32),
        np.zeros((LEAST_BYTES, 4), bool),
        {"y": np.zeros((LEAST_BYTES, 4), np.float32)},
        np.full((LEAST_BYTES, 4), "a"),
        np.float32(3),
    ],
)
async def test_arrays_that_a_task_does_not_take_are_refused_as_lists_are(
    served: Served, inputs: Any
) -> None:
    for arrays in (False, True):
        refused = await refusal(served, inputs=inputs, arrays=arrays)
        assert isinstance(refused, InvalidInput)


class Table:
    """As pandas has it: it becomes an array, and no list by itself."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.full((self.rows, 4), 2.0, dtype)


@pytest.mark.parametrize("rows", [1, 8])
async def test_a_table_is_taken_as_the_array_that_it_becomes(
    served: Served, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr("controlplane.client.binary.LEAST_BYTES", 8 * 4 * 8)  # with 8 rows
    alone = await using(served, lambda client: client.query("letters", Table(rows)))
    named = await using(served, lambda client: client.query("letters", {"x": Table(rows)}))
    assert alone.outputs == named.outputs == [[2.0] * 4] * rows


async def test_arrays_that_are_not_finite_are_refused(served: Served) -> None:
    rows = np.full((8, 4), np.inf, np.float32)
    assert "finite" in (await refusal(served, inputs=rows, arrays=True)).message


async def test_arrays_of_which_something_is_masked_are_refused(served: Served) -> None:
    """What is under the mask was asked with."""
    rows = np.ma.masked_equal(np.eye(2, 4, dtype=np.float32), 1)
    for arrays in (False, True):
        refused = await refusal(served, inputs=rows, arrays=arrays)
        assert "null: only finite numbers can be asked with" in refused.message


async def test_arrays_for_what_is_not_there_are_refused_as_lists_are(served: Served) -> None:
    rows = np.zeros((2, 4), np.float32)
    assert isinstance(await refusal(served, task="nothing", inputs=rows, arrays=True), TaskNotFound)
    assert isinstance(await refusal(served, inputs=rows, arrays=True, token="x"), Unauthenticated)
    unknown = await refusal(served, inputs=rows, arrays=True, variant="no-v1-onnx-fp32")
    assert type(unknown) is type(await refusal(served, inputs=rows, variant="no-v1-onnx-fp32"))


async def test_an_event_loop_sends_arrays_as_well(served: Served) -> None:
    rows = np.full((8, 4), 2.0, np.float32)
    async with AsyncClient(f"http://127.0.0.1:{served.port}", token=TOKEN) as client:
        replies = await asyncio.gather(
            *(client.query("letters", rows, arrays=True, latency_ms=5_000) for _ in range(3))
        )
        listed = await client.query("letters", rows[:1].tolist(), latency_ms=5_000)
    assert all(np.array_equal(reply.outputs, rows) for reply in replies)
    assert listed.outputs == [[2.0] * 4]


def test_whole_numbers_that_do_not_fit_are_left_to_json() -> None:
    document = {
        "inputs": [{"name": "ids", "datatype": "INT32", "shape": [-1, 2]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
    }
    signature = Signatures().keep("a", document)
    for wrong in (np.array([[2**40, 0]]), np.array([[0.5, 0]]), np.array([[True, False]])):
        assert binary_content(signature, {"": wrong}, arrays=False) is None
    made = binary_content(signature, {"": np.array([[7, -1]])}, arrays=False, priority=7)
    assert made is not None
    assert b'"priority":7' in made[0]
    assert made[0].endswith(np.array([[7, -1]], "<i4").tobytes())


def test_arrays_are_sent_as_long_as_they_are_where_rows_differ_in_length() -> None:
    document = {
        "inputs": [{"name": "ids", "datatype": "INT64", "shape": [-1, -1, 2]}],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
    }
    signature = Signatures().keep("a", document)
    made = binary_content(signature, {"": np.ones((3, 5, 2), np.int64)}, arrays=False)
    assert made is not None
    assert b'"shape":[3,5,2]' in made[0]
    assert binary_content(signature, {"": np.ones((3, 5, 3), np.int64)}, arrays=False) is None


@pytest.mark.parametrize("body", [b"{}", b'{"inputs": 3, "outputs": []}', b'{"outputs": [{}]}'])
def test_what_has_no_signature_is_not_modelless(body: bytes) -> None:
    with (
        answering(lambda _: httpx.Response(200, content=body)) as client,
        pytest.raises(Unreachable, match="is not modelless"),
    ):
        client.query("a", np.zeros((1, 4)), arrays=True)
