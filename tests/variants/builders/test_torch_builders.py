"""Variants for PyTorch: the archive as it is, and what its runtime is told."""

import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
import torch

from controlplane.client.exporting.export import export
from variants.builders import pytorch
from variants.builders.gpu_requirements import missing_gpu
from variants.builders.protocol import Material, Needs
from variants.builders.registry import make_builder, missing_here
from variants.checks.archive.archive_check import extract_onnx
from variants.errors import VariantNotBuilt

OPTIONS = {
    "torch-fp32": {},
    "torch-bf16": {"precision": "bf16"},
    "torch-fp16": {"precision": "fp16"},
    "torch-fp32-compiled": {"compiled": "1"},
    "torch-bf16-compiled": {"compiled": "1", "precision": "bf16"},
    "torch-fp32-cuda": {"provider": "cuda"},
    "torch-bf16-cuda": {"precision": "bf16", "provider": "cuda"},
    "torch-fp16-cuda": {"precision": "fp16", "provider": "cuda"},
    "torch-fp16-compiled-cuda": {"compiled": "1", "precision": "fp16", "provider": "cuda"},
}
KINDS = list(OPTIONS)
GPU_KINDS = [kind for kind in KINDS if kind.endswith("-cuda")]

Install = Callable[[str], None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make torch installed in a version."""

    def set_version(text: str) -> None:
        monkeypatch.setattr(pytorch, "version", lambda _: text)

    return set_version


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_says_what_its_runtime_is_told(kind: str) -> None:
    builder = make_builder(kind)
    assert dict(builder.options) == OPTIONS[kind]
    assert (builder.runtime, builder.suffix, builder.gpu, builder.needs) == (
        "torch", ".pt2", kind in GPU_KINDS, frozenset({Needs.PROGRAM}),
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_artifact_is_the_archive_byte_for_byte(kind: str, tmp_path: Path) -> None:
    """So that the store keeps one for all kinds; each runtime casts and compiles for itself."""
    program, target = tmp_path / "program.pt2", tmp_path / "target.pt2"
    program.write_bytes(b"an archive")
    made = make_builder(kind).build(Material(source=tmp_path, program=program), target)
    assert (target.read_bytes(), made.note) == (b"an archive", "")


def test_without_a_program_nothing_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(VariantNotBuilt, match=r"needs a PyTorch program; .* modelless\.export"):
        make_builder("torch-fp32").build(Material(source=tmp_path / "model.onnx"), tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_without_torch_a_kind_says_how_to_get_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    wanted = "torch is not installed; pip install 'modelless[torch]'"
    assert missing_here(kind) == ((missing_gpu() if kind in GPU_KINDS else None) or wanted)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "compiled" in kind])
def test_compiling_needs_a_compiler(
    kind: str, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("2.13.0")
    monkeypatch.setattr(pytorch, "COMPILER", "no-such-compiler")
    assert make_builder(kind).missing() == (
        "compiling needs a C++ compiler, and there is no no-such-compiler here"
    )


@pytest.mark.parametrize("kind", GPU_KINDS)
def test_a_kind_for_gpus_needs_one_and_a_torch_that_uses_it(kind: str, install: Install) -> None:
    install("2.13.0+cpu")
    wanted = missing_gpu() or "torch 2.13.0+cpu is built for CPUs only"
    assert missing_here(kind) == wanted


def test_fp32_needs_nothing_but_torch(install: Install) -> None:
    install("2.13.0+cpu")
    assert make_builder("torch-fp32").missing() is None


class Encoder(torch.nn.Module):  # type: ignore[misc]
    """Word numbers ``[batch, 12]`` to five scores."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.words = torch.nn.Embedding(100, 32)
        self.body = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(32, 5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.words(words)).mean(1))


def test_an_encoder_of_pytorch_has_an_fp16_variant(tmp_path: Path) -> None:
    """ONNX Runtime 1.31 dies of it on the CPU where it changes the layout of images."""
    archive, source = tmp_path / "encoder.pt2", tmp_path / "encoder.onnx"
    rows = torch.randint(0, 100, (4, 12))
    export(Encoder().eval(), rows[:2], archive)
    extract_onnx(archive, source)

    material = Material(source=source, calibration={"words": rows.numpy()})
    make_builder("onnx-fp16-cuda").build(material, tmp_path / "half.onnx")

    held = onnx.load(str(tmp_path / "half.onnx")).graph.initializer
    assert onnx.TensorProto.FLOAT16 in {weight.data_type for weight in held}
