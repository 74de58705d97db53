"""What the machine must have for tests on a GPU, and variants built for one."""

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.convolutional import CLASSES, SIZE
from tests.workers.builders import onnx_spec
from variants.builders.gpu_requirements import missing_gpu
from variants.builders.protocol import Material
from variants.builders.registry import make_builder, missing_here
from variants.types import TensorSpec
from workers.runtimes.cuda import LIBRARY
from workers.types import LoadSpec

NEEDS_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        missing_gpu() is not None,
        reason="no NVIDIA GPU here: these tests run only where there is one, and CI has none",
    ),
]
"""Marks of every module here."""
KINDS = (
    "onnx-fp32-cuda",
    "onnx-fp16-cuda",
    "onnx-fp16-tensorrt",
    "onnx-int8-tensorrt",
    "tensorrt-fp32",
    "tensorrt-fp16",
    "tensorrt-int8",
)


def free_bytes() -> int:
    """Free memory of the device that this thread has entered."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    driver = ctypes.CDLL(LIBRARY)
    assert driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
    return free.value


def need(kind: str) -> None:
    """Skip the test where a kind's back end is not installed, and say which."""
    if why := missing_here(kind):
        pytest.skip(f"{kind}: {why}")


def built(kind: str, source: Path, folder: Path, rows: Any, **options: str) -> LoadSpec:
    """``tests.convolutional`` as registration builds it, calibrated on ``rows``.

    Its engines are kept in ``folder``.
    """
    need(kind)
    builder = make_builder(kind)
    artifact = folder / f"{kind}{builder.suffix}"
    builder.build(Material(source=source, calibration={"image": rows}), artifact)
    told = {"engines": str(folder / "engines"), **builder.options, **options}
    return replace(
        onnx_spec(artifact, options=tuple(told.items())),
        runtime=builder.runtime,
        inputs=(TensorSpec(name="image", dtype="float32", shape=(3, SIZE, SIZE)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(CLASSES,)),),
    )
