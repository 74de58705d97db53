"""A model with its tokenizer: registered by a table of texts, and asked with texts in every way."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

import modelless
from controlplane.gateway.grpc.messages import ModelInferRequest
from modelless import InvalidInput
from tests import onnx_models as models
from tests.integration.deployment import CLI, Deployment, command, environment
from tests.integration.over_grpc import infer, scores
from tests.texts import (
    opinion_model,
    other_opinion_model,
    other_tokenizer_json,
    tokenizer_json,
    write_texts,
)
from variants.texts.inputs import digest_of_text

pytestmark = pytest.mark.integration

GOOD, BAD = "the film is GOOD", "bad film"
LONG = "good " * 30


@pytest.fixture(scope="module", autouse=True)
def opinions(running: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The task ``opinions``, for texts of up to 4 and 8 tokens."""
    folder = tmp_path_factory.mktemp("opinions")
    (folder / "tokenizer.json").write_bytes(tokenizer_json())
    command(
        running, "register", models.write(folder / "opinion.onnx", opinion_model()),
        "--task", "opinions", "--eval", write_texts(folder / "texts.csv"),
        "--tokenizer", folder / "tokenizer.json", "--lengths", "4,8", "--labels", "neg,pos",
        "--variants", "onnx-fp32", "--measure", "sampled",
    )  # fmt: skip
    running.until(
        lambda: running.request("GET", "/v2/models/opinions/ready").status == 200, "both lengths"
    )
    yield
    assert running.request("DELETE", "/v1/tasks/opinions").status == 200
    running.until(
        lambda: running.request("GET", "/v2/models/opinions").status == 404, "the end of the task"
    )


@pytest.fixture
def client(running: Deployment) -> Iterator[modelless.Client]:
    with modelless.Client(f"http://127.0.0.1:{running.port}") as made:
        yield made


def test_texts_are_answered(client: modelless.Client) -> None:
    assert client.query("opinions", [GOOD]).labels == ("pos",)
    assert client.query("opinions", [BAD, GOOD, "film"]).labels[:2] == ("neg", "pos")
    assert client.query("opinions", np.array([BAD])).labels == ("neg",)
    with pytest.raises(InvalidInput, match="takes single texts, and no pairs of two"):
        client.query("opinions", [(BAD, "bad")])
    ids = {"input_ids": [[2, 4, 3]], "attention_mask": [[1, 1, 1]]}
    assert client.query("opinions", ids).labels == ("pos",)


def test_too_long_a_text_is_refused_or_cut_off(client: modelless.Client) -> None:
    with pytest.raises(InvalidInput, match="text 0 has 32 tokens, and at most 8 are taken"):
        client.query("opinions", [LONG])
    assert client.query("opinions", [LONG], truncate=True).labels == ("pos",)


def test_the_protocol_takes_texts(running: Deployment, channel: grpc.Channel) -> None:
    metadata = running.get("/v2/models/opinions")
    assert metadata["inputs"] == [{"name": "text", "datatype": "BYTES", "shape": [-1]}]
    entry = {"name": "text", "datatype": "BYTES", "shape": [2], "data": [BAD, GOOD]}
    answer = running.request("POST", "/v2/models/opinions/infer", {"inputs": [entry]})
    assert answer.status == 200, answer.body
    there = np.reshape(answer.body["outputs"][0]["data"], (2, 2))
    assert there.argmax(axis=1).tolist() == [0, 1]
    request = ModelInferRequest(model_name="opinions")
    request.inputs.add(name="text", datatype="BYTES", shape=[2])
    request.inputs[0].contents.bytes_contents.extend([BAD.encode(), GOOD.encode()])
    reply = infer(channel, request)
    assert reply.model_name == "opinions"
    np.testing.assert_allclose(scores(reply), there, atol=1e-6)
    request.inputs.add(name="text", datatype="BYTES", shape=[1])
    with pytest.raises(grpc.RpcError, match="texts come alone"):
        infer(channel, request)


def test_an_explanation_knows_how_long_a_text_is(running: Deployment) -> None:
    for text, bucket in ((BAD, "opinions.4"), (GOOD, "opinions.8")):
        answer = running.request("POST", "/v1/explain", {"task": "opinions", "inputs": [text]})
        assert (answer.status, answer.body["task"]) == (200, bucket)
    answer = running.request("POST", "/v1/explain", {"task": "opinions", "inputs": [LONG]})
    assert (answer.status, answer.body["code"]) == (400, "INVALID_INPUT")


def test_commands_take_texts(running: Deployment, tmp_path: Path) -> None:
    assert "pos" in command(running, "query", "opinions", "--text", GOOD)
    assert "opinions.4" in command(running, "explain", "opinions", "--text", BAD)
    shown = command(running, "tasks", "get", "opinions")
    assert "up to 8 tokens, as input_ids and attention_mask" in shown
    texts, answers = tmp_path / "texts.csv", tmp_path / "answers.jsonl"
    texts.write_text(f'id,text\n1,"{GOOD}"\n2,{LONG}\n3,{BAD}\n')
    ran = subprocess.run(
        [*CLI, "batch", "opinions", "--input", texts, "--output", answers],
        env=environment(running.state_dir, running.port), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert "2 of 3 rows" in ran.stdout, ran.stderr
    lines = answers.read_text().splitlines()
    found = ["error" if "error" in line else "pos" if '"pos"' in line else "neg" for line in lines]
    assert found == ["pos", "error", "neg"]
    command(
        running, "batch", "opinions", "--input", texts, "--output", answers, "--truncate",
        "--overwrite",
    )  # fmt: skip
    assert "error" not in answers.read_text()


def test_a_model_with_another_tokenizer_answers_the_same_task(
    running: Deployment, client: modelless.Client, tmp_path: Path
) -> None:
    (tmp_path / "other.json").write_bytes(other_tokenizer_json())
    said = command(
        running, "register", models.write(tmp_path / "view.onnx", other_opinion_model()),
        "--task", "opinions", "--eval", write_texts(tmp_path / "texts.csv"),
        "--tokenizer", tmp_path / "other.json", "--variants", "onnx-fp32", "--measure", "sampled",
    )  # fmt: skip
    assert "models of task opinions have different tokenizers now" in said
    view, opinion = "view-v1-onnx-fp32", "opinion-v1-onnx-fp32"

    def answered_by(variant: str) -> bool:
        asked = {"task": "opinions", "inputs": [GOOD, BAD], "variant": variant}
        answer = running.request("POST", "/v1/query", asked)
        return answer.status == 200 and answer.body["labels"] == ["pos", "neg"]

    for variant in (view, opinion):
        running.until(lambda variant=variant: answered_by(variant), f"{variant} to answer")
    assert client.query("opinions", [GOOD, BAD]).labels == ("pos", "neg")
    other = digest_of_text(other_tokenizer_json())
    assert running.get("/v1/tasks/opinions")["text"]["others"] == [other]
    assert f", {other[:12]}" in command(running, "tasks", "get", "opinions")
    ids = {"input_ids": [[2, 4, 3]], "attention_mask": [[1, 1, 1]]}
    with pytest.raises(InvalidInput, match="have different tokenizers, and numbers of tokens mean"):
        client.query("opinions", ids)
    assert client.query("opinions", ids, variant=opinion).labels == ("pos",)
    judged = command(
        running, "variants", "judge", "opinions", "--eval", tmp_path / "texts.csv", "--dry-run"
    )
    rows = [line for line in judged.splitlines() if line.startswith("opinions.")]
    there = [len(running.get(f"/v1/tasks/opinions.{n}/variants")["variants"]) for n in (4, 8)]
    assert len(rows) == sum(there) >= 4, judged
    assert all(line.count("100.00 %") == 2 for line in rows), judged
    command(running, "retire", "opinions.4", "view", "1")
    command(running, "retire", "opinions.8", "view", "1")
    running.until(
        lambda: not running.get("/v1/tasks/opinions")["text"]["others"], "one tokenizer again"
    )
    assert client.query("opinions", ids).labels == ("pos",)
