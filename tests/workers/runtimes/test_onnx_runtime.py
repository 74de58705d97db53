"""ONNX Runtime's options: how many threads, and which provider, with no way back to the CPU."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.workers.builders import WIDTH, double_model, onnx_spec, tensor
from tests.workers.runtimes.host_cuda import HostCuda
from variants.errors import RuntimeFailed
from workers.runtimes.onnx import OnnxRuntime
from workers.runtimes.onnx_providers import (
    CPU,
    fallen_back,
    gpu_session,
    tensorrt_options,
    tensorrt_version,
)
from workers.types import LoadSpec

ROOT = Path(__file__).parents[3]
CUDA, TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return double_model(tmp_path / "double.onnx")


def spec(model: Path, **options: str) -> LoadSpec:
    return onnx_spec(model, options=tuple(options.items()))


@pytest.fixture
def threads_of(model: Path) -> Iterator[Any]:
    """Loads the model and counts threads: those that appeared, and the one that asks."""
    OnnxRuntime(spec(model), 1).load()  # threads of the library itself
    loaded: list[OnnxRuntime] = []

    def count(given: int, **options: str) -> int:
        before = len(os.listdir("/proc/self/task"))
        runtime = OnnxRuntime(spec(model, **options), given)
        runtime.load()
        loaded.append(runtime)
        return len(os.listdir("/proc/self/task")) - before + 1

    yield count
    for runtime in loaded:
        runtime.close()


SERVED = """
from tests.workers.builders import onnx_spec
from workers.runtimes.onnx import OnnxRuntime
OnnxRuntime(onnx_spec(path), 1).load()
"""
EXPORTED = """
from controlplane.client.exporting.onnx_file import OnnxAnswers
OnnxAnswers(path.read_bytes())
"""


@pytest.mark.parametrize("code", [SERVED, EXPORTED])
def test_nothing_is_sent_home(model: Path, tmp_path: Path, code: str) -> None:
    """Left alone, ONNX Runtime keeps an identifier and events in ~/.cache and sends the latter."""
    head = "import sys; from pathlib import Path; path = Path(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", head + code, str(model)],
        check=True, cwd=ROOT,
        env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert list(tmp_path.iterdir()) == [model]


def test_without_a_word_it_takes_all_threads_that_it_is_given(threads_of: Any) -> None:
    assert [threads_of(1), threads_of(3)] == [1, 3]


def test_a_variant_may_want_fewer_threads_than_the_worker_has(threads_of: Any) -> None:
    assert threads_of(3, threads="2") == 2


def test_a_variant_gets_no_more_threads_than_the_worker_has(threads_of: Any) -> None:
    assert threads_of(2, threads="8") == 2


@pytest.mark.parametrize("wrong", ["0", "-1", "all", ""])
def test_a_number_of_threads_that_is_none(model: Path, wrong: str) -> None:
    with pytest.raises(RuntimeFailed, match=f"task/v has threads '{wrong}', not a number from 1"):
        OnnxRuntime(spec(model, threads=wrong), 1).load()


def test_an_unknown_provider(model: Path) -> None:
    with pytest.raises(RuntimeFailed, match="task/v has provider 'tpu'; there are: cuda, tensorrt"):
        OnnxRuntime(spec(model, provider="tpu"), 1).load()


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_the_onnxruntime_for_cpus_has_no_gpu_provider(model: Path, provider: str) -> None:
    import onnxruntime

    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime is the one for GPUs; tests/gpu has its tests")
    with pytest.raises(RuntimeFailed, match=r"has no .*Provider; install onnxruntime-gpu in its"):
        OnnxRuntime(spec(model, provider=provider), 1).load()


class HostOrt:
    """An ``onnxruntime`` for GPUs that places nodes as it is told, and records what it was told."""

    __version__ = "1.31.1"
    GraphOptimizationLevel = SimpleNamespace(ORT_DISABLE_ALL="none")

    def __init__(self, *, starts: bool = True, places: dict[str, str] | None = None) -> None:
        self._starts = starts
        self._places = places or {}
        self.providers: list[tuple[str, dict[str, str]]] = []
        self.fallback: int | None = None

    def get_available_providers(self) -> list[str]:
        return [TENSORRT, CUDA, CPU]

    def preload_dlls(self) -> None:
        pass

    def set_default_logger_severity(self, severity: int) -> None:
        pass

    def InferenceSession(
        self, path: str, options: Any, *, providers: Any, enable_fallback: int
    ) -> Any:
        self.providers, self.fallback = providers, enable_fallback
        has = [name for name, _ in providers] if self._starts else []
        parts = [
            SimpleNamespace(
                ep_name=place, get_nodes=lambda kind=kind: [SimpleNamespace(op_type=kind, name="n")]
            )
            for kind, place in self._places.items()
        ]
        return SimpleNamespace(
            get_providers=lambda: [*has, CPU], get_provider_graph_assignment_info=lambda: parts
        )


class Entries:
    """Session options that are looked at afterwards."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def add_session_config_entry(self, name: str, value: str) -> None:
        self.found[name] = value


def session(ort: HostOrt, model: Path, **options: str) -> Entries:
    entries = Entries()
    gpu_session(ort, spec(model, **options), entries, device=HostCuda().device)
    return entries


def test_cuda_gets_no_fallback_and_says_where_nodes_went(model: Path) -> None:
    ort = HostOrt(places={"Mul": CUDA})
    entries = session(ort, model, provider="cuda")
    assert (ort.fallback, [name for name, _ in ort.providers]) == (0, [CUDA])
    assert entries.found == {"session.record_ep_graph_assignment_info": "1"}


@pytest.mark.parametrize(("asked", "got"), [({}, "0"), ({"tf32": "1"}, "1")])
def test_fp32_products_are_rounded_only_if_asked(
    model: Path, asked: dict[str, str], got: str
) -> None:
    ort = HostOrt(places={"Mul": CUDA})
    session(ort, model, provider="cuda", **asked)
    assert ort.providers[0][1]["use_tf32"] == got


def test_a_provider_that_cannot_start_is_no_reason_to_run_elsewhere(model: Path) -> None:
    with pytest.raises(RuntimeFailed, match=f"{CUDA} could not be started and ONNX Runtime would"):
        session(HostOrt(starts=False), model, provider="cuda")


class WithoutGraphs(HostOrt):
    """Cannot record a model, as where a part of it is on the CPU."""

    def InferenceSession(
        self, path: str, options: Any, *, providers: Any, enable_fallback: int
    ) -> Any:
        if providers[0][1]["enable_cuda_graph"] == "1":
            raise RuntimeError("This session cannot use the graph capture feature")
        return super().InferenceSession(
            path, options, providers=providers, enable_fallback=enable_fallback
        )


@pytest.mark.parametrize(("ort", "records"), [(HostOrt, "1"), (WithoutGraphs, "0")])
def test_a_model_that_cannot_be_recorded_runs_without(
    model: Path, ort: type[HostOrt], records: str
) -> None:
    host = ort(places={"Mul": CUDA})
    wanted: Any = spec(model, provider="cuda")
    gpu_session(host, wanted, Entries(), device=HostCuda().device, graphs=True)
    assert host.providers[0][1]["enable_cuda_graph"] == records


def test_the_work_of_a_model_may_not_fall_to_the_cpu(model: Path) -> None:
    ort = HostOrt(places={"Mul": CUDA, "Conv": CPU})
    with pytest.raises(RuntimeFailed, match=r"cannot run node 'n' \(Conv\), which fell to the CPU"):
        session(ort, model, provider="cuda")


def test_shapes_may_be_computed_on_the_cpu() -> None:
    assigned = [(CUDA, [("Conv", "a")]), (CPU, [("Shape", "b"), ("Gather", "c")])]
    assert fallen_back(CUDA, [CUDA, CPU], assigned) == ""


def test_cuda_may_take_what_tensorrt_does_not_but_not_all() -> None:
    both = [(TENSORRT, [("Conv", "a")]), (CUDA, [("MatMul", "b")])]
    assert fallen_back(TENSORRT, [TENSORRT, CUDA, CPU], both) == ""
    why = fallen_back(TENSORRT, [TENSORRT, CUDA, CPU], both[1:])
    assert why == f"{TENSORRT} took no part of the model"


def test_tensorrt_has_one_profile_for_all_batch_sizes(model: Path) -> None:
    wide = replace(spec(model), inputs=(tensor("x"), tensor("mask", 2)))
    told = tensorrt_options(wide, {"ranges": "1,2-16"}, None)
    shapes = {name: text for name, text in told.items() if "shapes" in name}
    assert shapes == {
        "trt_profile_min_shapes": "x:1x4,mask:1x2",
        "trt_profile_opt_shapes": "x:16x4,mask:16x2",
        "trt_profile_max_shapes": "x:16x4,mask:16x2",
    }
    assert not any("cache" in name for name in told)


def test_tensorrt_keeps_engines_in_the_folder_it_is_given(model: Path, tmp_path: Path) -> None:
    told = tensorrt_options(spec(model), {}, tmp_path)
    assert (told["trt_engine_cache_enable"], told["trt_engine_cache_path"]) == ("1", str(tmp_path))
    assert not any("fp16" in name or "int8" in name for name in told)


def test_each_model_gpu_and_tensorrt_has_a_folder_of_engines_of_its_own(
    model: Path, tmp_path: Path
) -> None:
    """ONNX Runtime takes an engine of another model of the same structure for its own."""
    folders = []
    other = double_model(tmp_path / "other.onnx", width=5)
    for artifact, version in ((model, "10.1"), (model, "10.2"), (other, "10.1"), (model, "10.1")):
        ort = HostOrt(places={"Mul": TENSORRT})
        wanted = spec(artifact, provider="tensorrt", engines=str(tmp_path / "engines"))
        options: Any = Entries()
        gpu_session(ort, wanted, options, device=HostCuda().device, tensorrt=partial(str, version))
        assert [name for name, _ in ort.providers] == [TENSORRT, CUDA]
        assert options.graph_optimization_level == "none"
        folders.append(Path(ort.providers[0][1]["trt_engine_cache_path"]))
    assert len(set(folders)) == 3
    assert folders[0] == folders[3]
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}


@pytest.mark.parametrize(
    ("library", "why"),
    [
        ("libnvinfer.so.999", r"onnxruntime-gpu needs libnvinfer\.so\.999: libnvinfer"),
        (None, "this onnxruntime has no TensorRT provider"),
    ],
)
def test_tensorrt_without_its_library_is_named(library: str | None, why: str) -> None:
    with pytest.raises(RuntimeFailed, match=why):
        tensorrt_version(library)


def test_a_cpu_variant_is_as_it_was(model: Path) -> None:
    runtime = OnnxRuntime(spec(model), 1)
    runtime.load()
    (output,) = runtime.run([np.ones((2, WIDTH), np.float32)])
    np.testing.assert_array_equal(output, np.full((2, WIDTH), 2, np.float32))
    runtime.close()
