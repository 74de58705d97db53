"""Transformers for rows of several lengths: registered, asked in every way, and removed again.

One gives scores for a row, the other for each token of it.
"""

import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnxruntime
import pytest

import modelless
from controlplane.gateway.grpc.messages import ModelInferRequest
from modelless import InvalidInput
from tests.integration.deployment import CLI, Deployment, command, environment
from tests.integration.over_grpc import infer

pytestmark = pytest.mark.integration

LENGTHS = (8, 24)
FP32, OPENED = "encoder-v1-onnx-fp32", "encoder-v1-onnx-fp32-open"


def export(folder: Path, *, tags: bool = False) -> Path:
    """An encoder with attention over as many tokens as a row has, and rows with random labels; with
    ``tags`` it has scores for each token, and labels are what it says, but behind a row's end."""
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Encoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(50, 16), nn.Embedding(64, 16)
            self.mixed, self.head = nn.Linear(16, 48), nn.Linear(16, 3)

        def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))[None]
            asked, known, worth = self.mixed(x).chunk(3, -1)
            away = (1.0 - mask[:, None].float()) * -1e9
            x = x + torch.softmax(asked @ known.transpose(1, 2) / 4 + away, -1) @ worth
            kept = mask[:, :, None].float()
            mean = (x * kept).sum(1) / kept.sum(1)
            scores: torch.Tensor = self.head(x if tags else mean)
            return (scores, mean) if tags else scores

    made, one = Encoder().eval(), torch.ones(2, 5, dtype=torch.int64)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", max=64)}
    with warnings.catch_warnings():  # of PyTorch's own, about axes that share a name
        warnings.simplefilter("ignore")
        torch.onnx.export(
            made, (one, one.clone()),  # one tensor for both would be one input
            folder / "encoder.onnx", dynamo=True, input_names=["ids", "mask"],
            output_names=["scores", "mean"][: 1 + tags], external_data=False,
            dynamic_shapes={"ids": sizes, "mask": sizes}, verbose=False,
        )  # fmt: skip
    draw = np.random.default_rng(0)
    ids, mask = np.zeros((60, 24), np.int64), np.zeros((60, 24), np.int64)
    for row, length in enumerate([*draw.integers(1, 9, 30), *draw.integers(9, 25, 30)]):
        ids[row, :length], mask[row, :length] = draw.integers(1, 50, length), 1
    labels = draw.integers(0, 3, 60)
    if tags:
        with torch.no_grad():
            said = made(torch.tensor(ids), torch.tensor(mask))[0].argmax(-1).numpy()
        labels = np.where(mask == 1, said, (said + 1) % 3)
    np.savez(folder / "rows.npz", ids=ids, mask=mask, labels=labels)
    return folder / "encoder.onnx"


@pytest.fixture(scope="module")
def session(
    running: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[onnxruntime.InferenceSession]:
    """The model itself, which takes rows as they are; it is served as ``texts``."""
    with served(running, "texts", tmp_path_factory.mktemp("texts")) as made:
        yield made


@pytest.fixture(scope="module")
def tagger(
    running: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[onnxruntime.InferenceSession]:
    """The same of the model that has scores for each token; it is served as ``tags``."""
    with served(running, "tags", tmp_path_factory.mktemp("tags")) as made:
        yield made


@contextmanager
def served(running: Deployment, task: str, folder: Path) -> Iterator[onnxruntime.InferenceSession]:
    model = export(folder, tags=task == "tags")
    command(
        running, "register", model, "--task", task, "--eval", folder / "rows.npz", "--labels",
        "a,b,c", "--lengths", ",".join(map(str, LENGTHS)), "--variants",
        "onnx-fp32" if task == "texts" else "onnx-fp32,onnx-fp32-open",
        "--measure", "sampled",
    )  # fmt: skip
    running.until(
        lambda: running.request("GET", f"/v2/models/{task}/ready").status == 200, "all lengths"
    )
    yield onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert running.request("DELETE", f"/v1/tasks/{task}").status == 200
    running.until(
        lambda: running.request("GET", f"/v2/models/{task}").status == 404, "the end of the task"
    )


def row(length: int) -> list[int]:
    ids: list[int] = np.random.default_rng(length).integers(1, 50, length).tolist()
    return ids


def itself(session: onnxruntime.InferenceSession, ids: list[int]) -> Any:
    """The scores of a row as the model gives them that is filled up with nothing."""
    given = np.array([ids], np.int64)
    return session.run(None, {"ids": given, "mask": np.ones_like(given)})[0][0]


@pytest.mark.parametrize("length", [1, 8, 9, 24])
def test_a_row_gets_the_scores_of_the_model_without_padding(
    running: Deployment, session: onnxruntime.InferenceSession, length: int
) -> None:
    ids = row(length)
    with modelless.Client(f"http://127.0.0.1:{running.port}") as client:
        reply = client.query("texts", {"ids": [ids], "mask": [[1] * length]}, variant=FP32)
    np.testing.assert_allclose(reply.outputs[0], itself(session, ids), atol=1e-5)


def test_rows_of_one_query_may_differ_and_arrays_go_as_bytes(
    running: Deployment, session: onnxruntime.InferenceSession
) -> None:
    rows = [row(3), row(20), row(7)]
    mask = [[1] * len(ids) for ids in rows]
    with modelless.Client(f"http://127.0.0.1:{running.port}") as client:
        reply = client.query("texts", {"ids": rows, "mask": mask}, variant=FP32)
        expected = [itself(session, ids) for ids in rows]
        np.testing.assert_allclose(reply.outputs, expected, atol=1e-5)
        many = np.array([row(6)] * 16)
        arrays = {"ids": many, "mask": np.ones_like(many)}
        reply = client.query("texts", arrays, variant=FP32, arrays=True)
        np.testing.assert_allclose(reply.outputs, [itself(session, row(6))] * 16, atol=1e-5)


def test_too_long_a_row_is_refused(
    running: Deployment, session: onnxruntime.InferenceSession
) -> None:
    with (
        modelless.Client(f"http://127.0.0.1:{running.port}") as client,
        pytest.raises(InvalidInput, match="rows of up to 24"),
    ):
        client.query("texts", {"ids": [row(25)], "mask": [[1] * 25]})


def test_each_length_answers_what_it_holds(
    running: Deployment, session: onnxruntime.InferenceSession, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(f'{{"ids": {row(n)}, "mask": {[1] * n}}}\n' for n in (2, 20, 8, 11, 25, 3))
    )
    answers = tmp_path / "answers.jsonl"
    ran = subprocess.run(
        [*CLI, "batch", "texts", "--input", rows, "--output", answers, "--rows-per-query", "4"],
        env=environment(running.state_dir, running.port), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert "5 of 6 rows" in ran.stdout, ran.stderr
    lines = answers.read_text().splitlines()
    assert ["error" in line for line in lines] == [False, False, False, False, True, False]
    stats = running.get("/v2/models/texts.8/stats")["model_stats"]
    assert sum(one["inference_count"] for one in stats) >= 3
    assert running.get("/v2/models/texts")["inputs"][0]["shape"] == [-1, -1]
    stats = running.get("/v2/models/texts/stats")["model_stats"]
    assert {one["name"] for one in stats} == {"texts"}


# -- scores for each token -------------------------------------------------------------------------


def tagged(session: onnxruntime.InferenceSession, *rows: list[int]) -> list[Any]:
    """The scores of the tokens of each row, as the model gives them without padding."""
    return [itself(session, ids) for ids in rows]


def masked(*rows: list[int]) -> dict[str, Any]:
    return {"ids": list(rows), "mask": [[1] * len(ids) for ids in rows]}


@pytest.mark.parametrize("variant", [FP32, OPENED])
def test_each_row_gets_the_scores_of_its_own_tokens(
    running: Deployment, tagger: onnxruntime.InferenceSession, variant: str
) -> None:
    rows = [row(3), row(24), row(1), row(9)]
    expected = tagged(tagger, *rows)
    with modelless.Client(f"http://127.0.0.1:{running.port}") as client:
        reply = client.query("tags", masked(*rows), variant=variant, arrays=True)
        assert [len(one) for one in reply.outputs["scores"]] == [3, 24, 1, 9]
        for found, own in zip(reply.outputs["scores"], expected, strict=True):
            np.testing.assert_allclose(found, own, atol=1e-5)
        assert reply.outputs["mean"].shape == (4, 16)
        names = [["abc"[best] for best in own.argmax(1)] for own in expected]
        assert list(reply.labels) == names
        many = np.array([row(6)] * 16)
        reply = client.query(
            "tags", {"ids": many, "mask": np.ones_like(many)}, variant=variant, arrays=True
        )
        np.testing.assert_allclose(reply.outputs["scores"], tagged(tagger, row(6)) * 16, atol=1e-5)


def test_only_tokens_are_judged(running: Deployment, tagger: onnxruntime.InferenceSession) -> None:
    # Behind the end of a row every label is wrong.
    found = running.get("/v1/tasks/tags/variants")["variants"]
    assert {one["accuracy"] for one in found} == {1.0}
    assert {one["name"] for one in found} >= {FP32, OPENED}
    said = running.get("/v1/tasks/tags")["accuracy_means"]
    assert said.startswith("share of the positions")


@pytest.mark.parametrize("length", [1, 8, 9, 24])
def test_the_protocol_gives_the_same_over_http_and_grpc(
    running: Deployment, tagger: onnxruntime.InferenceSession, channel: grpc.Channel, length: int
) -> None:
    given = np.array([row(length)] * 2, np.int64)
    (expected,) = tagged(tagger, row(length))
    tensors = {"ids": given, "mask": np.ones_like(given)}
    form = {"datatype": "INT64", "shape": [2, length]}
    inputs = [{"name": name, **form, "data": each.tolist()} for name, each in tensors.items()]
    answer = running.request("POST", f"/v2/models/tags/versions/{FP32}/infer", {"inputs": inputs})
    scores, mean = answer.body["outputs"]
    assert (scores["shape"], mean["shape"]) == ([2, length, 3], [2, 16])
    found = np.reshape(scores["data"], scores["shape"])
    np.testing.assert_allclose(found, [expected, expected], atol=1e-5)
    request = ModelInferRequest(model_name="tags", model_version=FP32)
    for name, each in tensors.items():
        request.inputs.add(name=name, **form)
        request.raw_input_contents.append(each.tobytes())
    reply = infer(channel, request)
    assert [list(one.shape) for one in reply.outputs] == [[2, length, 3], [2, 16]]
    found = np.frombuffer(reply.raw_output_contents[0], "<f4").reshape(2, length, 3)
    np.testing.assert_allclose(found, [expected, expected], atol=1e-5)


def test_other_lengths_and_wrong_rows_are_refused(
    running: Deployment, tagger: onnxruntime.InferenceSession
) -> None:
    metadata = running.get("/v2/models/tags")
    assert [one["shape"] for one in metadata["outputs"]] == [[-1, -1, 3], [-1, 16]]
    with modelless.Client(f"http://127.0.0.1:{running.port}") as client:
        for given, why in (
            (masked(row(3), row(25)), "rows of up to 24"),
            ({"ids": [row(3)], "mask": [[1] * 4]}, "row 0 has the length 3 in input 'ids' and 4"),
            ({"ids": [["a"]], "mask": [[1]]}, "must hold int64 numbers, not text"),
            ({"ids": [[]], "mask": [[]]}, "is empty"),
        ):
            with pytest.raises(InvalidInput, match=why):
                client.query("tags", given)
