"""Batches of an ONNX Runtime session on a GPU, replayed as CUDA graphs.

A small batch leaves the GPU idle most of its time: the processor takes longer to start each of a
model's hundreds of kernels than they take. A graph starts them all at once. It is recorded for one
shape, and for memory that never moves, so there is one for each of a few batch sizes; batches
between them are filled up with rows that nobody reads. Large batches gain something else by it:
whenever a convolution is given another shape than the last time, ONNX Runtime plans it anew.

ONNX Runtime records the second run that has a graph's number, and plays it from the third on.
Before the first, each size is run once without a number: planning its convolutions takes a quarter
of a second, in which batches of other variants go on. Only what is left, the recording, keeps
others from taking memory of the device.

For a dozen sizes these quarters are most of a load. So a load records one row and the largest
batch, to which all others are filled up at first, and the rest is recorded in idle moments
(``workers.runtimes.idle_work``).
"""

import time
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.runtimes.cuda import Device
from workers.runtimes.gpu_thread import RECORDING
from workers.runtimes.locked_memory import locked_memory
from workers.runtimes.protocol import Tensor
from workers.runtimes.uploading import upload_rows
from workers.types import LoadSpec

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Batch sizes that are recorded, up to the largest batch of a variant."""
LATER = (8, 16, 4, 32, 2, 64, 12, 24, 48, 96)
"""The order in which sizes between one row and the largest batch are recorded."""
MEASURED_MOST = 64
"""Up to so many rows for a variant that is being measured, which is with no larger batches."""
RUNS_TO_RECORD = 2
NUMBER = "gpu_graph_id"
"""ONNX Runtime's run option: which graph a run belongs to."""
NO_NUMBER = "-1"
"""Of runs that are not recorded."""
ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class _Port:
    """An input or output: where its rows lie on the device and on the host."""

    device: int
    """Address on the device."""
    offset: int
    """On the host, in the locked memory."""
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    row_bytes: int

    def rows(self, locked: NDArray[np.uint8], count: int) -> NDArray[Any]:
        """Its first rows in locked memory, ``(count, *shape)``."""
        part = locked[self.offset : self.offset + count * self.row_bytes]
        return part.view(self.dtype).reshape(count, *self.shape)


@dataclass(frozen=True, slots=True)
class _Place:
    """Memory for batches of at most ``size`` rows."""

    size: int
    inputs: list[_Port]
    outputs: list[_Port]
    nbytes: int
    """On the host."""


@dataclass(frozen=True, slots=True)
class _Graph:
    binding: Any
    options: Any


class Graphs:
    """The graphs of one session. ``record`` comes first, ``close`` last; ``record_next`` and
    ``run`` in between. All in one thread.

    Args:
        session: an ``onnxruntime.InferenceSession`` that was made with ``enable_cuda_graph``.
        run_options: makes an ``onnxruntime.RunOptions``.
        place: where ONNX Runtime is told that the device's memory is.
    """

    def __init__(
        self,
        session: Any,
        spec: LoadSpec,
        device: Device,
        run_options: Callable[[], Any],
        *,
        place: str = "cuda",
    ) -> None:
        self._session = session
        self._spec = spec
        self._device = device
        self._run_options = run_options
        self._device_type = place
        self._held = ExitStack()
        self._locked = locked_memory(device)
        self._place: _Place
        self._graphs: dict[int, _Graph] = {}
        """By their number of rows."""
        self._recorded: list[int] = []
        """These numbers, ascending."""
        self._left: list[int] = []
        """Sizes that are still to be recorded, in their order."""
        self._missed: Counter[int] = Counter()
        """Batches by their rows that were filled up further than they need be."""
        self._stream = 0
        self._ran_s = 0.0

    @property
    def most_rows(self) -> int:
        """Batches of more are not for ``run``."""
        return self._recorded[-1] if self._recorded else 0

    @property
    def misses(self) -> bool:
        """Whether batches were filled up further than they need be."""
        return bool(self._missed)

    @property
    def idle_s(self) -> float:
        """Since the last batch, or since ``record``."""
        return time.monotonic() - self._ran_s

    def record(self) -> None:
        """Take memory for all batch sizes, and record the graphs of one row and of the largest.

        While a variant is measured, sizes for which the device has no room are left out.

        Raises:
            RuntimeFailed: the device or the host has no room.
        """
        device = self._device
        device.enter()
        device.ignore_recordings()
        self._stream = device.stream()
        self._held.callback(device.end_stream, self._stream)
        sizes = list(sizes_of(self._spec))
        place = self._place = self._take(sizes[-1])
        self._locked.join(place.nbytes)
        self._held.callback(self._locked.leave)
        # One row first: the check of a load has just planned it. Then the largest: smaller ones use
        # the memory that it has left in the arena, while a larger one would find it in pieces that
        # are too small.
        self._record(sizes.pop(0))
        while sizes:
            try:
                self._record(sizes.pop())
                break
            except Exception:  # the binding raises a different type for each cause
                if self._spec.latency:
                    raise
        self._left = sorted(sizes, key=LATER.index)
        self._ran_s = time.monotonic()

    def record_next(self) -> bool:
        """Record one more size, the one that batches lack most; return whether any is left."""
        if self._left:
            self._device.enter()
            size = max(self._left, key=self._spared)  # of equals the first
            self._left.remove(size)
            self._record(size)
            self._missed = Counter(
                {rows: count for rows, count in self._missed.items() if self._better(rows)}
            )
        return bool(self._left)

    def run(self, inputs: Sequence[Sequence[Tensor]], rows: int) -> list[Tensor]:
        """Run a batch of at most ``most_rows`` rows.

        Args:
            inputs: for each input tensors ``(n, *shape)``, which are the batch's rows in order.
            rows: how many these are.
        """
        size = self._size(rows)
        if self._left and self._better(rows):
            self._missed[rows] += 1
        device, stream = self._device, self._stream
        device.enter()
        graph = self._graphs[size]
        with self._locked.held() as (address, locked):
            for port, pieces in zip(self._place.inputs, inputs, strict=True):
                source = address + port.offset
                upload_rows(device, stream, port.device, source, port.rows(locked, rows), pieces)
            device.wait(stream)
            self._session.run_with_iobinding(graph.binding, graph.options)
            for port in self._place.outputs:
                device.download(address + port.offset, port.device, rows * port.row_bytes, stream)
            device.wait(stream)
            self._ran_s = time.monotonic()
            return [port.rows(locked, rows).copy() for port in self._place.outputs]

    def close(self) -> None:
        """Give the memory back. The session, which has the recordings, goes after this."""
        self._graphs, self._recorded, self._left = {}, [], []
        self._session = None
        held, self._held = self._held, ExitStack()
        self._device.enter()
        held.close()

    def _size(self, rows: int) -> int:
        """What a batch of so many rows is filled up to."""
        return self._recorded[bisect_left(self._recorded, rows)]

    def _better(self, rows: int) -> bool:
        """Whether it would be filled up to less if all sizes were recorded."""
        return any(rows <= size < self._size(rows) for size in self._left)

    def _spared(self, size: int) -> int:
        """Rows that nobody reads, which batches would not have been filled up with."""
        return sum(
            count * max(0, self._size(rows) - size)
            for rows, count in self._missed.items()
            if rows <= size
        )

    def _record(self, size: int) -> None:
        graph = self._bound(size)
        self._session.run_with_iobinding(graph.binding, self._options(NO_NUMBER))
        with RECORDING:
            for _ in range(RUNS_TO_RECORD):
                self._session.run_with_iobinding(graph.binding, graph.options)
        self._graphs[size] = graph
        insort(self._recorded, size)

    def _bound(self, size: int) -> _Graph:
        binding = self._session.io_binding()
        for bind, ports, tensors in (
            (binding.bind_input, self._place.inputs, self._spec.inputs),
            (binding.bind_output, self._place.outputs, self._spec.outputs),
        ):
            for port, tensor in zip(ports, tensors, strict=True):
                bind(
                    name=tensor.name,
                    device_type=self._device_type,
                    device_id=0,
                    element_type=port.dtype.type,
                    shape=(size, *tensor.shape),
                    buffer_ptr=port.device,
                )
        return _Graph(binding, self._options(str(size)))

    def _options(self, number: str) -> Any:
        options = self._run_options()
        options.add_run_config_entry(NUMBER, number)
        return options

    def _take(self, size: int) -> _Place:
        """Memory for so many rows, the inputs on the device all zeros: any row may be run."""
        offset, found = 0, []
        for tensor in (*self._spec.inputs, *self._spec.outputs):
            dtype = np.dtype(tensor.dtype)
            row_bytes = dtype.itemsize * int(np.prod(tensor.shape, dtype=np.int64))
            taken = -(-max(1, size * row_bytes) // ALIGNMENT) * ALIGNMENT
            there = self._device.allocate(taken)
            self._held.callback(self._device.free, there)
            self._device.clear(there, taken, self._stream)
            found.append(_Port(there, offset, dtype, tensor.shape, row_bytes))
            offset += taken
        self._device.wait(self._stream)
        inputs = len(self._spec.inputs)
        return _Place(size, found[:inputs], found[inputs:], offset)


def sizes_of(spec: LoadSpec) -> tuple[int, ...]:
    """The batch sizes that are run for a variant, ascending; others are filled up to one of them.

    Up to its largest batch, which nobody knows yet of a variant that is being measured.
    """
    if not spec.latency:
        return tuple(size for size in SIZES if size <= MEASURED_MOST)
    most = min(spec.latency[-1][0], SIZES[-1])
    return (*(size for size in SIZES if size < most), most)
