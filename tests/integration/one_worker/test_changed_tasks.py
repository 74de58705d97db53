"""What operators change of a task while it is asked; running gateways follow."""

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.integration.deployment import BUSY, CLI, PATIENT, Deployment, Load, environment

pytestmark = pytest.mark.integration

ROW = [[0.0] * 64]


def ask(running: Deployment) -> tuple[int, str]:
    """The status and the error code of a query that names no SLO."""
    answer = running.request("POST", "/v1/query", {"task": "digits", "inputs": ROW})
    return answer.status, answer.body.get("code", "")


def test_queries_follow_a_changed_default_slo(digits: Deployment) -> None:
    before = digits.get("/v1/tasks/digits")["slo"]
    digits.until(lambda: ask(digits)[0] == 200, "an answer")
    changed = digits.request("PATCH", "/v1/tasks/digits/slo", {"accuracy": 1.0} | PATIENT)
    assert (changed.status, changed.body["slo"]) == (200, before | {"accuracy": 1.0} | PATIENT)
    digits.until(lambda: ask(digits) == (422, "SLO_INFEASIBLE"), "the new default")
    assert digits.query(ROW, slo={"accuracy": 0.5} | PATIENT).status == 200
    digits.request("PATCH", "/v1/tasks/digits/slo", before)
    digits.until(lambda: ask(digits)[0] == 200, "the old default")
    told = digits.get("/v1/events?limit=200")["events"]
    assert [event["subject"] for event in told if event["kind"] == "slo_changed"] == ["digits"] * 2


def test_replies_follow_the_names_of_the_classes(digits: Deployment) -> None:
    before = digits.get("/v1/tasks/digits")["labels"]
    names = [f"digit {label}" for label in before]
    one = digits.until(lambda: digits.query(ROW).body.get("variant"), "an answer")

    def labels() -> Any:
        """Of one variant: another one may take a row without a digit for another class."""
        body = digits.query(ROW, variant=one).body
        return body.get("labels", []) if "variant" in body else None

    [label] = digits.until(labels, "an answer of it")
    command = [*CLI, "tasks", "label", "digits", ",".join(names)]
    settings = environment(digits.state_dir, digits.port)
    said = subprocess.run(command, env=settings, check=True, timeout=600, capture_output=True)
    assert b"digits: its 10 classes are called digit 0, digit 1" in said.stdout
    digits.until(lambda: labels() == [f"digit {label}"], "new names")
    for given, wanted in (([], []), (before, [label])):
        changed = digits.request("PUT", "/v1/tasks/digits/labels", {"labels": given})
        assert changed.status == 200, changed
        digits.until(partial(_is, labels, wanted), f"called {wanted}")


def _is(found: Callable[[], Any], wanted: Any) -> bool:
    return bool(found() == wanted)


def register_spare(running: Deployment) -> None:
    """A second task, of a model of the first one."""
    zoo = running.state_dir / "zoo" / "digits"
    command: list[str | Path] = [
        *CLI, "register", zoo / "mlp-small" / "1" / "model.onnx", "--task", "spare", "--model",
        "mlp", "--eval", zoo / "evaluation.npz", "--variants", "onnx-int8",
    ]  # fmt: skip
    settings = environment(running.state_dir, running.port)
    subprocess.run(command, env=settings, check=True, timeout=600, stdout=subprocess.DEVNULL)


def test_a_model_is_registered_from_another_machine(digits: Deployment, tmp_path: Path) -> None:
    zoo = digits.state_dir / "zoo" / "digits"
    model, rows = zoo / "mlp" / "1" / "model.onnx", zoo / "evaluation.npz"
    url, before = f"http://127.0.0.1:{digits.port}", artifacts(digits)
    settings = environment(tmp_path / "elsewhere", digits.port) | {"MODELLESS_URL": url}
    command: list[str | Path] = [
        *CLI, "register", model, "--task", "far", "--model", "mlp", "--eval", rows,
        "--variants", "onnx-int8", "--progress", "plain",
    ]  # fmt: skip
    done = subprocess.run(
        command, env=settings, check=False, timeout=600, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"sending model.onnx to {url}\n[")
    assert "mlp-v1-onnx-fp32" in done.stdout
    assert "task far: mlp-v1 (live) in " in done.stdout
    assert not (tmp_path / "elsewhere").exists()
    digits.until(lambda: digits.query(ROW, task="far").status == 200, "an answer")
    again = subprocess.run(command, env=settings, check=False, timeout=600, capture_output=True)
    assert (again.returncode, again.stdout) == (1, b"")
    assert b"model.onnx is registered already, as 'mlp-v1'" in again.stderr
    assert digits.request("DELETE", "/v1/tasks/far").status == 200
    folder = subprocess.run(
        [*CLI, "register", zoo / "mlp-small", "--task", "far", "--eval", rows],
        env=settings, check=False, timeout=600, capture_output=True,
    )  # fmt: skip
    assert folder.returncode == 2
    assert b"only a single file can be registered at" in folder.stderr
    digits.until(lambda: artifacts(digits) == before, "its artifacts are deleted")


def artifacts(running: Deployment) -> set[str]:
    """Names of all artifacts in the store."""
    return {path.name for path in (running.state_dir / "artifacts").glob("??/??/*")}


def loaded(running: Deployment) -> set[str]:
    """Variants of the second task on the workers."""
    replicas = [one for worker in running.workers() for one in worker["replicas"]]
    return {one["variant"] for one in replicas if one["task"] == "spare"}


def test_a_task_is_removed_while_it_is_asked(digits: Deployment) -> None:
    before = artifacts(digits)
    newest = max(one["seq"] for one in digits.get("/v1/events?limit=200")["events"])
    register_spare(digits)
    assert artifacts(digits) > before
    query = {"task": "spare", "inputs": ROW, "slo": PATIENT}
    digits.until(lambda: digits.query(ROW, task="spare").status == 200, "the new task")
    with Load(digits, query, clients=4) as load:
        digits.until(lambda: load.snapshot()["200"] > 50, "load")
        removed = digits.request("DELETE", "/v1/tasks/spare")
        assert (removed.status, removed.body["versions"]) == (200, ["mlp-v1"])
        digits.until(lambda: load.snapshot()["TASK_NOT_FOUND"] > 20, "the end of it")
        digits.until(lambda: not loaded(digits), "unloading")
    assert load.outcomes.keys() <= {"200", "TASK_NOT_FOUND", *BUSY}
    assert load.untyped == []
    assert digits.request("DELETE", "/v1/tasks/spare").body["code"] == "TASK_NOT_FOUND"

    def freed() -> list[str]:
        told = digits.get(f"/v1/events?limit=200&after={newest}")["events"]
        return [one["message"] for one in told if one["kind"] == "artifacts_freed"]

    # What other tests have removed may be freed meanwhile, too.
    digits.until(lambda: artifacts(digits) <= before, "the artifacts")
    # The source, and fp32: they are the same.
    digits.until(lambda: any("kept, which other versions use" in said for said in freed()), "it")
    digits.until(lambda: digits.query(ROW).status == 200, "the other task")


@pytest.mark.campaign
def test_a_task_that_was_removed_comes_back_with_a_new_version(digits: Deployment) -> None:
    before = artifacts(digits)
    numbers = []
    for _ in range(2):
        register_spare(digits)
        answer = digits.until(
            lambda: (found := digits.query(ROW, task="spare")).status == 200 and found, "an answer"
        )
        numbers.append(int(answer.body["model_version"].removeprefix("mlp-v")))
        digits.request("DELETE", "/v1/tasks/spare")
        digits.until(lambda: not loaded(digits), "unloading")
        digits.until(lambda: artifacts(digits) <= before, "the artifacts")
    assert numbers[1] == numbers[0] + 1
