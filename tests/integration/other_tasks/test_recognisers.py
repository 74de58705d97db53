"""A recogniser, which gives an answer for each part of a row: registered and asked at many lengths.

Its outputs are a third as long as the rows, which are a picture's columns.
"""

from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import modelless
from controlplane.gateway.grpc.messages import ModelInferRequest
from modelless import InvalidInput
from tests import onnx_models as models
from tests.integration.deployment import Deployment, command
from tests.integration.over_grpc import infer

pytestmark = pytest.mark.integration

STEP, LENGTHS, NAMES = 3, (8, 24), ("a", "b", "c")
Columns = NDArray[np.float32]


def model() -> Any:
    """``image`` ``[batch, 2, width]`` to ``steps`` ``[batch, width // 3, 3]``."""
    weights = np.random.default_rng(0).normal(size=(3, 2, STEP)).astype(np.float32)
    return models.model(
        inputs=[models.tensor("image", "batch", 2, "width")],
        nodes=[
            models.node("Conv", ("image", "w"), "read", strides=[STEP]),
            models.node("Transpose", ("read",), "steps", perm=[0, 2, 1]),
        ],
        outputs=[models.tensor("steps", "batch", "parts", 3)],
        weights={"w": weights},
    )


def columns(length: int, rows: int = 1) -> Columns:
    draw = np.random.default_rng(length)
    return draw.uniform(0.5, 1.0, (rows, 2, length)).astype(np.float32)


@pytest.fixture(scope="module")
def session(
    running: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[onnxruntime.InferenceSession]:
    folder = tmp_path_factory.mktemp("lines")
    path = models.write(folder / "reader.onnx", model())
    made = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    image = np.zeros((40, 2, 24), np.float32)
    labels = np.full((40, 24 // STEP), -100)
    for row in range(40):
        own = columns(3 + row % 22)
        image[row, :, : own.shape[2]] = own[0]
        said = made.run(None, {"image": own})[0][0].argmax(axis=1)
        labels[row, : len(said)] = said
    np.savez(folder / "rows.npz", image=image, labels=labels)
    command(
        running, "register", path, "--task", "lines", "--eval", folder / "rows.npz", "--labels",
        ",".join(NAMES), "--lengths", ",".join(map(str, LENGTHS)), "--variants", "onnx-fp32",
        "--measure", "sampled",
    )  # fmt: skip
    running.until(
        lambda: running.request("GET", "/v2/models/lines/ready").status == 200, "all lengths"
    )
    yield made
    assert running.request("DELETE", "/v1/tasks/lines").status == 200
    running.until(
        lambda: running.request("GET", "/v2/models/lines").status == 404, "the end of the task"
    )


def itself(session: onnxruntime.InferenceSession, image: Columns) -> Columns:
    """What the model gives for a row that is filled up with nothing."""
    if image.shape[2] < STEP:
        return np.zeros((len(image), 0, 3), np.float32)
    found: Columns = session.run(None, {"image": image})[0]
    return found


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 9, 10, 23, 24])
def test_a_row_gets_as_many_parts_as_it_has(
    running: Deployment,
    session: onnxruntime.InferenceSession,
    channel: grpc.Channel,
    length: int,
) -> None:
    image, parts = columns(length, 2), length // STEP
    expected = itself(session, image)
    with modelless.Client(f"http://127.0.0.1:{running.port}") as client:
        reply = client.query("lines", image.tolist())
        assert [list(row) for row in reply.labels] == [
            [NAMES[best] for best in row.argmax(axis=-1)] for row in expected
        ]
        arrays = client.query("lines", image, arrays=True).outputs
        np.testing.assert_allclose(arrays, expected, atol=1e-5)
    form = {"name": "image", "datatype": "FP32", "shape": [2, 2, length]}
    answer = running.request(
        "POST", "/v2/models/lines/infer", {"inputs": [form | {"data": image.ravel().tolist()}]}
    )
    [output] = answer.body["outputs"]
    assert output["shape"] == [2, parts, 3]
    np.testing.assert_allclose(np.reshape(output["data"], (2, parts, 3)), expected, atol=1e-5)
    request = ModelInferRequest(model_name="lines")
    request.inputs.add(**form)
    request.raw_input_contents.append(image.tobytes())
    raw = infer(channel, request)
    assert list(raw.outputs[0].shape) == [2, parts, 3]
    found = np.frombuffer(raw.raw_output_contents[0], "<f4").reshape(2, parts, 3)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_rows_of_one_query_have_each_their_own_parts(
    running: Deployment, session: onnxruntime.InferenceSession
) -> None:
    rows = [columns(length)[0] for length in (2, 20, 6)]
    with modelless.Client(f"http://127.0.0.1:{running.port}") as client:
        reply = client.query("lines", [row.tolist() for row in rows], arrays=True)
        assert [len(one) for one in reply.outputs] == [0, 6, 2]
        for found, row in zip(reply.outputs[1:], rows[1:], strict=True):
            np.testing.assert_allclose(found, itself(session, row[None])[0], atol=1e-5)
        with pytest.raises(InvalidInput, match="rows of up to 24"):
            client.query("lines", columns(25))


def test_what_is_said_of_it_knows_its_parts(
    running: Deployment, session: onnxruntime.InferenceSession
) -> None:
    told = running.get("/v1/tasks/lines")
    assert told["lengths"]["outputs"] == [{"output": "steps", "axis": 0, "step": 3, "offset": 0}]
    assert told["accuracy_means"].startswith("share of the positions")
    assert running.get("/v2/models/lines")["outputs"][0]["shape"] == [-1, -1, 3]
    for length, bucket in ((7, "lines.8"), (9, "lines.24")):
        asked = {"task": "lines", "length": length}
        answer = running.request("POST", "/v1/explain", asked)
        assert (answer.body["task"], answer.body["outcome"]) == (bucket, "answered")
    found = running.get("/v1/tasks/lines/variants")["variants"]
    assert {(one["task"], one["accuracy"]) for one in found} == {
        ("lines.8", 1.0), ("lines.24", 1.0),
    }  # fmt: skip
