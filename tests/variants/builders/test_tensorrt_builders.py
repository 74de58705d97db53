"""Variants for GPUs: their files can be made, and looked into, where there is none."""

from importlib import invalidate_caches
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, numpy_helper

from tests.convolutional import convolutional, images
from variants.builders.gpu_requirements import (
    missing_gpu,
    missing_onnxruntime_gpu,
    missing_tensorrt_of_onnxruntime,
)
from variants.builders.protocol import Material
from variants.builders.registry import BUILDERS, make_builder, missing_here
from variants.types import Precision

KINDS = (
    "onnx-fp32-cuda",
    "onnx-fp16-cuda",
    "onnx-fp16-tensorrt",
    "onnx-int8-tensorrt",
    "tensorrt-fp32",
    "tensorrt-fp16",
    "tensorrt-int8",
)
FP16 = ("onnx-fp16-cuda", "onnx-fp16-tensorrt", "tensorrt-fp16")
INT8 = ("onnx-int8-tensorrt", "tensorrt-int8")


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    source = tmp_path_factory.mktemp("source") / "model.onnx"
    onnx.save(convolutional(), str(source))
    return Material(source=source, calibration={"image": images(32)})


@pytest.fixture(scope="module")
def built(material: Material, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every kind's file."""
    folder = tmp_path_factory.mktemp("built")
    paths = {kind: folder / f"{kind}.onnx" for kind in (*KINDS, "onnx-fp32")}
    for kind, path in paths.items():
        make_builder(kind).build(material, path)
    return paths


def scores(path: Path, rows: Any) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(["scores"], {"image": rows})[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_says_what_it_makes(kind: str) -> None:
    builder = make_builder(kind)
    runtime, precision, *option = kind.split("-")
    told = {"provider": option[0]} if option else {}
    assert (builder.runtime, builder.precision, dict(builder.options)) == (
        runtime,
        Precision(precision),
        told,
    )
    assert (builder.gpu, builder.suffix, builder.needs) == (True, ".onnx", frozenset())
    assert kind in BUILDERS


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_and_outputs_stay_as_the_model_has_them(
    kind: str, built: dict[str, Path], material: Material
) -> None:
    def ports(path: Path) -> list[tuple[str, int, list[str]]]:
        graph = onnx.load(str(path)).graph
        return [
            (
                value.name,
                value.type.tensor_type.elem_type,
                [d.dim_param or str(d.dim_value) for d in value.type.tensor_type.shape.dim],
            )
            for value in (*graph.input, *graph.output)
        ]

    assert ports(built[kind]) == ports(material.source)


@pytest.mark.parametrize("kind", KINDS)
def test_only_standard_operators_are_used(kind: str, built: dict[str, Path]) -> None:
    model = onnx.load(str(built[kind]))
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_model(
    kind: str, built: dict[str, Path], material: Material
) -> None:
    """On rows that were not calibrated on; ``scores`` lie in [0, 1]."""
    rows = images(64, seed=2)
    off = np.abs(scores(built[kind], rows) - scores(material.source, rows)).max()
    tolerance = {"fp32": 1e-5, "fp16": 1e-3, "int8": 1.5e-2}[kind.split("-")[1]]
    assert off <= tolerance


def test_fp32_is_the_file_for_cpus(built: dict[str, Path]) -> None:
    whole = built["onnx-fp32"].read_bytes()
    assert [built[kind].read_bytes() == whole for kind in ("onnx-fp32-cuda", "tensorrt-fp32")] == [
        True,
        True,
    ]


@pytest.mark.parametrize("kinds", [FP16, INT8])
def test_one_precision_is_one_file(kinds: tuple[str, ...], built: dict[str, Path]) -> None:
    """Stored once, whatever device kind runs it."""
    assert len({built[kind].read_bytes() for kind in kinds}) == 1


def test_fp16_computes_every_product_in_fp16(built: dict[str, Path]) -> None:
    """A strongly typed network computes in the types of the file."""
    model = onnx.shape_inference.infer_shapes(onnx.load(str(built["tensorrt-fp16"])))
    graph = model.graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.value_info, *graph.input)}
    types |= {weight.name: weight.data_type for weight in graph.initializer}
    products = [n for n in graph.node if n.op_type in ("Conv", "Gemm", "MatMul")]
    assert len(products) == 3
    for product in products:
        assert {types[name] for name in product.input} == {TensorProto.FLOAT16}


class Quantised:
    """A QDQ model, its initialisers by name, its nodes by what they give."""

    def __init__(self, path: Path) -> None:
        graph = onnx.load(str(path)).graph
        self.nodes = list(graph.node)
        self.arrays = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
        self.maker = {name: node for node in graph.node for name in node.output}

    def of(self, *kinds: str) -> list[Any]:
        return [node for node in self.nodes if node.op_type in kinds]


@pytest.fixture(scope="module")
def quantised(built: dict[str, Path]) -> Quantised:
    return Quantised(built["tensorrt-int8"])


def test_int8_is_symmetric(quantised: Quantised) -> None:
    """TensorRT: "zero point must be zero", for activations and weights alike, and signed."""
    pairs = quantised.of("QuantizeLinear", "DequantizeLinear")
    assert pairs
    for each in pairs:
        zero = quantised.arrays[each.input[2]]
        assert zero.dtype == np.int8
        assert not zero.any()
        assert (quantised.arrays[each.input[1]] > 0).all()


def test_int8_dequantises_nothing_but_8_bits(quantised: Quantised) -> None:
    """TensorRT refuses biases as 32-bit integers: "only activation types allowed as input"."""
    for each in quantised.of("DequantizeLinear"):
        array = quantised.arrays.get(each.input[0])
        assert array is None or array.dtype == np.int8


def test_each_product_takes_8_bits_on_both_sides_weights_per_channel(quantised: Quantised) -> None:
    products = quantised.of("Conv", "Gemm")
    assert len(products) == 3
    for product in products:
        activation, weight = (quantised.maker[name] for name in product.input[:2])
        assert {activation.op_type, weight.op_type} == {"DequantizeLinear"}
        assert quantised.maker[activation.input[0]].op_type == "QuantizeLinear"
        assert quantised.arrays[activation.input[1]].ndim == 0
        array, scale = (quantised.arrays[name] for name in weight.input[:2])
        axis = next((a.i for a in weight.attribute if a.name == "axis"), 1)
        assert scale.shape == (array.shape[axis],)
        assert len(set(scale.tolist())) > 1
        bias = quantised.arrays[product.input[2]]
        assert bias.dtype == np.float32


def test_int8_weights_use_all_8_bits(quantised: Quantised) -> None:
    """Those for CPUs use 7, which a GPU has no need of."""
    arrays = [quantised.arrays[n.input[0]] for n in quantised.of("DequantizeLinear")
              if n.input[0] in quantised.arrays]  # fmt: skip
    assert max(int(np.abs(array.astype(int)).max()) for array in arrays) == 127


# -- what is missing -------------------------------------------------------------------------------


def test_a_machine_without_a_gpu(tmp_path: Path) -> None:
    assert missing_gpu(tmp_path) == "no NVIDIA GPU here"
    (tmp_path / "proc/driver/nvidia/gpus").mkdir(parents=True)
    assert missing_gpu(tmp_path) == "no NVIDIA GPU here"


@pytest.mark.parametrize("sign", ["proc/driver/nvidia/gpus/0000:19:00.0", "dev/dxg"])
def test_a_machine_with_a_gpu(tmp_path: Path, sign: str) -> None:
    (tmp_path / sign).mkdir(parents=True)
    assert missing_gpu(tmp_path) is None


@pytest.mark.skipif(missing_gpu() is None, reason="there is a GPU here")
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_says_first_that_there_is_no_gpu(kind: str) -> None:
    assert missing_here(kind) == "no NVIDIA GPU here"


def test_the_onnxruntime_for_cpus_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [])
    why = "onnxruntime-gpu is not installed; pip install it in place of onnxruntime"
    assert (missing_onnxruntime_gpu(), missing_tensorrt_of_onnxruntime()) == (why, why)


def test_tensorrt_is_looked_for_without_being_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("variants.builders.registry.missing_gpu", lambda: None)
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    why = "tensorrt is not installed; pip install 'modelless[tensorrt]'"
    assert missing_here("tensorrt-fp32") == why
    package = tmp_path / "tensorrt"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('heavy')")
    invalidate_caches()
    assert missing_here("tensorrt-fp32") is None


def test_onnxruntime_needs_the_tensorrt_that_it_was_linked_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its wheels of late are linked with TensorRT 10, where our own runtime has 11."""
    packages, root = tmp_path / "packages", tmp_path / "root"
    (packages / "onnxruntime_gpu-1.31.1.dist-info").mkdir(parents=True)
    metadata = "Metadata-Version: 2.4\nName: onnxruntime-gpu\nVersion: 1.31.1\n"
    (packages / "onnxruntime_gpu-1.31.1.dist-info/METADATA").write_text(metadata)
    monkeypatch.setattr("sys.path", [str(packages)])
    invalidate_caches()
    assert missing_onnxruntime_gpu() is None
    assert missing_tensorrt_of_onnxruntime(root) == (
        "this onnxruntime-gpu has no TensorRT provider"
    )
    provider = packages / "onnxruntime/capi/libonnxruntime_providers_tensorrt.so"
    provider.parent.mkdir(parents=True)
    provider.write_bytes(b"\x7fELF..libcublas.so.13\0libnvinfer.so.10\0libcudart.so.13\0")
    why = "onnxruntime-gpu needs TensorRT 10; pip install 'tensorrt-cu13-libs==10.*'"
    assert missing_tensorrt_of_onnxruntime(root) == why
    (root / "etc").mkdir(parents=True)
    (root / "etc/ld.so.cache").write_bytes(b"libnvinfer.so.11\0libnvinfer.so.10\0")
    assert missing_tensorrt_of_onnxruntime(root) is None
    (root / "etc/ld.so.cache").unlink()
    (packages / "tensorrt_libs").mkdir()
    (packages / "tensorrt_libs/__init__.py").touch()
    (packages / "tensorrt_libs/libnvinfer.so.10").touch()
    invalidate_caches()
    assert missing_tensorrt_of_onnxruntime(root) is None
