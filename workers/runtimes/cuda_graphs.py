"""Small batches of an ONNX Runtime session on a GPU, replayed as CUDA graphs.

A small batch leaves the GPU idle most of its time: the processor takes longer to start each of a
model's hundreds of kernels than they take. A graph starts them all at once. It is recorded for one
shape, and for memory that never moves, so there is one for each of a few batch sizes; batches
between them are filled up with rows that nobody reads.

ONNX Runtime records the second run that has a graph's number, and plays it from the third on. It
keeps what it recorded, and what it needs of the GPU's libraries, for each thread by itself, so all
that runs there runs in one thread (``in_gpu_thread``), whichever asks for it.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from variants.types import TensorSpec
from workers.runtimes.cuda import GPU, Device
from workers.runtimes.protocol import Tensor
from workers.types import LoadSpec

SIZES = (1, 2, 4, 8, 16)
"""Batch sizes that are recorded. Above, starting kernels costs little beside running them."""
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


@dataclass(slots=True)
class _Port:
    """An input or output of a batch size: where it lies on the device and on the host."""

    device: int
    host: int
    row_bytes: int
    rows: NDArray[Any]
    """``(size, *shape)`` over page-locked host memory."""


@dataclass(slots=True)
class _Graph:
    size: int
    inputs: list[_Port]
    outputs: list[_Port]
    binding: Any
    options: Any


class Graphs:
    """The graphs of one session. ``record`` comes first, ``close`` last; ``run`` in between.

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
        self._place = place
        self._held = ExitStack()
        self._graphs: list[_Graph] = []
        """For each number of rows from 1, the graph that runs it."""
        self._stream = 0

    @property
    def most_rows(self) -> int:
        """Batches of more are not for ``run``."""
        return len(self._graphs)

    def record(self) -> None:
        """Take memory for all batch sizes, and record their graphs.

        Raises:
            RuntimeFailed: the device has no room.
        """
        device, latency = self._device, self._spec.latency
        most = latency[-1][0] if latency else SIZES[-1]  # it is being measured
        device.enter()
        self._stream = device.stream()
        self._held.callback(device.end_stream, self._stream)
        for size in SIZES:
            if size > most:
                break
            graph = self._graph(size)
            with GPU:
                for _ in range(RUNS_TO_RECORD):
                    self._session.run_with_iobinding(graph.binding, graph.options)
            self._graphs += [graph] * (size - len(self._graphs))

    def run(self, inputs: Sequence[Tensor], rows: int) -> list[Tensor]:
        """Run a batch of at most ``most_rows`` rows: tensors ``(rows, *shape)``."""
        device, stream, graph = self._device, self._stream, self._graphs[rows - 1]
        device.enter()
        for port, tensor in zip(graph.inputs, inputs, strict=True):
            port.rows[:rows] = tensor
            device.upload(port.device, port.host, rows * port.row_bytes, stream)
        device.wait(stream)
        self._session.run_with_iobinding(graph.binding, graph.options)
        for port in graph.outputs:
            device.download(port.host, port.device, rows * port.row_bytes, stream)
        device.wait(stream)
        return [port.rows[:rows].copy() for port in graph.outputs]

    def close(self) -> None:
        """Give the memory back. The session, which has the recordings, goes after this."""
        self._graphs = []
        self._session = None
        held, self._held = self._held, ExitStack()
        self._device.enter()
        held.close()

    def _graph(self, size: int) -> _Graph:
        inputs = [self._port(tensor, size) for tensor in self._spec.inputs]
        outputs = [self._port(tensor, size) for tensor in self._spec.outputs]
        binding = self._session.io_binding()
        for bind, ports, tensors in (
            (binding.bind_input, inputs, self._spec.inputs),
            (binding.bind_output, outputs, self._spec.outputs),
        ):
            for port, tensor in zip(ports, tensors, strict=True):
                bind(
                    name=tensor.name,
                    device_type=self._place,
                    device_id=0,
                    element_type=np.dtype(tensor.dtype).type,
                    shape=(size, *tensor.shape),
                    buffer_ptr=port.device,
                )
        options = self._run_options()
        options.add_run_config_entry(NUMBER, str(size))
        return _Graph(size, inputs, outputs, binding, options)

    def _port(self, tensor: TensorSpec, size: int) -> _Port:
        dtype = np.dtype(tensor.dtype)
        row_bytes = dtype.itemsize * int(np.prod(tensor.shape, dtype=np.int64))
        taken = max(ALIGNMENT, size * row_bytes)
        there = self._device.allocate(taken)
        self._held.callback(self._device.free, there)
        host, memory = self._device.pin(taken)
        self._held.callback(self._device.unpin, host)
        memory[:] = 0
        rows = memory[: size * row_bytes].view(dtype).reshape(size, *tensor.shape)
        return _Port(there, host, row_bytes, rows)
