"""What every runtime keeps, kept by those that run on a GPU: the cases of ``tests/contracts``."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contracts import test_runtime as contract
from tests.gpu.machine import NEEDS_GPU, need
from tests.workers.builders import double_model, onnx_spec
from variants.builders import make_builder
from workers.runtime import Runtime, make_runtime
from workers.types import LoadSpec

pytestmark = NEEDS_GPU


@pytest.fixture(params=["onnx-fp32-cuda", "tensorrt-fp32"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> LoadSpec:
    need(request.param)
    builder = make_builder(request.param)
    options = {"engines": str(tmp_path / "engines"), **builder.options}
    made = onnx_spec(double_model(tmp_path / "double.onnx"), options=tuple(options.items()))
    return replace(made, runtime=builder.runtime)


@pytest.fixture
def runtime(spec: LoadSpec) -> Iterator[Runtime]:
    made = make_runtime(spec, 1)
    made.load()
    yield made
    made.close()


globals().update(
    {
        name: case
        for name, case in vars(contract).items()
        if name.startswith("test_") and "runtime" in inspect.signature(case).parameters
    }
)
