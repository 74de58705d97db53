"""The TensorRT runtime over a driver and a TensorRT on the host; the real ones: ``tests/gpu``."""

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.workers.builders import WIDTH, double_model, onnx_spec, tensor
from tests.workers.runtimes.host_cuda import HostCuda
from tests.workers.runtimes.host_tensorrt import SCRATCH_BYTES, HostTensorRt
from variants.errors import RuntimeFailed
from variants.types import TensorSpec
from workers.runtimes.cuda import Device, Driver
from workers.runtimes.engine_store import EngineCache, digest_of
from workers.runtimes.tensorrt.engine_building import PlanOptions
from workers.runtimes.tensorrt.runtime import TensorRtRuntime
from workers.types import LoadSpec


class Bench:
    """A machine with a GPU, and a model."""

    def __init__(self, folder: Path) -> None:
        self.cuda = HostCuda()
        self.trt = HostTensorRt(self.cuda)
        self.model = double_model(folder / "double.onnx")
        self.engines = folder / "engines"

    def spec(self, **options: str) -> LoadSpec:
        options = {"engines": str(self.engines), **options}
        spec = onnx_spec(self.model, options=tuple(options.items()))
        return replace(spec, runtime="tensorrt")

    def runtime(self, spec: LoadSpec | None = None, threads: int = 1) -> TensorRtRuntime:
        return TensorRtRuntime(
            spec or self.spec(), threads, device=self.cuda.device, tensorrt=lambda: self.trt
        )

    def loaded(self, spec: LoadSpec | None = None, threads: int = 1) -> TensorRtRuntime:
        runtime = self.runtime(spec, threads)
        runtime.load()
        return runtime


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Whatever a test did: once its runtimes are closed and gone, nothing is left on the device."""
    made = Bench(tmp_path)
    yield made
    if not made.cuda.idle:
        gc.collect()  # an exception that was caught may hold the engine
    assert made.cuda.idle


def rows(count: int) -> Any:
    return np.arange(count * WIDTH, dtype=np.float32).reshape(count, WIDTH)


def test_a_batch_is_doubled(bench: Bench) -> None:
    runtime = bench.loaded()
    (output,) = runtime.run([rows(5)])
    np.testing.assert_array_equal(output, rows(5) * 2)
    runtime.close()


def test_an_answer_outlives_the_next_batch(bench: Bench) -> None:
    runtime = bench.loaded()
    (first,) = runtime.run([rows(3)])
    runtime.run([rows(3) + 100])
    np.testing.assert_array_equal(first, rows(3) * 2)
    runtime.close()


def test_each_range_of_batch_sizes_has_its_profile_and_its_context(bench: Bench) -> None:
    runtime = bench.loaded(bench.spec(ranges="1,2-4,5-6"))
    for count in (1, 2, 4, 5, 6, 1):
        runtime.run([rows(count)])
    loading, running = bench.trt.ran[:3], bench.trt.ran[3:]
    assert loading == [(0, 1), (1, 2), (2, 5)]
    assert running == [(0, 1), (1, 2), (1, 4), (2, 5), (2, 6), (0, 1)]
    (plan,) = bench.trt.plans
    assert plan["profiles"] == [
        {"x": ((1, WIDTH), (1, WIDTH), (1, WIDTH))},
        {"x": ((2, WIDTH), (4, WIDTH), (4, WIDTH))},
        {"x": ((5, WIDTH), (6, WIDTH), (6, WIDTH))},
    ]
    runtime.close()


@pytest.mark.parametrize("count", [0, 7])
def test_a_batch_outside_all_ranges_fails_and_the_next_works(bench: Bench, count: int) -> None:
    runtime = bench.loaded(bench.spec(ranges="1-6"))
    with pytest.raises(RuntimeFailed, match=f"task/v takes 1 to 6 rows at a time, not {count}"):
        runtime.run([np.zeros((count, WIDTH), np.float32)])
    assert len(runtime.run([rows(6)])[0]) == 6
    runtime.close()


def test_the_second_load_finds_the_engine(bench: Bench) -> None:
    bench.loaded().close()
    again = bench.loaded()
    assert len(bench.trt.plans) == 1
    np.testing.assert_array_equal(again.run([rows(2)])[0], rows(2) * 2)
    again.close()


@pytest.mark.parametrize(
    ("what", "value"),
    [("ranges", "1-8"), ("level", "5"), ("workspace_mib", "64"), ("tf32", "1")],
)
def test_another_option_needs_another_engine(bench: Bench, what: str, value: str) -> None:
    bench.loaded().close()
    bench.loaded(bench.spec(**{what: value})).close()
    assert len(bench.trt.plans) == 2


def test_another_tensorrt_needs_another_engine(bench: Bench) -> None:
    bench.loaded().close()
    bench.trt = HostTensorRt(bench.cuda, "11.5.0.1")
    bench.loaded().close()
    assert len(bench.trt.plans) == 1


def test_another_gpu_needs_another_engine(bench: Bench) -> None:
    bench.loaded().close()
    bench.cuda.name = "NVIDIA H200 MIG 1g.18gb"
    bench.loaded().close()
    assert len(bench.trt.plans) == 2


def test_another_model_under_the_same_name_needs_another_engine(bench: Bench) -> None:
    bench.loaded().close()
    model = onnx.load(bench.model)
    model.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(np.array(3, dtype=np.float32), "two")
    )
    onnx.save(model, bench.model)
    tripled = bench.loaded()
    np.testing.assert_array_equal(tripled.run([rows(2)])[0], rows(2) * 3)
    tripled.close()


def test_an_engine_that_tensorrt_refuses_is_built_again(bench: Bench) -> None:
    """The file is whole, but TensorRT will not have it: after a change of driver, say."""
    spec = bench.spec()
    options = PlanOptions.of(dict(spec.options))
    artifact = digest_of(bench.model.read_bytes())
    key = options.key(bench.trt.__version__, bench.cuda.device(), artifact, spec)
    EngineCache(bench.engines).put(key.digest, b"of no use")
    bench.loaded().close()
    bench.loaded().close()
    assert len(bench.trt.plans) == 1


def test_a_cache_that_others_may_write_to_is_not_read(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.loaded().close()
    bench.engines.chmod(0o770)
    bench.loaded().close()
    assert len(bench.trt.plans) == 2
    assert "has mode 0770, not 0700" in caplog.text


def test_timings_of_kernels_help_the_next_engine(bench: Bench) -> None:
    bench.loaded().close()
    bench.loaded(bench.spec(ranges="1-8")).close()
    assert [plan["timings"] for plan in bench.trt.plans] == [0, 1]


def test_the_builder_is_told_the_options(bench: Bench) -> None:
    bench.loaded(bench.spec(level="1", workspace_mib="64"), threads=3).close()
    (plan,) = bench.trt.plans
    told = {name: plan[name] for name in ("level", "pools", "tf32", "threads")}
    assert told == {"level": 1, "pools": {"WORKSPACE": 64 * 2**20}, "tf32": False, "threads": 3}


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ({"ranges": "1-8,16"}, "batch ranges are written like"),
        ({"level": "6"}, "option level is a whole number from 0 to 5, not '6'"),
        ({"workspace_mib": "lots"}, "option workspace_mib is a whole number"),
    ],
)
def test_a_wrong_option_is_named(bench: Bench, option: dict[str, str], why: str) -> None:
    with pytest.raises(RuntimeFailed, match=why):
        bench.loaded(bench.spec(**option))


def test_the_memory_on_the_device_is_counted_and_given_back(bench: Bench) -> None:
    runtime = bench.loaded(bench.spec(ranges="1-16"))
    tensors_bytes = 2 * 16 * WIDTH * 4
    weights_bytes = bench.model.stat().st_size
    assert bench.cuda.allocated_bytes == SCRATCH_BYTES + tensors_bytes + weights_bytes
    runtime.close()
    assert bench.cuda.allocated_bytes == 0


def test_fifty_loads_leave_nothing(bench: Bench) -> None:
    runtime = bench.runtime()
    for _ in range(50):
        runtime.load()
        runtime.run([rows(2)])
        runtime.close()
        assert bench.cuda.idle


def test_a_model_that_tensorrt_cannot_parse(bench: Bench) -> None:
    bench.model.write_bytes(b"no model")
    with pytest.raises(RuntimeFailed, match="task/v cannot be loaded: TensorRT cannot take the"):
        bench.loaded()


def test_an_engine_that_cannot_be_built_says_why(bench: Bench) -> None:
    bench.trt.refuse_to_build = True
    with pytest.raises(RuntimeFailed, match="cannot build the engine: Error Code 10: could not"):
        bench.loaded()


@pytest.mark.parametrize(
    ("inputs", "outputs", "why"),
    [
        (tensor("z"), tensor("y"), "takes inputs x, the task has z"),
        (tensor("x"), tensor("z"), "it has no output z"),
        (tensor("x", 3), tensor("y"), r"has rows of \(4,\), the task of \(3,\)"),
        (tensor("x"), tensor("y", 3), r"'y' is float32 \[-1, 4\], the task's is float32 \[-1,"),
    ],
)
def test_a_model_of_another_signature(
    bench: Bench, inputs: TensorSpec, outputs: TensorSpec, why: str
) -> None:
    with pytest.raises(RuntimeFailed, match=why):
        bench.loaded(replace(bench.spec(), inputs=(inputs,), outputs=(outputs,)))


def test_an_engine_may_tell_the_shape_of_its_first_range(bench: Bench) -> None:
    bench.trt.tells_the_first_range = True
    runtime = bench.loaded()
    np.testing.assert_array_equal(runtime.run([rows(3)])[0], rows(3) * 2)
    runtime.close()


def test_an_engine_of_one_batch_size_is_refused(bench: Bench) -> None:
    bench.trt.tells_the_first_range = bench.trt.keeps_the_first_range = True
    with pytest.raises(RuntimeFailed, match=r"for 2 rows, tensor 'y' has the shape \[1, 4\]"):
        bench.loaded()


def test_outputs_beyond_the_task_s_are_not_computed(bench: Bench) -> None:
    model = onnx.load(bench.model)
    model.graph.node.append(onnx.helper.make_node("Neg", ["y"], ["more"]))
    model.graph.output.append(
        onnx.helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, ["batch", WIDTH])
    )
    onnx.save(model, bench.model)
    runtime = bench.loaded()
    assert len(runtime.run([rows(1)])) == 1
    assert bench.trt.plans[0]["outputs"] == ["y"]
    runtime.close()


def test_a_batch_that_fails_on_the_device_is_told_and_the_next_works(bench: Bench) -> None:
    runtime = bench.loaded()
    bench.trt.fail_on_device = True
    with pytest.raises(RuntimeFailed, match="task/v failed: CUDA: cuStreamSynchronize: CUDA_ERR"):
        runtime.run([rows(3)])
    bench.trt.fail_on_device = False
    np.testing.assert_array_equal(runtime.run([rows(3)])[0], rows(3) * 2)
    runtime.close()


def test_after_a_batch_that_failed_half_way_the_next_one_says_how_large_it_is(
    bench: Bench,
) -> None:
    runtime = bench.loaded()
    runtime.run([rows(3)])
    bench.trt.fail_to_set_shapes = True
    with pytest.raises(RuntimeFailed, match="task/v failed: TensorRT refuses 5 rows of 'x'"):
        runtime.run([rows(5)])
    bench.trt.fail_to_set_shapes = False
    runtime.run([rows(3)])
    assert bench.trt.ran[-1] == (1, 3)
    runtime.close()


def test_any_thread_may_run_and_close_it(bench: Bench) -> None:
    with ThreadPoolExecutor(1) as loading, ThreadPoolExecutor(1) as running:
        runtime = loading.submit(bench.loaded).result()
        outputs = running.submit(runtime.run, [rows(2)]).result()
        np.testing.assert_array_equal(outputs[0], rows(2) * 2)
        loading.submit(runtime.close).result()


def test_without_a_driver_it_says_so(bench: Bench) -> None:
    def none() -> Device:
        return Device(Driver.load("libcuda-of-no-machine.so.1"))

    runtime = TensorRtRuntime(bench.spec(), 1, device=none)
    with pytest.raises(RuntimeFailed, match="task/v cannot be loaded: no NVIDIA GPU here: libcuda"):
        runtime.load()


def test_without_a_gpu_it_says_so(bench: Bench) -> None:
    bench.cuda.devices = 0
    with pytest.raises(RuntimeFailed, match="no NVIDIA GPU here that this process may use"):
        bench.loaded()
