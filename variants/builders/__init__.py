"""Builders: how a variant is made from a model's source artifact.

A builder is one file and one line in ``BUILDERS``; heavy imports happen when it builds.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from variants.errors import VariantNotBuilt
from variants.types import ModelName, Precision, VariantName

Rows = Mapping[str, NDArray[Any]]
"""Input name to an array whose first axis counts rows."""


class Builder(Protocol):
    """Makes one kind of variant."""

    runtime: str
    """Key of the runtime that will run it."""
    precision: Precision

    def build(self, source: Path, target: Path, calibration: Rows) -> None:
        """Write the variant of ``source`` to ``target``, which does not exist yet.

        ``calibration`` are rows of typical inputs. Runs the model, so it belongs into a process
        that may die.

        Raises:
            VariantNotBuilt: this kind cannot be made of this model.
        """


BUILDERS: dict[str, str] = {
    "onnx-fp32": "variants.builders.onnx_fp32:OnnxFp32",
    "onnx-int8": "variants.builders.onnx_int8:OnnxInt8",
}
"""Kind, the end of the variant's name, to ``module:factory``."""


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
