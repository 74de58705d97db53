"""Engines, built by a real library of the TensorRT family. That needs no GPU; running them does.

TensorRT 11 itself cannot be had from PyPI. TensorRT for RTX can: it has the same interface.
"""

import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.convolutional import CLASSES, SIZE, convolutional, images
from tests.workers.builders import onnx_spec
from tests.workers.runtimes import host_tensorrt
from tests.workers.runtimes.host_tensorrt import STAND_INS
from variants.builders.protocol import Material
from variants.builders.registry import make_builder
from variants.errors import RuntimeFailed
from variants.types import TensorSpec
from workers.runtimes.tensorrt.engine_building import PlanOptions, build_plan
from workers.types import LoadSpec

# Its timing caches do nothing, and say so.
pytestmark = pytest.mark.filterwarnings("ignore:Use Deprecated in TensorRT-RTX")


@pytest.fixture(scope="module")
def trt() -> Any:
    try:
        import_module("tensorrt_rtx_libs")
        return import_module("tensorrt_rtx_bindings")
    except ImportError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"TensorRT for RTX is not installed: {error}")


@pytest.fixture
def spec(tmp_path: Path) -> LoadSpec:
    path = tmp_path / "model.onnx"
    onnx.save(convolutional(), str(path))
    return replace(
        onnx_spec(path),
        inputs=(TensorSpec(name="image", dtype="float32", shape=(3, SIZE, SIZE)),),
        outputs=(TensorSpec(name="scores", dtype="float32", shape=(CLASSES,)),),
    )


class Told:
    """What the library said last."""

    def __init__(self, trt: Any) -> None:
        told = self

        class Logger(trt.ILogger):  # type: ignore[misc]
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: Any, msg: str) -> None:
                if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                    told.errors.append(msg)

        self.errors: list[str] = []
        self.logger = Logger()

    def take(self) -> str:
        return "; ".join(self.errors)


def built(trt: Any, spec: LoadSpec, path: Path, timings: bytes = b"", **options: str) -> Any:
    told = Told(trt)
    return build_plan(
        trt, told.logger, path.read_bytes(), spec, PlanOptions.of(options),
        threads=1, timings=timings, said=told.take,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["tensorrt-fp32", "tensorrt-fp16", "tensorrt-int8"])
def test_what_is_built_for_tensorrt_becomes_an_engine(
    trt: Any, spec: LoadSpec, kind: str, tmp_path: Path
) -> None:
    builder = make_builder(kind)
    path = tmp_path / f"{kind}.onnx"
    builder.build(Material(source=Path(spec.path), calibration={"image": images(32)}), path)

    plan, _ = built(trt, spec, path)

    assert len(plan) > 1_000


def test_all_options_are_taken(trt: Any, spec: LoadSpec) -> None:
    plan, timings = built(trt, spec, Path(spec.path), ranges="1,2-4", tf32="1", level="1")
    again, _ = built(trt, spec, Path(spec.path), timings, ranges="1,2-4,5-99", workspace_mib="64")

    assert plan
    assert again


def test_a_file_that_is_no_model_is_told_in_one_sentence(
    trt: Any, spec: LoadSpec, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")

    with pytest.raises(RuntimeFailed, match="TensorRT cannot take the model"):
        built(trt, spec, broken)


def test_an_input_of_another_shape_is_refused(trt: Any, spec: LoadSpec) -> None:
    other = replace(spec, inputs=(TensorSpec(name="image", dtype="float32", shape=(3, 9, 9)),))

    with pytest.raises(RuntimeFailed, match="has rows of"):
        built(trt, other, Path(spec.path))


@pytest.mark.parametrize(("stand_in", "real"), STAND_INS.items())
def test_the_stand_in_of_other_tests_has_nothing_that_the_library_lacks(
    trt: Any, stand_in: str, real: str
) -> None:
    """Else a runtime that passes with the one fails with the other."""
    has = {name for name in dir(getattr(host_tensorrt, stand_in)) if not name.startswith("_")}

    assert has <= set(dir(getattr(trt, real)))
