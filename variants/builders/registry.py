"""The builders by kind, each a lazy factory with the packages and the device that it needs.

A builder is one file and one line for each kind in ``BUILDERS``; heavy imports happen when it
builds. A kind is the end of a variant's name: ``<runtime>-<precision>[-option]``. A package outside
of this project adds a kind by an entry point of the group ``modelless.builders``
(docs/reference/bringing-a-model.md).
"""

from collections.abc import Callable, Mapping
from typing import cast

from variants import registry
from variants.builders.gpu_requirements import missing_gpu
from variants.builders.protocol import Builder
from variants.entry_points import Entries
from variants.errors import VariantNotBuilt
from variants.registry import Entry
from variants.types import ModelName, VariantName

GROUP = "modelless.builders"
"""The group of entry points by which packages add kinds."""
GPU = "gpu"

BUILDERS: Mapping[str, Entry] = Entries(
    GROUP,
    {
        "onnx-fp32": Entry(target="variants.builders.onnx_fp32:OnnxFp32"),
        "onnx-fp32-open": Entry(target="variants.builders.onnx_open:OnnxFp32Open"),
        "onnx-fp16": Entry(target="variants.builders.onnx_fp16:OnnxFp16"),
        "onnx-int8": Entry(target="variants.builders.quantisation.onnx_int8:OnnxInt8"),
        "onnx-int8-entropy": Entry(target="variants.builders.quantisation.onnx_int8:entropy"),
        "onnx-int8-percentile": Entry(target="variants.builders.quantisation.onnx_int8:percentile"),
        "onnx-int8-dynamic": Entry(
            target="variants.builders.quantisation.onnx_dynamic:OnnxInt8Dynamic"
        ),
        "openvino-fp32": Entry(target="variants.builders.openvino:fp32", needs=("openvino",)),
        "openvino-bf16": Entry(target="variants.builders.openvino:bf16", needs=("openvino",)),
        "openvino-fp16": Entry(target="variants.builders.openvino:fp16", needs=("openvino",)),
        "openvino-int8": Entry(target="variants.builders.openvino:int8", needs=("openvino",)),
        "torch-fp32": Entry(target="variants.builders.pytorch:fp32", needs=("torch",)),
        "torch-bf16": Entry(target="variants.builders.pytorch:bf16", needs=("torch",)),
        "torch-fp16": Entry(target="variants.builders.pytorch:fp16", needs=("torch",)),
        "torch-fp32-compiled": Entry(
            target="variants.builders.pytorch:fp32_compiled", needs=("torch",)
        ),
        "torch-bf16-compiled": Entry(
            target="variants.builders.pytorch:bf16_compiled", needs=("torch",)
        ),
        "torch-fp32-cuda": Entry(
            target="variants.builders.pytorch:fp32_cuda", needs=("torch",), device=GPU
        ),
        "torch-bf16-cuda": Entry(
            target="variants.builders.pytorch:bf16_cuda", needs=("torch",), device=GPU
        ),
        "torch-fp16-cuda": Entry(
            target="variants.builders.pytorch:fp16_cuda", needs=("torch",), device=GPU
        ),
        "torch-fp16-compiled-cuda": Entry(
            target="variants.builders.pytorch:fp16_compiled_cuda", needs=("torch",), device=GPU
        ),
        "onnx-fp32-lowrank": Entry(target="variants.builders.compression.lowrank:OnnxLowRank"),
        "onnx-fp32-pruned": Entry(
            target="variants.builders.compression.pruning:OnnxPruned", needs=("torch",)
        ),
        "onnx-fp32-distilled": Entry(
            target="variants.builders.compression.distillation:OnnxDistilled", needs=("torch",)
        ),
        "onnx-fp32-cuda": Entry(target="variants.builders.onnx_gpu:fp32_cuda", device=GPU),
        "onnx-fp16-cuda": Entry(target="variants.builders.onnx_gpu:fp16_cuda", device=GPU),
        "onnx-fp16-tensorrt": Entry(target="variants.builders.onnx_gpu:fp16_tensorrt", device=GPU),
        "onnx-int8-tensorrt": Entry(target="variants.builders.onnx_gpu:int8_tensorrt", device=GPU),
        "tensorrt-fp32": Entry(
            target="variants.builders.tensorrt:fp32", needs=("tensorrt",), device=GPU
        ),
        "tensorrt-fp16": Entry(
            target="variants.builders.tensorrt:fp16", needs=("tensorrt",), device=GPU
        ),
        "tensorrt-int8": Entry(
            target="variants.builders.tensorrt:int8", needs=("tensorrt",), device=GPU
        ),
    },
)
"""Kind to a factory that takes nothing and makes a ``Builder``. The first is the model itself.

``needs`` and ``device`` say what building or running a variant of the kind takes on this machine.
"""

SAME_FILE: Mapping[str, str] = {
    "openvino-fp32": "onnx-fp32",
    "openvino-bf16": "onnx-fp32",
    "openvino-fp16": "onnx-fp32",
    "openvino-int8": "onnx-int8",
    "torch-bf16": "torch-fp32",
    "torch-fp16": "torch-fp32",
    "torch-fp32-compiled": "torch-fp32",
    "torch-bf16-compiled": "torch-fp32",
    "torch-fp32-cuda": "torch-fp32",
    "torch-bf16-cuda": "torch-fp32",
    "torch-fp16-cuda": "torch-fp32",
    "torch-fp16-compiled-cuda": "torch-fp32",
    "onnx-fp32-cuda": "onnx-fp32",
    "onnx-fp16-cuda": "onnx-fp16",
    "onnx-fp16-tensorrt": "onnx-fp16",
}
"""Kind to another one whose file is the same, byte for byte: it is built once. Their variants
differ in what runs the file, and how."""

_EXTRAS = frozenset({"openvino", "tensorrt", "torch"})
"""Packages that are installed with an extra of the same name."""


def make_builder(kind: str) -> Builder:
    """The builder of a kind, which can be asked about itself whatever is installed here.

    Raises:
        VariantNotBuilt: the kind is unknown here, or the builder's module cannot be imported.
    """
    entry = BUILDERS.get(kind)
    if entry is None:
        known = ", ".join(sorted(BUILDERS))
        raise VariantNotBuilt(f"no builder makes {kind!r}; there are: {known}")
    found = registry.load("builder", kind, {kind: Entry(target=entry.target)}, VariantNotBuilt)
    return cast(Callable[[], Builder], found)()


def missing_here(kind: str) -> str | None:
    """Why variants of a kind cannot be built or run here, in one clause: a device, a package, or
    what the builder itself says; None where they can.

    No package is imported to find out.

    Raises:
        VariantNotBuilt: the kind is unknown here, or the builder's module cannot be imported.
    """
    builder = make_builder(kind)
    entry = BUILDERS[kind]
    if entry.device == GPU and (why := missing_gpu()):
        return why
    if package := registry.missing(entry):
        what = f"'modelless[{package}]'" if package in _EXTRAS else package
        return f"{package} is not installed; pip install {what}"
    return builder.missing()


def variant_name(model: ModelName, version: int, kind: str) -> VariantName:
    """``cnn-small-v1-onnx-int8``."""
    return VariantName(f"{model}-v{version}-{kind}")
