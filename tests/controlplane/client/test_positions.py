"""Replies that say something of each position of a row, as the client reads them."""

import json
from typing import Any

import httpx
import numpy as np

from controlplane.client import Client, Reply

MADE = {
    "variant": "v", "model_version": "m-v1", "worker": "w", "batch_size": 1, "queue_ms": 0.0,
    "run_ms": 1.0, "accuracy": 0.9, "cost_usd_per_1k": 0.1, "slo_met": True,
}  # fmt: skip
METADATA = {
    "inputs": [{"name": "ids", "datatype": "INT64", "shape": [-1, -1]}],
    "outputs": [{"name": "tags", "datatype": "FP32", "shape": [-1, -1, 2]}],
    "labels": ["out", "in"],
}
SCORES = np.array([[[1, 2], [4, 3]], [[8, 7], [5, 6]]], np.float32)


def client(answer: Any) -> Client:
    """Of a gateway that says this to every query, as JSON or as raw bytes."""

    def handle(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json=METADATA)
        if request.url.path == "/v1/query":
            return httpx.Response(200, json=answer)
        wants_bytes = b"binary_data_output" in request.content
        own: dict[str, Any] = {"name": "tags", "datatype": "FP32", "shape": list(SCORES.shape)}
        if not wants_bytes:
            own["data"] = SCORES.ravel().tolist()
            return httpx.Response(200, json={"outputs": [own], "parameters": MADE})
        own["parameters"] = {"binary_data_size": SCORES.nbytes}
        head = json.dumps({"outputs": [own], "parameters": MADE}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        return httpx.Response(200, content=head + SCORES.tobytes(), headers=headers)

    return Client("http://gateway", transport=httpx.MockTransport(handle))


def query(inputs: Any, answer: Any = None, **asked: Any) -> Reply:
    with client(answer) as asking:
        return asking.query("tags", inputs, **asked)


def test_rows_of_several_lengths_have_labels_and_arrays_of_their_own() -> None:
    answer = {
        **MADE, "outputs": [[[1.0, 2.0]], [[8.0, 7.0], [5.0, 6.0]]],
        "labels": [["in"], ["out", "in"]], "scores": [[2.0], [8.0, 6.0]],
    }  # fmt: skip
    reply = query([[1], [2, 3]], answer)
    assert (reply.labels, reply.scores) == ((["in"], ["out", "in"]), ([2.0], [8.0, 6.0]))
    assert reply.outputs == answer["outputs"]
    arrays = query([[1], [2, 3]], answer, arrays=True).outputs
    assert [one.tolist() for one in arrays] == answer["outputs"]
    named = query([[1], [2, 3]], {**answer, "outputs": {"tags": answer["outputs"]}}, arrays=True)
    assert [one.shape for one in named.outputs["tags"]] == [(1, 2), (2, 2)]


def test_rows_of_one_length_are_one_array() -> None:
    answer = {**MADE, "outputs": SCORES.tolist()}
    assert query([[1, 2], [3, 4]], answer, arrays=True).outputs.tolist() == SCORES.tolist()


def test_labels_are_found_at_each_position_of_raw_outputs() -> None:
    for arrays in (True, False):
        reply = query(np.ones((2, 4_096), np.int64), arrays=arrays)
        assert reply.labels == (["in", "out"], ["out", "in"])
        assert reply.scores == ([2.0, 4.0], [8.0, 6.0])
        assert np.array(reply.outputs).tolist() == SCORES.tolist()
