"""The engines of a real TensorRT: found again, built again, given back."""

import logging
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.convolutional import convolutional, images
from tests.gpu.machine import NEEDS_GPU, built, free_bytes
from tests.workers.runtimes import host_tensorrt
from tests.workers.runtimes.host_tensorrt import STAND_INS
from variants.errors import RuntimeFailed
from workers.runtimes.cuda import first_device
from workers.runtimes.tensorrt.engine_building import import_tensorrt
from workers.runtimes.tensorrt.runtime import TensorRtRuntime
from workers.types import LoadSpec

pytestmark = NEEDS_GPU

MIB = 2**20


@pytest.fixture
def spec(tmp_path: Path) -> LoadSpec:
    source = tmp_path / "model.onnx"
    onnx.save(convolutional(), str(source))
    return built("tensorrt-fp32", source, tmp_path, images(32))


@pytest.fixture
def builds(caplog: pytest.LogCaptureFixture) -> Any:
    """How many engines were built since this was last asked."""
    caplog.set_level(logging.INFO, logger="workers.runtimes.tensorrt.runtime")

    def count() -> int:
        found = sum("building an engine" in message for message in caplog.messages)
        caplog.clear()
        return found

    return count


def load_and_close(spec: LoadSpec, **changes: Any) -> float:
    """Seconds that loading took."""
    runtime = TensorRtRuntime(spec, 1, **changes)
    began = time.perf_counter()
    runtime.load()
    took_s = time.perf_counter() - began
    runtime.close()
    return took_s


def test_the_second_load_finds_the_engine(spec: LoadSpec, builds: Any) -> None:
    load_and_close(spec)
    assert builds() == 1
    load_and_close(spec)
    assert builds() == 0


def test_another_version_of_tensorrt_builds_its_own(spec: LoadSpec, builds: Any) -> None:
    class Newer:
        """The same module under another version."""

        __version__ = "11.99.0.1"

        def __getattr__(self, name: str) -> Any:
            return getattr(import_tensorrt(), name)

    newer = Newer()
    load_and_close(spec)
    load_and_close(spec, tensorrt=lambda: newer)
    assert builds() == 2


def test_a_damaged_engine_is_built_again(spec: LoadSpec, builds: Any) -> None:
    load_and_close(spec)
    builds()
    for path in Path(dict(spec.options)["engines"]).glob("*.engine"):
        whole = bytearray(path.read_bytes())
        whole[len(whole) // 2] ^= 0xFF
        path.write_bytes(whole)
    load_and_close(spec)
    assert builds() == 1


def test_ranges_of_batch_sizes_end_where_the_variant_says(spec: LoadSpec) -> None:
    narrow = replace(spec, options=(*spec.options, ("ranges", "1,2-4")))
    runtime = TensorRtRuntime(narrow, 1)
    runtime.load()
    assert len(runtime.run([images(4)])[0]) == 4
    with pytest.raises(RuntimeFailed, match="takes 1 to 4 rows at a time, not 5"):
        runtime.run([images(5)])
    assert len(runtime.run([images(1)])[0]) == 1
    runtime.close()


def test_memory_on_the_device_is_given_back(spec: LoadSpec) -> None:
    """Twenty loads after the first: what libraries keep for themselves, they keep once."""
    device = first_device()
    device.enter()
    load_and_close(spec)
    before = free_bytes()
    for _ in range(20):
        load_and_close(spec)
    after = free_bytes()
    assert before - after <= 4 * MIB


def test_a_model_that_tensorrt_cannot_take_is_told_in_one_sentence(
    spec: LoadSpec, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    with pytest.raises(RuntimeFailed, match="task/v cannot be loaded: TensorRT cannot take"):
        TensorRtRuntime(replace(spec, path=str(broken)), 1).load()


@pytest.mark.parametrize(("stand_in", "real"), STAND_INS.items())
def test_the_stand_in_of_other_tests_has_nothing_that_tensorrt_lacks(
    spec: LoadSpec, stand_in: str, real: str
) -> None:
    """Else a runtime that passes with the one fails with the other."""
    has = {name for name in dir(getattr(host_tensorrt, stand_in)) if not name.startswith("_")}
    assert has <= set(dir(getattr(import_tensorrt(), real)))
