"""Variants for OpenVINO: the files of ONNX Runtime's, and when there is no use in making them."""

from pathlib import Path

import pytest

from tests.contracts.network import images, write_onnx
from variants.builders.processor import missing_arithmetic
from variants.builders.protocol import Material
from variants.builders.registry import make_builder
from variants.errors import VariantNotBuilt
from variants.types import Precision


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    source = write_onnx(tmp_path_factory.mktemp("source") / "network.onnx")
    return Material(source=source, calibration={"image": images(64)})


def built(kind: str, material: Material, folder: Path) -> bytes:
    target = folder / f"{kind}.onnx"
    make_builder(kind).build(material, target)
    return target.read_bytes()


@pytest.mark.parametrize(
    ("kind", "same_as"),
    [
        ("openvino-fp32", "onnx-fp32"),
        ("openvino-bf16", "onnx-fp32"),
        ("openvino-fp16", "onnx-fp32"),
        ("openvino-int8", "onnx-int8"),
    ],
)
def test_an_artifact_is_shared_with_onnx_runtime(
    kind: str, same_as: str, material: Material, tmp_path: Path
) -> None:
    """So that the store keeps it once."""
    assert built(kind, material, tmp_path) == built(same_as, material, tmp_path)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("openvino-fp32", {}),
        ("openvino-bf16", {"precision": "bf16"}),
        ("openvino-fp16", {"precision": "fp16"}),
        ("openvino-int8", {}),
    ],
)
def test_the_runtime_is_told_what_the_file_does_not_say(kind: str, options: dict[str, str]) -> None:
    builder = make_builder(kind)
    assert (builder.runtime, dict(builder.options), builder.gpu) == ("openvino", options, False)


def test_quantising_without_rows_is_refused(material: Material, tmp_path: Path) -> None:
    with pytest.raises(VariantNotBuilt, match="calibration rows"):
        make_builder("openvino-int8").build(Material(source=material.source), tmp_path / "x.onnx")


@pytest.mark.parametrize(
    ("flags", "precision", "machine", "says"),
    [
        ("fpu avx512f avx512_bf16", Precision.BF16, "x86_64", None),
        ("fpu amx_bf16", Precision.BF16, "x86_64", None),
        ("fpu avx512f", Precision.BF16, "x86_64", "this CPU does not compute in bf16"),
        ("fpu avx512f avx512_bf16", Precision.FP16, "x86_64", "this CPU does not compute in fp16"),
        ("fpu avx512_fp16", Precision.FP16, "x86_64", None),
        ("fpu f16c", Precision.FP16, "x86_64", "fp16 (no avx512_fp16 or amx_fp16)"),
        ("fp asimdhp", Precision.FP16, "aarch64", None),
        ("fp asimd", Precision.BF16, "aarch64", "bf16 (no bf16)"),
        ("fpu", Precision.FP32, "x86_64", None),
        ("fpu", Precision.INT8, "x86_64", None),
    ],
)
def test_sixteen_bits_need_a_processor_that_computes_in_them(
    flags: str, precision: Precision, machine: str, says: str | None, tmp_path: Path
) -> None:
    label = "Features" if machine == "aarch64" else "flags\t"
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nmodel name\t: avx512_bf16 amx_fp16\n{label}\t: {flags}\n")
    found = missing_arithmetic(precision, cpuinfo, machine)
    assert found is None if says is None else says in str(found)
