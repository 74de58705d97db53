"""A new version gets a share of the queries, is found worse by what clients say, and goes back."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.canary.draw import is_drawn, limit_of, salt_of
from tests.integration.deployment import CLI, PATIENT, Deployment, environment

pytestmark = pytest.mark.integration

TASK, MODEL = "proof", "m"
VERSION = f"/v1/models/{TASK}/{MODEL}/versions"


def register(running: Deployment, model: str) -> None:
    """The next version of the task's model, of a model of the example."""
    zoo = running.state_dir / "zoo" / "digits"
    command: list[str | Path] = [
        *CLI, "register", zoo / model / "1" / "model.onnx", "--task", TASK, "--model", MODEL,
        "--eval", zoo / "evaluation.npz", "--variants", "onnx-fp32",
        "--labels", ",".join(map(str, range(10))),
    ]  # fmt: skip
    settings = environment(running.state_dir, running.port)
    subprocess.run(command, env=settings, check=True, timeout=600, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def proof(digits: Deployment) -> Iterator[Deployment]:
    """The task ``proof``, whose only model has a live version and a canary."""
    register(digits, "mlp-small")
    register(digits, "linear")
    yield digits
    digits.request("DELETE", f"/v1/tasks/{TASK}")


def ask(running: Deployment, id_: str) -> dict[str, Any]:
    """An answer to a query that names no variant."""
    answer = running.request(
        "POST",
        "/v1/query",
        {"task": TASK, "inputs": [[0.0] * 64], "slo": PATIENT},
        {"X-Request-Id": id_},
    )
    assert answer.status == 200, answer
    return dict(answer.body)


def canary(running: Deployment) -> dict[str, Any]:
    [found] = [one for one in running.get("/v1/canaries")["canaries"] if one["task"] == TASK]
    return dict(found)


def events(running: Deployment) -> set[str]:
    """The kinds of what happened lately."""
    return {event["kind"] for event in running.get("/v1/events?limit=200")["events"]}


def queries_of(canary: dict[str, Any]) -> int:
    """How many queries it was given; the control loop may not have looked yet."""
    return int(canary["canary"]["queries"]) if canary["canary"] else 0


def say(running: Deployment, id_: str, label: str) -> tuple[int, dict[str, Any]]:
    told = {"request_id": id_, "labels": [label]}
    answer = running.request("POST", "/v1/feedback", told)
    return answer.status, dict(answer.body)


def test_a_canary_proves_to_be_worse_and_a_model_goes_back(proof: Deployment) -> None:
    loaded = f"{MODEL}-v2-onnx-fp32"
    proof.until(lambda: any(loaded in proof.ready(w) for w in proof.workers()), "the canary loaded")
    proof.until(lambda: ask(proof, "first")["model_version"] == "m-v1", "an answer")

    given = proof.request("PUT", f"{VERSION}/2/canary", {"share": 0.5, "after": 10_000})
    assert (given.status, given.body["share"]) == (200, 0.5)
    drawn = [f"r-{n}" for n in range(400) if is_drawn(*of_canary(f"r-{n}"))]
    others = [f"r-{n}" for n in range(400) if not is_drawn(*of_canary(f"r-{n}"))]
    proof.until(lambda: ask(proof, drawn[0])["model_version"] == "m-v2", "a diverted query")
    answers = {id_: ask(proof, id_) for id_ in (*drawn[1:61], *others[:60])}
    # What cannot be in time, on a machine that is busy, is answered as always.
    diverted = [id_ for id_, one in answers.items() if one["model_version"] == "m-v2"]
    assert set(diverted) <= set(drawn)
    assert len(diverted) >= 30
    told = proof.until(
        lambda: queries_of(found := canary(proof)) > len(diverted) and found, "the evidence"
    )
    assert (told["verdict"], told["live"]["failed"]) == ("not_yet", 0)

    for id_, answer in answers.items():
        [label] = answer["labels"]
        wrong = str((int(label) + 1) % 10)
        status, said = say(proof, id_, wrong if id_ in diverted else label)
        assert (status, said["variant"]) == (200, answer["variant"])
    assert say(proof, others[0], answers[others[0]]["labels"][0])[1]["anew"] is False
    assert say(proof, "nobody", "1")[0] == 404
    assert say(proof, others[0], "none")[0] == 400

    ended = proof.until(lambda: (found := canary(proof))["ended"] and found, "the verdict")
    assert ended["share"] == 0.0
    assert ended["ended"].startswith("wrong 100.0 % of ")
    proof.until(lambda: {"canary_set", "canary_rolled_back"} <= events(proof), "the events")
    proof.until(lambda: ask(proof, drawn[61])["model_version"] == "m-v1", "all as before")
    rows = proof.get(f"/v1/tasks/{TASK}/variants")["variants"]
    own = [row for row in rows if row["model_version"] == "m-v2"]
    assert sum(row["live_accuracy_rows"] for row in own) == len(diverted)
    assert {row["live_accuracy"] for row in own} <= {0.0, None}

    # It becomes live all the same, and is taken back.
    for number, stage in ((2, "live"), (1, "retired")):
        proof.request("POST", f"{VERSION}/{number}/stage", {"stage": stage})
    proof.until(lambda: ask(proof, "second")["model_version"] == "m-v2", "the new version")
    back = proof.request("POST", f"/v1/models/{TASK}/{MODEL}/rollback", {})
    assert (back.status, back.body["retired"], back.body["live"]) == (200, "m-v2", "m-v1")
    proof.until(lambda: ask(proof, "third")["model_version"] == "m-v1", "the version before")
    again = proof.request("POST", f"/v1/models/{TASK}/{MODEL}/rollback", {})
    assert (again.status, again.body["code"]) == (409, "CONFLICT")


def of_canary(id_: str) -> tuple[bytes, bytes, int]:
    return id_.encode(), salt_of(TASK, f"{MODEL}-v2"), limit_of(0.5)
