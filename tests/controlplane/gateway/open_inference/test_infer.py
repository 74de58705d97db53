"""The Open Inference Protocol's route for queries."""

import json
import struct

import pytest

from controlplane.gateway.open_inference.protocol_views import number_of
from tests.controlplane.serving import DOUBLE, FAST, FIELDS, Served, infer


async def test_v2_infer_with_json(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    path = "/v2/models/letters/infer"
    answer = await served.ask(infer(id="q1", parameters={"min_accuracy": 0.95}), path=path)
    body = answer.json
    assert list(body["parameters"]) == FIELDS
    assert body.pop("parameters")["variant"] == DOUBLE
    assert body == {
        "id": "q1",
        "model_name": "letters",
        "model_version": DOUBLE,
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 4], "data": [2, 4, 6, 8]}],
    }


async def test_the_version_of_a_v2_reply_can_be_asked_for_again(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    first = await served.ask(infer(), path="/v2/models/letters/infer")
    version = first.json["model_version"]
    again = await served.ask(infer(), path=f"/v2/models/letters/versions/{version}/infer")
    assert (again.status, again.json["model_version"]) == (200, version)


async def test_v2_infer_with_a_pinned_version(served: Served) -> None:
    await served.worker("w1", FAST, DOUBLE)
    answer = await served.ask(infer(), path=f"/v2/models/letters/versions/{DOUBLE}/infer")
    assert (answer.json["model_version"], answer.json["outputs"][0]["data"]) == (
        DOUBLE, [2, 4, 6, 8],
    )  # fmt: skip


async def test_v2_infer_with_raw_bytes_as_tritonclient_sends_them(served: Served) -> None:
    await served.worker("w1", DOUBLE)
    raw = struct.pack("<8f", *range(8))
    row = {
        "name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": {"binary_data_size": 32},
    }  # fmt: skip
    head = json.dumps({"inputs": [row], "parameters": {"binary_data_output": True}}).encode()
    headers = [
        ("Content-Type", "application/octet-stream"),
        ("Inference-Header-Content-Length", str(len(head))),
    ]
    path = "/v2/models/letters/infer"
    answer = await served.ask(head + raw, path=path, headers=headers)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/octet-stream")
    length = int(answer.headers["inference-header-content-length"])
    (output,) = json.loads(answer.body[:length])["outputs"]
    assert output == {
        "name": "y", "datatype": "FP32", "shape": [2, 4], "parameters": {"binary_data_size": 32},
    }  # fmt: skip
    assert struct.unpack("<8f", answer.body[length:]) == tuple(2.0 * n for n in range(8))


@pytest.mark.parametrize(
    ("path", "error"),
    [
        (
            "/v2/models/no%20task/infer",
            (404, "TASK_NOT_FOUND", "there is no task 'no task'; there are: letters"),
        ),
        (
            "/v2/models/letters/versions/infer",
            (404, "NOT_FOUND", "there is nothing at POST /v2/models/letters/versions/infer"),
        ),
        (
            "/v2/models/a/b/c/d/e/infer",
            (404, "NOT_FOUND", "there is nothing at POST /v2/models/a/b/c/d/e/infer"),
        ),
        (
            "/v2/models/letters/versions/fast/infer",
            (
                404,
                "NOT_FOUND",
                f"task 'letters' has no variant 'fast'; there are: {FAST} and 3 more",
            ),
        ),
    ],
)
async def test_v2_paths_that_lead_nowhere(
    served: Served, path: str, error: tuple[int, str, str]
) -> None:
    assert (await served.ask(infer(), path=path)).error == error


async def test_a_percent_encoded_task_is_the_task(served: Served) -> None:
    await served.worker("w1", FAST)
    assert (await served.ask(infer(), path="/v2/models/%6Cetters/infer")).status == 200


async def test_v2_versions_may_be_named_by_their_numbers(served: Served) -> None:
    await served.worker("w1", FAST)
    number = number_of("letters", FAST)
    answer = await served.ask(infer(), path=f"/v2/models/letters/versions/{number}/infer")
    assert answer.json["parameters"]["variant"] == FAST
    assert (await served.get(f"/v2/models/letters/versions/{number}/ready")).status == 200
    assert (await served.get("/v2/models/letters/versions/7/ready")).status == 404


async def test_v2_answers_with_classes_where_they_are_asked_for(served: Served) -> None:
    await served.worker("w1", FAST)
    body = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 4, 2, 3]}],
        "outputs": [{"name": "y", "parameters": {"classification": 2}}],
    }
    answer = await served.ask(body, path=f"/v2/models/letters/versions/{FAST}/infer")
    assert answer.json["outputs"] == [
        {
            "name": "y",
            "datatype": "BYTES",
            "shape": [1, 2],
            "data": ["4.000000:1:b", "3.000000:3:d"],
        }
    ]
