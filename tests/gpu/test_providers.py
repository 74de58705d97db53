"""ONNX Runtime's GPU providers, the real ones."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.convolutional import convolutional, images
from tests.gpu.machine import NEEDS_GPU, built, free_bytes
from workers.runtimes.cuda_graphs import sizes_of
from workers.runtimes.gpu_thread import LOADING
from workers.runtimes.onnx import OnnxRuntime
from workers.runtimes.protocol import finish_loading
from workers.runtimes.registry import make_runtime

pytestmark = NEEDS_GPU


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(convolutional(), str(path))
    return path


def test_tensorrt_keeps_its_engine_in_our_folder(source: Path, tmp_path: Path) -> None:
    spec = built("onnx-fp16-tensorrt", source, tmp_path, images(32))
    runtime = make_runtime(spec, 1)
    runtime.load()
    runtime.close()
    engines = list((tmp_path / "engines").rglob("*.engine"))
    assert len(engines) == 1
    assert engines[0].parent.stat().st_mode & 0o777 == 0o700
    seen = engines[0].stat().st_mtime_ns
    again = make_runtime(spec, 1)
    again.load()
    again.close()
    assert engines[0].stat().st_mtime_ns == seen


@pytest.mark.parametrize("kind", ["onnx-fp32-cuda", "onnx-fp16-cuda"])
def test_cuda_is_really_used(kind: str, source: Path, tmp_path: Path) -> None:
    """Loading fails where it is not, so that it loads says it."""
    from workers.runtimes.cuda import first_device

    device = first_device()
    device.enter()
    before = free_bytes()
    runtime = make_runtime(built(kind, source, tmp_path, images(32)), 1)
    runtime.load()
    after = free_bytes()
    assert after < before
    runtime.close()


@pytest.mark.parametrize("kind", ["onnx-fp32-cuda", "onnx-fp16-cuda"])
def test_graphs_change_no_answer(kind: str, source: Path, tmp_path: Path) -> None:
    plain, recorded = (
        make_runtime(built(kind, source, tmp_path, images(32), graphs=graphs), 1) for graphs in "01"
    )
    plain.load()
    recorded.load()
    for _ in range(2):  # filled up to the largest batch, and each with a size of its own
        for count in (1, 3, 16, 17, 2):
            rows = images(count, seed=count)
            np.testing.assert_allclose(recorded.run([rows])[0], plain.run([rows])[0], atol=1e-5)
        finish_loading(recorded)
    plain.close()
    recorded.close()


def test_graphs_are_recorded_while_others_run(source: Path, tmp_path: Path) -> None:
    """Batches of growing size take memory of the device, which a recording forbids."""
    spec = built("onnx-fp16-cuda", source, tmp_path, images(32))
    stop, failures = threading.Event(), []

    def run_others() -> None:
        try:
            while not stop.is_set():
                other = make_runtime(built("onnx-fp32-cuda", source, tmp_path, images(32)), 1)
                with LOADING:
                    other.load()
                for count in (20, 40, 64):
                    other.run([images(count)])
                with LOADING:
                    other.close()
        except Exception as error:
            failures.append(error)

    other = threading.Thread(target=run_others)
    other.start()
    for _ in range(20):
        runtime = make_runtime(spec, 1)
        with LOADING:
            runtime.load()
            finish_loading(runtime)
        assert len(runtime.run([images(3)])[0]) == 3
        assert isinstance(runtime, OnnxRuntime)
        assert runtime._graphs is not None
        with LOADING:
            runtime.close()
    stop.set()
    other.join()
    assert failures == []


def test_graphs_are_recorded_while_others_are_played(source: Path, tmp_path: Path) -> None:
    """Played graphs hold no lock: they must not disturb a recording, nor be disturbed by it."""
    played = make_runtime(built("onnx-fp32-cuda", source, tmp_path, images(32)), 1)
    played.load()
    finish_loading(played)
    batches = {count: images(count, seed=count) for count in (1, 7, 30)}
    wanted = {count: played.run([rows])[0] for count, rows in batches.items()}
    stop, failures, runs = threading.Event(), [], 0

    def play() -> None:
        nonlocal runs
        try:
            while not stop.is_set():
                for count, rows in batches.items():
                    np.testing.assert_array_equal(played.run([rows])[0], wanted[count])
                    runs += 1
        except Exception as error:
            failures.append(error)

    playing = threading.Thread(target=play)
    playing.start()
    for _ in range(20):
        recorded = make_runtime(built("onnx-fp16-cuda", source, tmp_path, images(32)), 1)
        recorded.load()
        finish_loading(recorded)
        assert isinstance(recorded, OnnxRuntime)
        assert recorded._graphs is not None
        assert len(recorded.run([images(3)])[0]) == 3
        recorded.close()
    stop.set()
    playing.join()
    played.close()
    assert failures == []
    assert runs > 20


def test_sizes_are_recorded_in_idle_moments_beside_batches_and_loads(
    source: Path, tmp_path: Path
) -> None:
    """What a load has left neither breaks loads of others nor changes an answer."""
    spec = replace(built("onnx-fp16-cuda", source, tmp_path, images(32)), latency=((64, 1.0),))
    plain = make_runtime(built("onnx-fp16-cuda", source, tmp_path, images(32), graphs="0"), 1)
    with LOADING:
        plain.load()
    counts = (1, 3, 16, 17, 40, 64)
    wanted = {count: plain.run([images(count, seed=count)])[0] for count in counts}
    for _ in range(5):
        runtime = make_runtime(spec, 1)
        with LOADING:
            runtime.load()
        assert isinstance(runtime, OnnxRuntime)
        graphs = runtime._graphs
        assert graphs is not None
        end_s = time.monotonic() + 120.0
        while len(graphs._recorded) < len(sizes_of(spec)):
            assert time.monotonic() < end_s
            for count in counts:
                found = runtime.run([images(count, seed=count)])[0]
                np.testing.assert_allclose(found, wanted[count], atol=1e-2)
            other = make_runtime(built("onnx-fp32-cuda", source, tmp_path, images(32)), 1)
            with LOADING:
                other.load()
            other.run([images(33)])
            with LOADING:
                other.close()
            time.sleep(0.3)
        with LOADING:
            runtime.close()
    with LOADING:
        plain.close()
