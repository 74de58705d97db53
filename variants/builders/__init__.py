"""Builders: how a variant is made from a model's source artifact.

A builder is one file and one line for each kind in ``BUILDERS``; heavy imports happen when it
builds. A kind is the end of a variant's name: ``<runtime>-<precision>[-option]``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from variants.errors import VariantNotBuilt
from variants.types import ModelName, Precision, VariantName

Rows = Mapping[str, NDArray[Any]]
"""Input name to an array whose first axis counts rows."""


class Needs(Enum):
    """What a builder cannot do without, besides the model; the value says it in words."""

    PROGRAM = "a PyTorch program; export the model with modelless.export"
    TRAINING = "the rows that the model was trained on"
    TEACHER = "a larger model of the task to learn from"


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What a variant is made of."""

    source: Path
    """The version as ONNX, checked."""
    program: Path | None = None
    """The version as a ``torch.export`` archive, if it was handed in as one."""
    calibration: Rows = field(default_factory=dict)
    """Rows of typical inputs; no evaluation row is among them."""
    calibration_labels: NDArray[Any] | None = None
    """``(rows,)``, where they are known: a builder that has a choice counts right answers here, or
    agreement with the model itself where they are not."""
    training: Rows = field(default_factory=dict)
    training_labels: NDArray[Any] | None = None
    """Rows that the model was trained on, and their labels ``(rows,)``, if they were given."""
    teacher: Path | None = None
    """A larger model of the task, as ONNX."""
    floor: float | None = None
    """The task's default accuracy floor in [0, 1]: what falls below it is of little use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What a builder says of what it wrote."""

    note: str = ""
    """One clause for people: which nodes kept their precision, how much was pruned."""


class Builder(Protocol):
    """Makes one kind of variant. The constructor only stores."""

    runtime: str
    """Key of the runtime that will run it."""
    precision: Precision
    options: Mapping[str, str]
    """That the variant carries to its runtime."""
    suffix: str
    """Of the artifact's file: ``.onnx``, ``.pt2``."""
    gpu: bool
    """Whether the variant runs on GPUs only; else on CPUs only."""
    needs: frozenset[Needs]
    """Parts of the material that it cannot do without."""

    def missing(self) -> str | None:
        """Why it cannot build here, in one clause: a package, a compiler, a device; else None.

        Imports nothing heavy.
        """

    def build(self, material: Material, target: Path) -> Built:
        """Write the variant to ``target``, which does not exist yet.

        Runs the model, so it belongs into a process that may die.

        Raises:
            VariantNotBuilt: this kind cannot be made of this model, or not here.
        """


BUILDERS: dict[str, str] = {
    "onnx-fp32": "variants.builders.onnx_fp32:OnnxFp32",
    "onnx-fp16": "variants.builders.onnx_fp16:OnnxFp16",
    "onnx-int8": "variants.builders.onnx_int8:OnnxInt8",
    "onnx-int8-entropy": "variants.builders.onnx_int8:entropy",
    "onnx-int8-percentile": "variants.builders.onnx_int8:percentile",
    "onnx-int8-dynamic": "variants.builders.onnx_dynamic:OnnxInt8Dynamic",
    "openvino-fp32": "variants.builders.openvino:fp32",
    "openvino-bf16": "variants.builders.openvino:bf16",
    "openvino-fp16": "variants.builders.openvino:fp16",
    "openvino-int8": "variants.builders.openvino:int8",
    "torch-fp32": "variants.builders.pytorch:fp32",
    "torch-bf16": "variants.builders.pytorch:bf16",
    "torch-fp16": "variants.builders.pytorch:fp16",
    "torch-fp32-compiled": "variants.builders.pytorch:fp32_compiled",
    "torch-bf16-compiled": "variants.builders.pytorch:bf16_compiled",
    "torch-fp32-cuda": "variants.builders.pytorch:fp32_cuda",
    "torch-bf16-cuda": "variants.builders.pytorch:bf16_cuda",
    "torch-fp16-cuda": "variants.builders.pytorch:fp16_cuda",
    "torch-fp16-compiled-cuda": "variants.builders.pytorch:fp16_compiled_cuda",
    "onnx-fp32-lowrank": "variants.builders.lowrank:OnnxLowRank",
    "onnx-fp32-pruned": "variants.builders.pruning:OnnxPruned",
    "onnx-fp32-distilled": "variants.builders.distillation:OnnxDistilled",
    "onnx-fp32-cuda": "variants.builders.onnx_gpu:fp32_cuda",
    "onnx-fp16-cuda": "variants.builders.onnx_gpu:fp16_cuda",
    "onnx-fp16-tensorrt": "variants.builders.onnx_gpu:fp16_tensorrt",
    "onnx-int8-tensorrt": "variants.builders.onnx_gpu:int8_tensorrt",
    "tensorrt-fp32": "variants.builders.tensorrt:fp32",
    "tensorrt-fp16": "variants.builders.tensorrt:fp16",
    "tensorrt-int8": "variants.builders.tensorrt:int8",
}
"""Kind, the end of the variant's name, to ``module:factory``. The first is the model itself."""


def make_builder(kind: str) -> Builder:
    """The builder of a kind.

    Raises:
        VariantNotBuilt: it is unknown here, or its back end is not installed.
    """
    where = BUILDERS.get(kind)
    if where is None:
        known = ", ".join(sorted(BUILDERS))
        raise VariantNotBuilt(f"no builder makes {kind!r}; there are: {known}")
    module, _, name = where.partition(":")
    try:
        factory = cast(Callable[[], Builder], getattr(import_module(module), name))
    except ImportError as error:
        raise VariantNotBuilt(f"the builder of {kind!r} is not installed here: {error}") from error
    return factory()


def variant_name(model: ModelName, version: int, kind: str) -> VariantName:
    """``cnn-small-v1-onnx-int8``."""
    return VariantName(f"{model}-v{version}-{kind}")
