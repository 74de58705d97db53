"""What a batch must look like, for back ends that would take anything and cast it."""

from collections.abc import Iterable, Sequence

import numpy as np

from variants.errors import RuntimeFailed
from variants.types import TensorSpec
from workers.runtimes.protocol import Tensor
from workers.types import LoadSpec


class Signature:
    """The types and shapes of a variant's inputs and outputs, compared in about a microsecond."""

    def __init__(self, spec: LoadSpec) -> None:
        self._name = f"{spec.task}/{spec.variant}"
        self._inputs = _plain(spec.inputs)
        self._outputs = _plain(spec.outputs)

    def check_inputs(self, tensors: Sequence[Tensor]) -> None:
        """Raise ``RuntimeFailed`` unless the tensors are the task's inputs, ``(rows, *shape)``
        each."""
        has = [(tensor.dtype, tensor.shape[1:]) for tensor in tensors]
        if has != self._inputs or len({len(tensor) for tensor in tensors}) > 1:
            raise RuntimeFailed(f"{self._name} takes {in_words(self._inputs)}, not {in_words(has)}")

    def check_outputs(self, tensors: Sequence[Tensor], rows: int) -> None:
        """Raise ``RuntimeFailed`` unless the tensors are the task's outputs, ``(rows, *shape)``
        each."""
        has = [(tensor.dtype, tensor.shape[1:]) for tensor in tensors]
        if has != self._outputs or any(len(tensor) != rows for tensor in tensors):
            gives = in_words((tensor.dtype, tensor.shape) for tensor in tensors)
            asked = "one row" if rows == 1 else f"{rows} rows"
            wanted = f"the task has {in_words(self._outputs)} a row"
            raise RuntimeFailed(f"{self._name} gives {gives} for {asked}, {wanted}")


_Plain = list[tuple[np.dtype, tuple[int, ...]]]


def _plain(specs: Sequence[TensorSpec]) -> _Plain:
    return [(np.dtype(spec.dtype), spec.shape) for spec in specs]


def in_words(tensors: Iterable[tuple[object, Sequence[int]]]) -> str:
    """Types and shapes as sentences have them: ``float32 [1, 10], int64 [1]``."""
    each = [f"{dtype} [{', '.join(map(str, shape))}]" for dtype, shape in tensors]
    return ", ".join(each) or "nothing"
