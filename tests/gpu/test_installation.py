"""The whole product on a GPU: found by itself, measured, asked, killed."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.convolutional import convolutional, images
from tests.gpu.machine import NEEDS_GPU, need
from tests.integration.deployment import CLI, PATIENT, Deployment, deployed, environment
from tests.integration.deployment import short_directory as short
from tests.ports import free_port

pytestmark = NEEDS_GPU
VARIANTS = "onnx-fp32-cuda,onnx-fp16-cuda"


def registered(state: Path, task: str, model: Path, rows: Path, *more: str) -> None:
    command = [*CLI, "register", str(model), "--task", task, "--eval", str(rows)]
    said = subprocess.run(
        [*command, "--variants", VARIANTS, *more],
        env=environment(state, free_port()), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    for kind in VARIANTS.split(","):
        need(kind)
    files = tmp_path_factory.mktemp("model")
    model, rows, vectors = files / "model.onnx", files / "rows.npz", files / "vectors.npz"
    onnx.save(convolutional(), str(model))
    np.savez(rows, image=images(64), labels=np.zeros(64, np.int64))
    np.savez(vectors, image=images(64), targets=of_the_model(model, images(64)))
    with short() as home:
        state = Path(home)
        registered(state, "digits", model, rows)
        registered(state, "vectors", model, vectors, "--metric", "cosine")
        with deployed(state) as deployment:
            yield deployment


def of_the_model(model: Path, rows: Any) -> Any:
    import onnxruntime as ort

    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return session.run(["scores"], {"image": rows})[0]


def on_gpu(running: Deployment) -> list[dict[str, Any]]:
    return [w for w in running.workers() if w["device_kind"].startswith("nvidia-")]


def gpu_variants(running: Deployment) -> list[str]:
    """Those that run on GPUs, once the GPU's worker holds them all."""
    names = sorted(v["name"] for v in running.variants() if v["name"].endswith("cuda"))

    def all_loaded() -> bool:
        return any(set(names) <= running.ready(worker) for worker in on_gpu(running))

    running.until(all_loaded, "the GPU's worker holds its variants")
    return names


def test_each_gpu_has_a_worker_that_holds_what_runs_there(running: Deployment) -> None:
    names = gpu_variants(running)

    assert len(names) == 2
    assert not any(name in running.ready(w) for name in names for w in running.workers()
                   if not w["device_kind"].startswith("nvidia-"))  # fmt: skip


@pytest.mark.parametrize("number", [0, 1])
def test_a_query_is_answered_on_the_gpu(running: Deployment, number: int) -> None:
    variant = gpu_variants(running)[number]

    answer = running.query(images(1).tolist(), variant=variant)

    assert answer.status == 200, answer.body
    assert answer.body["variant"] == variant
    assert answer.body["worker"] in {w["worker"] for w in on_gpu(running)}


def test_vectors_come_from_the_gpu_too(running: Deployment, tmp_path: Path) -> None:
    """A model that is no classifier: its accuracy is measured there, by the task's metric."""
    model = tmp_path / "model.onnx"
    onnx.save(convolutional(), str(model))
    variants = [v for v in running.get("/v1/tasks/vectors/variants")["variants"]
                if v["name"].endswith("cuda")]  # fmt: skip
    assert len(variants) == 2
    assert all(v["accuracy"] > 0.999 for v in variants), variants

    def loaded() -> bool:
        (worker,) = on_gpu(running)
        replicas = [r for r in worker["replicas"] if r["task"] == "vectors"]
        return [r["state"] for r in replicas] == ["ready", "ready"]

    running.until(loaded, "the GPU's worker holds the encoder")
    for variant in variants:
        answer = running.query(images(2).tolist(), task="vectors", variant=variant["name"])
        assert answer.status == 200, answer.body
        np.testing.assert_allclose(
            answer.body["outputs"], of_the_model(model, images(2)), atol=2e-3, rtol=0
        )


def test_profiles_are_of_the_gpu(running: Deployment) -> None:
    (worker,) = on_gpu(running)
    kinds = {
        (v["name"].endswith("cuda"), p["device_kind"])
        for v in running.variants()
        for p in v["devices"]
    }

    assert all((kind == worker["device_kind"]) == gpu for gpu, kind in kinds), kinds
    assert (True, worker["device_kind"]) in kinds


def test_a_worker_that_is_killed_comes_back_with_its_gpu(running: Deployment) -> None:
    names = gpu_variants(running)
    (worker,) = on_gpu(running)
    os.kill(worker["pid"], signal.SIGKILL)

    def another() -> bool:
        return any(w["pid"] != worker["pid"] and set(names) <= running.ready(w)
                   for w in on_gpu(running))  # fmt: skip

    running.until(another, "another worker has the GPU")
    answer = running.query(images(1).tolist(), variant=names[0], slo=PATIENT)
    assert answer.status == 200, answer.body
