"""The runtime protocol: how a worker loads a variant and runs a batch.

A runtime is one file and one line in ``RUNTIMES``; heavy imports happen inside the factory, so that
a process imports only the back ends that it runs.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from variants.errors import RuntimeFailed
from workers.types import LoadSpec

Tensor = NDArray[Any]


class Runtime(Protocol):
    """One loaded variant. The constructor only stores; ``load`` does the work.

    ``load``, ``run`` and ``close`` are called from one thread at a time, not always the same one.
    """

    def load(self) -> None:
        """Bring the variant into memory and run it once.

        Raises:
            RuntimeFailed: the artifact cannot be loaded or run.
        """

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Run one batch: tensors in the order of the task's inputs, the batch axis first.

        Returns the task's outputs in their order, the same number of rows first.

        Raises:
            RuntimeFailed: the back end refused or failed.
        """

    def close(self) -> None:
        """Give the memory back. Calling it twice is allowed."""


RuntimeFactory = Callable[[LoadSpec, int], Runtime]
"""From a load spec and a number of threads to a runtime that is not loaded yet."""

RUNTIMES: dict[str, str] = {
    "onnx": "workers.runtimes.onnx:OnnxRuntime",
    "openvino": "workers.runtimes.openvino:OpenVinoRuntime",
    "torch": "workers.runtimes.pytorch:TorchRuntime",
    "tensorrt": "workers.runtimes.tensorrt:TensorRtRuntime",
    "echo": "workers.runtimes.echo:EchoRuntime",
}
"""Runtime name to ``module:factory``."""

BACK_ENDS: dict[str, str] = {
    "openvino": "workers.runtimes.openvino:import_openvino",
    "torch": "workers.runtimes.pytorch:import_torch",
}
"""Runtimes whose library must not be imported otherwise than by ``module:function``: one sends
messages home, the other lets its threads spin."""


def make_runtime(spec: LoadSpec, threads: int) -> Runtime:
    """The runtime that a load spec asks for.

    Raises:
        RuntimeFailed: it is unknown here, or its back end is not installed.
    """
    where = RUNTIMES.get(spec.runtime)
    if where is None:
        known = ", ".join(sorted(RUNTIMES))
        raise RuntimeFailed(f"runtime {spec.runtime!r} is unknown; there are: {known}")
    module, _, name = where.partition(":")
    try:
        factory = cast(RuntimeFactory, getattr(import_module(module), name))
    except ImportError as error:
        raise RuntimeFailed(f"runtime {spec.runtime!r} is not installed here: {error}") from error
    return factory(spec, threads)


def rows_of(tensors: Sequence[Tensor]) -> int:
    """Rows of a batch; 0 for no tensors."""
    return int(np.shape(tensors[0])[0]) if tensors else 0
