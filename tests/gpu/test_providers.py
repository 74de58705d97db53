"""ONNX Runtime's GPU providers, the real ones."""

from pathlib import Path

import onnx
import pytest

from tests.convolutional import convolutional, images
from tests.gpu.machine import NEEDS_GPU, built, free_bytes
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
