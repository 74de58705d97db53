"""A task whose models are no classifiers: registered, asked with a floor, and removed again."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.feature_selection import SelectKBest, f_regression
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import modelless
from tests.integration.deployment import PATIENT, Deployment, command

pytestmark = pytest.mark.integration

ROWS, TARGETS = (array.astype(np.float32) for array in load_diabetes(return_X_y=True))
HELD_OUT, TRUTH = ROWS[1::2], TARGETS[1::2]


@pytest.fixture(scope="module")
def diabetes(running: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The task ``diabetes`` with two regressors: a poor one and a better, slower one; its rows."""
    folder = tmp_path_factory.mktemp("diabetes")
    evaluation = folder / "held_out.npz"
    np.savez(evaluation, features=HELD_OUT, targets=TRUTH)
    models: dict[str, Any] = {
        "poor": make_pipeline(SelectKBest(f_regression, k=1), Ridge(alpha=10.0)),
        "forest": RandomForestRegressor(200, min_samples_leaf=3, random_state=0),
    }
    for name, model in models.items():
        file = folder / f"{name}.onnx"
        modelless.export(model.fit(ROWS[::2], TARGETS[::2]), ROWS[::2], file)
        command(
            running, "register", file, "--task", "diabetes", "--eval", evaluation, "--metric",
            "within:60", "--variants", "onnx-fp32",
        )  # fmt: skip
    row = HELD_OUT[:1].tolist()
    for one in running.get("/v1/tasks/diabetes/variants")["variants"]:
        asked = partial(running.query, row, task="diabetes", variant=one["name"])
        running.until(lambda asked=asked: asked().status == 200, one["name"])
    yield evaluation
    assert running.request("DELETE", "/v1/tasks/diabetes").status == 200

    def gone() -> bool:
        replicas = [one for worker in running.workers() for one in worker["replicas"]]
        return not [one for one in replicas if one["task"] == "diabetes"]

    running.until(gone, "the end of the task")


@pytest.mark.usefixtures("diabetes")
def test_the_cheapest_regressor_that_is_good_enough_answers(running: Deployment) -> None:
    task = running.get("/v1/tasks/diabetes")
    assert (task["metric"], task["labels"]) == ("within:60", [])
    assert task["outputs"] == [{"name": "values", "dtype": "float32", "shape": [1]}]
    variants = running.get("/v1/tasks/diabetes/variants")["variants"]
    found = {one["model_version"]: one["accuracy"] for one in variants}
    poor, good = found["poor-v1"], found["forest-v1"]
    assert 0.3 < poor < good < 1.0

    def ask(floor: float) -> Any:
        slo = PATIENT | {"accuracy": floor}
        return running.query(HELD_OUT[:4].tolist(), task="diabetes", slo=slo)

    answer = ask((poor + good) / 2)
    assert answer.status == 200, answer.body
    better = answer.body
    assert (better["model_version"], better["accuracy"]) == ("forest-v1", good)
    assert ask(poor).body["accuracy"] >= poor
    refused = ask((1 + good) / 2)
    assert (refused.status, refused.body["code"]) == (422, "SLO_INFEASIBLE")
    assert np.shape(better["outputs"]) == (4, 1)
    assert better.keys() & {"labels", "scores"} == set()


@pytest.mark.usefixtures("diabetes")
def test_a_measured_accuracy_is_the_share_of_answers_within_the_tolerance(
    running: Deployment,
) -> None:
    close, asked = 0, {"accuracy": 0.0, "prefer": "accuracy"}
    variants = running.get("/v1/tasks/diabetes/variants")["variants"]
    best = max(variants, key=lambda one: float(one["accuracy"]))
    # A fifth of the rows has calibrated and measures nothing: those that are left are not known
    # here, so all are asked.
    for start in range(0, len(HELD_OUT), 16):
        rows, truth = HELD_OUT[start : start + 16], TRUTH[start : start + 16]
        reply = running.query(
            rows.tolist(), task="diabetes", slo=PATIENT | asked, variant=best["name"]
        )
        assert reply.status == 200, reply.body
        close += int((np.abs(np.ravel(reply.body["outputs"]) - truth) <= 60).sum())
    assert close / len(HELD_OUT) == pytest.approx(best["accuracy"], abs=0.05)


@pytest.mark.usefixtures("diabetes")
def test_the_open_inference_protocol_gives_numbers_and_no_classes(running: Deployment) -> None:
    features = {"name": "features", "datatype": "FP32", "shape": [2, 10]}
    document: dict[str, Any] = {
        "inputs": [features | {"data": HELD_OUT[:2].ravel().tolist()}],
        "parameters": {"latency_slo_ms": PATIENT["latency_ms"]},
    }
    path = "/v2/models/diabetes/infer"
    (values,) = running.request("POST", path, document).body["outputs"]
    assert (values["name"], values["shape"]) == ("values", [2, 1])
    document["outputs"] = [{"name": "values", "parameters": {"classification": 1}}]
    refused = running.request("POST", path, document)
    assert (refused.status, refused.body["code"]) == (400, "INVALID_INPUT")
    assert "classification is for tasks with classes" in refused.body["error"]


def test_commands_and_clients_show_numbers(running: Deployment, diabetes: Path) -> None:
    shown = command(running, "query", "diabetes", "--latency-ms", "10000", "--input", diabetes)
    assert shown.startswith("outputs")
    assert 0 < float(shown.splitlines()[0].split()[1]) < 400
    got = command(running, "tasks", "get", "diabetes")
    assert "within:60: share of the rows of which every number is within 60 of its target" in got
    explained = command(running, "explain", "diabetes", "--accuracy", "0.99")
    assert "SLO_INFEASIBLE" in explained
    with modelless.Client(f"http://127.0.0.1:{running.port}") as client:
        reply = client.query("diabetes", HELD_OUT[:3], latency_ms=PATIENT["latency_ms"])
    assert np.shape(reply.outputs) == (3, 1)
    assert (reply.labels, reply.scores) == ((), ())
