"""Variants for PyTorch: the archive that was handed in, in another precision or compiled."""

import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from variants.builders.processor import missing_arithmetic
from variants.builders.protocol import Built, Material, Needs
from variants.errors import VariantNotBuilt
from variants.types import Precision

COMPILER = "g++"


class Torch:
    """The program as it is; its runtime casts the weights as it reads them.

    So all variants share one artifact. Machine code fits one kind of processor and is code that its
    reader trusts: each machine makes its own at the first load and keeps it.
    """

    runtime = "torch"
    suffix = ".pt2"
    needs = frozenset({Needs.PROGRAM})

    def __init__(self, precision: Precision, *, compiled: bool = False, cuda: bool = False) -> None:
        self.precision = precision
        self.gpu = cuda
        options = {} if precision is Precision.FP32 else {"precision": precision.value}
        if compiled:
            options["compiled"] = "1"
        if cuda:
            options["provider"] = "cuda"
        self.options: Mapping[str, str] = options

    def missing(self) -> str | None:
        if "compiled" in self.options and shutil.which(COMPILER) is None:
            return f"compiling needs a C++ compiler, and there is no {COMPILER} here"
        if not self.gpu:
            return missing_arithmetic(self.precision)
        installed = version("torch")
        return f"torch {installed} is built for CPUs only" if installed.endswith("+cpu") else None

    def build(self, material: Material, target: Path) -> Built:
        if material.program is None:
            raise VariantNotBuilt(f"it needs {Needs.PROGRAM.value}")
        shutil.copyfile(material.program, target)
        return Built()


def fp32() -> Torch:
    return Torch(Precision.FP32)


def bf16() -> Torch:
    return Torch(Precision.BF16)


def fp16() -> Torch:
    return Torch(Precision.FP16)


def fp32_compiled() -> Torch:
    return Torch(Precision.FP32, compiled=True)


def bf16_compiled() -> Torch:
    return Torch(Precision.BF16, compiled=True)


def fp32_cuda() -> Torch:
    return Torch(Precision.FP32, cuda=True)


def bf16_cuda() -> Torch:
    return Torch(Precision.BF16, cuda=True)


def fp16_cuda() -> Torch:
    return Torch(Precision.FP16, cuda=True)


def fp16_compiled_cuda() -> Torch:
    return Torch(Precision.FP16, compiled=True, cuda=True)
