"""Example inputs of a PyTorch module: checked, named, in one order."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.client.exporting.exported import CHECKED_ROWS, DTYPES, ExportError, check_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """What the module is called with: 2 to ``CHECKED_ROWS`` rows of each input."""

    tensors: tuple[Any, ...]
    names: tuple[str, ...]
    keywords: tuple[str, ...] | None
    """Forward's arguments in the same order, where they are given by name."""


def read_examples(given: Any, forward: Any, input_names: Sequence[str] | None) -> Examples:
    """Examples for calling ``forward``: a tensor, a tuple of them, or a dictionary.

    Raises:
        ExportError: they are something else, lie on a device, or do not count the same rows.
    """
    import torch

    keywords: tuple[str, ...] | None = None
    if isinstance(given, torch.Tensor):
        tensors: tuple[Any, ...] = (given,)
    elif isinstance(given, Mapping):
        tensors, keywords = tuple(given.values()), tuple(map(str, given))
    elif isinstance(given, tuple | list):
        tensors = tuple(given)
    else:
        raise ExportError(
            f"example_inputs is a {type(given).__name__}; "
            "give a tensor, a tuple of tensors, or a dictionary of them"
        )
    if not tensors:
        raise ExportError("example_inputs is empty")
    found = keywords or _argument_names(forward, len(tensors))
    names = found if input_names is None else input_names
    names = check_names(names, count=len(tensors), what="input")
    for name, tensor in zip(names, tensors, strict=True):
        _check(name, tensor)
    counts = {name: len(tensor) for name, tensor in zip(names, tensors, strict=True)}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise ExportError(f"the example inputs differ in their rows: {told}")
    return Examples(
        tensors=tuple(_widened(tensor.detach()[:CHECKED_ROWS]) for tensor in tensors),
        names=names,
        keywords=keywords,
    )


def dtype_name(tensor: Any) -> str:
    """``torch.float32`` as numpy calls it."""
    return str(tensor.dtype).removeprefix("torch.")


def _check(name: str, tensor: Any) -> None:
    import torch

    if not isinstance(tensor, torch.Tensor):
        raise ExportError(f"example input {name!r} is a {type(tensor).__name__}, not a tensor")
    if tensor.device.type != "cpu":
        raise ExportError(f"example input {name!r} lies on {tensor.device}; give it with .cpu()")
    if dtype_name(tensor) not in DTYPES:
        raise ExportError(
            f"example input {name!r} is {dtype_name(tensor)}; it must be one of {', '.join(DTYPES)}"
        )
    if tensor.ndim == 0:
        raise ExportError(f"example input {name!r} is a scalar; its first axis must be the batch")
    if tensor.numel() == 0:
        raise ExportError(f"example input {name!r} is empty; one row is enough")


def _widened(tensor: Any) -> Any:
    """At least two rows. A second one has the first one's values, one place on: it is as valid, be
    it pixels or the numbers of words, but another row.
    """
    import torch

    if len(tensor) > 1:
        return tensor
    return torch.cat([tensor, tensor.flatten().roll(1).view_as(tensor)])


def _argument_names(forward: Any, count: int) -> tuple[str, ...]:
    """What the first ``count`` arguments of ``forward`` are called."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(forward).parameters.values()
    names = [one.name for one in parameters if one.kind in kinds][:count]
    # A ``*tensors`` has one name for all.
    return (*names, *(f"input_{index}" for index in range(len(names), count)))
