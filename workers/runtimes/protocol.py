"""The runtime protocol: how a worker loads a variant and runs a batch."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workers.types import LoadSpec

Tensor = NDArray[Any]
"""An array whose first axis counts the rows of a batch: ``(rows, *shape)``."""


class Runtime(Protocol):
    """One loaded variant. The constructor only stores; ``load`` does the work.

    ``load``, ``run`` and ``close`` are called from one thread at a time, not always the same one.

    A class may say ``keeps_inputs = False``: when the outputs of ``run`` are read, nothing of it
    reads the inputs any more. Then large ones may lie in memory that the next query's are written
    to (``workers.channel.shared_memory``). Others are given bytes of their own.

    A class may say ``shares_working_memory = True``: on a CPU, what a batch takes while it runs is
    there afterwards for the batches of other variants of that class, and need not be there twice.

    One that shares it because it gives it back when another variant has had its turn has a method
    ``give_back`` for that: what stays after it is what the variant holds.

    A runtime that copies its inputs anyway may have a method ``run_pieces``: as ``run``, but with a
    list of tensors for each input, whose rows one after the other are the batch. Queries are then
    not put together before.

    A runtime whose load leaves for idle moments what makes some batches quicker may have a method
    ``finish_loading``, which does it at once: batches are measured after that.
    """

    def load(self) -> None:
        """Bring the variant into memory and run it once.

        Raises:
            RuntimeFailed: the artifact cannot be loaded or run.
        """

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Run one batch: tensors ``(rows, *shape)`` in the order of the task's inputs.

        Returns the task's outputs in their order, each ``(rows, *shape)`` with the same rows.

        Raises:
            RuntimeFailed: the back end refused or failed.
        """

    def close(self) -> None:
        """Release the memory. Calling it twice is allowed."""


def keeps_inputs(runtime: Runtime) -> bool:
    """Whether a runtime may read inputs after its batch: all may that do not say otherwise."""
    return getattr(runtime, "keeps_inputs", True) is not False


def shares_working_memory(runtime: Runtime) -> bool:
    """Whether what its batches take is there for others afterwards: no, unless it says so."""
    return getattr(runtime, "shares_working_memory", False) is True


def give_back(runtime: Runtime) -> Callable[[], None] | None:
    """A runtime's method that gives back what batches took; None where it has none."""
    found: Callable[[], None] | None = getattr(runtime, "give_back", None)
    return found


def run_pieces(runtime: Runtime) -> Callable[[Sequence[Sequence[Tensor]]], list[Tensor]] | None:
    """A runtime's method that takes a batch in pieces; None where it has none."""
    return getattr(runtime, "run_pieces", None)


def finish_loading(runtime: Runtime) -> None:
    """Have a runtime do what its load has left for later; most leave nothing."""
    if (finish := getattr(runtime, "finish_loading", None)) is not None:
        finish()


RuntimeFactory = Callable[[LoadSpec, int], Runtime]
"""Takes a load spec and a number of threads, and makes a runtime that is not loaded yet.

A runtime uses at most so many threads for a batch: variants are measured and planned by them.
"""


def rows_of(tensors: Sequence[Tensor]) -> int:
    """Number of rows of a batch of tensors ``(rows, *shape)``; 0 for no tensors."""
    return int(np.shape(tensors[0])[0]) if tensors else 0
