"""Batches of an ONNX Runtime session on a GPU, replayed as CUDA graphs.

A small batch leaves the GPU idle most of its time: the processor takes longer to start each of a
model's hundreds of kernels than they take. A graph starts them all at once. It is recorded for one
shape, and for memory that never moves, so there is one for each of a few batch sizes; batches
between them are filled up with rows that nobody reads. Large batches gain something else by it:
whenever a convolution is given another shape than the last time, ONNX Runtime plans it anew.

ONNX Runtime records the second run that has a graph's number, and plays it from the third on. It
keeps what it recorded, and what it needs of the GPU's libraries, for each thread by itself, so all
that runs there runs in one thread (``in_gpu_thread``), whichever asks for it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from workers.runtimes.cuda import GPU, Device
from workers.runtimes.protocol import Tensor
from workers.runtimes.uploading import upload_rows
from workers.types import LoadSpec

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Batch sizes that are recorded, up to the largest batch of a variant."""
MEASURED_MOST = 64
"""Up to so many rows for a variant that is being measured, whose largest batch nobody knows yet.
Larger ones are recorded when they are first run."""
RUNS_TO_RECORD = 2
NUMBER = "gpu_graph_id"
"""ONNX Runtime's run option: which graph a run belongs to; -1: none."""
ALIGNMENT = 256
ResultT = TypeVar("ResultT")


@cache
def _gpu_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="gpu")


def in_gpu_thread(act: Callable[[], ResultT]) -> ResultT:
    """What ``act`` returns or raises, in the one thread that has the GPU's sessions."""
    return _gpu_thread().submit(act).result()


def run_on_gpu(act: Callable[[], ResultT]) -> ResultT:
    """The same for a run: nothing else runs or is recorded on the GPU meanwhile."""

    def alone() -> ResultT:
        with GPU:
            return act()

    return in_gpu_thread(alone)


class LockedMemory:
    """Page-locked memory of the host, which the batches of all variants pass through in turn.

    It is as large as the largest batch of those that reserve some. Used in the GPU's thread alone.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._address = 0
        self._bytes: NDArray[np.uint8] | None = None
        self._users = 0

    def join(self) -> None:
        """Count one more that reserves some."""
        self._users += 1

    def leave(self) -> None:
        """Count one less; the last one gives the memory back."""
        self._users -= 1
        if not self._users:
            self._give_back()

    def reserve(self, size: int) -> tuple[int, NDArray[np.uint8]]:
        """The address of at least ``size`` bytes, and an array over them.

        Raises:
            RuntimeFailed: the host has no more memory of that kind.
        """
        if self._bytes is None or len(self._bytes) < size:
            self._give_back()
            self._address, self._bytes = self._device.pin(1 << max(12, (size - 1).bit_length()))
        return self._address, self._bytes

    def _give_back(self) -> None:
        if self._bytes is not None:
            self._bytes = None
            self._device.unpin(self._address)


@cache
def locked_memory(device: Device) -> LockedMemory:
    """The one of a device."""
    return LockedMemory(device)


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
    place: _Place
    binding: Any
    options: Any


class Graphs:
    """The graphs of one session. ``record`` comes first, ``close`` last; ``run`` in between.

    All in one thread.

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
        self._place: _Place | None = None
        self._graphs: dict[int, _Graph] = {}
        """By their number of rows."""
        self._sizes = sizes_of(spec)
        self._stream = 0

    @property
    def most_rows(self) -> int:
        """Batches of more are not for ``run``."""
        return self._sizes[-1] if self._stream else 0

    def record(self) -> None:
        """Take memory for all batch sizes, and record their graphs.

        Raises:
            RuntimeFailed: the device has no room.
        """
        device = self._device
        device.enter()
        self._locked.join()
        self._held.callback(self._locked.leave)
        self._stream = device.stream()
        self._held.callback(device.end_stream, self._stream)
        most = self._sizes[-1] if self._spec.latency else MEASURED_MOST
        self._place = self._take(most)
        for size in self._sizes[: bisect_right(self._sizes, most)]:
            with GPU:
                self._record(size)

    def run(self, inputs: Sequence[Sequence[Tensor]], rows: int) -> list[Tensor]:
        """Run a batch of at most ``most_rows`` rows.

        Args:
            inputs: for each input tensors ``(n, *shape)``, which are the batch's rows in order.
            rows: how many these are.
        """
        size = self._sizes[bisect_left(self._sizes, rows)]
        graph = self._graphs.get(size)
        device, stream = self._device, self._stream
        device.enter()
        if graph is None:
            graph = self._record(size)
        address, locked = self._locked.reserve(graph.place.nbytes)
        for port, pieces in zip(graph.place.inputs, inputs, strict=True):
            source = address + port.offset
            upload_rows(device, stream, port.device, source, port.rows(locked, rows), pieces)
        device.wait(stream)
        self._session.run_with_iobinding(graph.binding, graph.options)
        for port in graph.place.outputs:
            device.download(address + port.offset, port.device, rows * port.row_bytes, stream)
        device.wait(stream)
        return [port.rows(locked, rows).copy() for port in graph.place.outputs]

    def close(self) -> None:
        """Give the memory back. The session, which has the recordings, goes after this."""
        self._graphs = {}
        self._place = self._session = None
        held, self._held = self._held, ExitStack()
        self._device.enter()
        held.close()

    def _record(self, size: int) -> _Graph:
        """Record a batch size. Nothing else may run on the GPU."""
        place = self._place
        if place is None or place.size < size:
            place = self._place = self._take(size)
        graph = self._graphs[size] = self._bound(place, size)
        for _ in range(RUNS_TO_RECORD):
            self._session.run_with_iobinding(graph.binding, graph.options)
        return graph

    def _bound(self, place: _Place, size: int) -> _Graph:
        binding = self._session.io_binding()
        for bind, ports, tensors in (
            (binding.bind_input, place.inputs, self._spec.inputs),
            (binding.bind_output, place.outputs, self._spec.outputs),
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
        options = self._run_options()
        options.add_run_config_entry(NUMBER, str(size))
        return _Graph(place, binding, options)

    def _take(self, size: int) -> _Place:
        """Memory for so many rows, the inputs on the device all zeros: any row may be run."""
        offset, found = 0, []
        for tensor in (*self._spec.inputs, *self._spec.outputs):
            dtype = np.dtype(tensor.dtype)
            row_bytes = dtype.itemsize * int(np.prod(tensor.shape, dtype=np.int64))
            taken = -(-max(1, size * row_bytes) // ALIGNMENT) * ALIGNMENT
            there = self._device.allocate(taken)
            self._held.callback(self._device.free, there)
            found.append(_Port(there, offset, dtype, tensor.shape, row_bytes))
            offset += taken
        inputs = found[: len(self._spec.inputs)]
        address, locked = self._locked.reserve(offset)
        for port in inputs:
            port.rows(locked, size)[...] = 0
            nbytes = size * port.row_bytes
            if nbytes:
                self._device.upload(port.device, address + port.offset, nbytes, self._stream)
        self._device.wait(self._stream)
        return _Place(size, inputs, found[len(inputs) :], offset)


def sizes_of(spec: LoadSpec) -> tuple[int, ...]:
    """The batch sizes that are run for a variant, ascending; others are filled up to one of them.

    All for a variant that is being measured, else up to its largest batch.
    """
    if not spec.latency:
        return SIZES
    most = min(spec.latency[-1][0], SIZES[-1])
    return (*(size for size in SIZES if size < most), most)
