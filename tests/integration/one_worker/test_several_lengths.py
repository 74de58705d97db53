"""A transformer for rows of several lengths: registered, asked in every way, and removed again."""

import subprocess
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import modelless
from modelless import InvalidInput
from tests.integration.deployment import CLI, Deployment, environment
from tests.integration.one_worker.test_other_models import command

pytestmark = pytest.mark.integration

LENGTHS = (8, 24)
FP32 = "encoder-v1-onnx-fp32"


def export(folder: Path) -> Path:
    """An encoder with attention over as many tokens as a row has, and rows with random labels."""
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
            scores: torch.Tensor = self.head((x * kept).sum(1) / kept.sum(1))
            return scores

    one = torch.ones(2, 5, dtype=torch.int64)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", max=64)}
    with warnings.catch_warnings():  # of PyTorch's own, about axes that share a name
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Encoder().eval(), (one, one), folder / "encoder.onnx", dynamo=True,
            input_names=["ids", "mask"], output_names=["scores"], external_data=False,
            dynamic_shapes={"ids": sizes, "mask": sizes}, verbose=False,
        )  # fmt: skip
    draw = np.random.default_rng(0)
    ids, mask = np.zeros((60, 24), np.int64), np.zeros((60, 24), np.int64)
    for row, length in enumerate([*draw.integers(1, 9, 30), *draw.integers(9, 25, 30)]):
        ids[row, :length], mask[row, :length] = draw.integers(1, 50, length), 1
    np.savez(folder / "rows.npz", ids=ids, mask=mask, labels=draw.integers(0, 3, 60))
    return folder / "encoder.onnx"


@pytest.fixture(scope="module")
def session(
    digits: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[onnxruntime.InferenceSession]:
    """The model itself, which takes rows as they are; it is served as ``texts``."""
    folder = tmp_path_factory.mktemp("texts")
    model = export(folder)
    command(
        digits, "register", model, "--task", "texts", "--eval", folder / "rows.npz",
        "--lengths", ",".join(map(str, LENGTHS)), "--variants", "onnx-fp32",
        "--measure", "sampled",
    )  # fmt: skip
    digits.until(
        lambda: digits.request("GET", "/v2/models/texts/ready").status == 200, "all lengths"
    )
    yield onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert digits.request("DELETE", "/v1/tasks/texts").status == 200
    digits.until(
        lambda: digits.request("GET", "/v2/models/texts").status == 404, "the end of the task"
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
    digits: Deployment, session: onnxruntime.InferenceSession, length: int
) -> None:
    ids = row(length)
    with modelless.Client(f"http://127.0.0.1:{digits.port}") as client:
        reply = client.query("texts", {"ids": [ids], "mask": [[1] * length]}, variant=FP32)
    np.testing.assert_allclose(reply.outputs[0], itself(session, ids), atol=1e-5)


def test_rows_of_one_query_may_differ_and_arrays_go_as_bytes(
    digits: Deployment, session: onnxruntime.InferenceSession
) -> None:
    rows = [row(3), row(20), row(7)]
    mask = [[1] * len(ids) for ids in rows]
    with modelless.Client(f"http://127.0.0.1:{digits.port}") as client:
        reply = client.query("texts", {"ids": rows, "mask": mask}, variant=FP32)
        expected = [itself(session, ids) for ids in rows]
        np.testing.assert_allclose(reply.outputs, expected, atol=1e-5)
        many = np.array([row(6)] * 16)
        arrays = {"ids": many, "mask": np.ones_like(many)}
        reply = client.query("texts", arrays, variant=FP32, arrays=True)
        np.testing.assert_allclose(reply.outputs, [itself(session, row(6))] * 16, atol=1e-5)


def test_too_long_a_row_is_refused(
    digits: Deployment, session: onnxruntime.InferenceSession
) -> None:
    with (
        modelless.Client(f"http://127.0.0.1:{digits.port}") as client,
        pytest.raises(InvalidInput, match="rows of up to 24"),
    ):
        client.query("texts", {"ids": [row(25)], "mask": [[1] * 25]})


def test_each_length_answers_what_it_holds(
    digits: Deployment, session: onnxruntime.InferenceSession, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(f'{{"ids": {row(n)}, "mask": {[1] * n}}}\n' for n in (2, 20, 8, 11, 25, 3))
    )
    answers = tmp_path / "answers.jsonl"
    ran = subprocess.run(
        [*CLI, "batch", "texts", "--input", rows, "--output", answers, "--rows-per-query", "4"],
        env=environment(digits.state_dir, digits.port), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert "5 of 6 rows" in ran.stdout, ran.stderr
    lines = answers.read_text().splitlines()
    assert ["error" in line for line in lines] == [False, False, False, False, True, False]
    stats = digits.get("/v2/models/texts.8/stats")["model_stats"]
    assert sum(one["inference_count"] for one in stats) >= 3
    assert digits.get("/v2/models/texts")["inputs"][0]["shape"] == [-1, -1]
    stats = digits.get("/v2/models/texts/stats")["model_stats"]
    assert {one["name"] for one in stats} == {"texts"}
