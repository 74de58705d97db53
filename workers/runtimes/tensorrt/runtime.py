"""TensorRT 11: a variant stored as ONNX, run as an engine that was built for the GPU at hand.

The first load on a kind of GPU builds the engine, which takes from seconds to minutes; later loads,
in whatever process, find it in the cache (``workers.runtimes.engine_store``).
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from variants.errors import RuntimeFailed
from variants.types import TensorSpec
from workers.runtimes.cuda import Device, first_device
from workers.runtimes.engine_store import BatchRange, EngineCache, EngineKey, digest_of
from workers.runtimes.gpu_thread import RECORDING
from workers.runtimes.protocol import Tensor, rows_of
from workers.runtimes.signature import Signature, in_words
from workers.runtimes.tensorrt.engine_building import (
    PlanOptions,
    build_plan,
    import_tensorrt,
    timing_key,
)
from workers.runtimes.uploading import upload_rows
from workers.types import LoadSpec

log = logging.getLogger(__name__)

ALIGNMENT = 256
"""In bytes: tensors begin at multiples of this within a block of memory."""


@dataclass(slots=True)
class _Port:
    """An input or output: where it lies on the device and, page-locked, on the host."""

    spec: TensorSpec
    dtype: np.dtype[Any]
    row_bytes: int
    device: int = 0
    host: int = 0
    rows: NDArray[Any] | None = None
    """``(largest batch, *row)`` over the host memory."""


@dataclass(slots=True)
class _Slot:
    """A range's execution context."""

    context: Any
    least: int
    """The range's smallest batch."""
    rows: int = 0
    """The batch size that the context is set to; 0: to none."""


class TensorRtRuntime:
    """Runs batches of up to the largest size of the last range; larger ones fail.

    Each range of batch sizes has kernels of its own and an execution context of its own, so that
    nothing is switched between batches. The contexts run in turn, and share one block of scratch
    memory. Inputs are copied into page-locked memory, then asynchronously to the device; outputs
    come back the same way. Addresses never change.

    Options, as text:
        ranges: batch sizes that share kernels; default ``1,2-8,9-32,33-64``.
        workspace_mib: scratch memory that one layer may take; default 1024.
        level: how hard TensorRT searches for kernels, 0 to 5; default 3.
        tf32: 1: products of fp32 numbers may be rounded; default 0.
        engines: folder in which engines are kept.
    """

    keeps_inputs = False

    def __init__(
        self,
        spec: LoadSpec,
        threads: int,
        *,
        device: Callable[[], Device] = first_device,
        tensorrt: Callable[[], Any] = import_tensorrt,
    ) -> None:
        self._spec = spec
        self._threads = threads
        self._name = f"{spec.task}/{spec.variant}"
        self._signature = Signature(spec)
        self._find_device = device
        self._find_tensorrt = tensorrt
        self._inputs = [_port(tensor) for tensor in spec.inputs]
        self._outputs = [_port(tensor) for tensor in spec.outputs]
        self._device: Device | None = None
        self._held = ExitStack()
        self._runtime: Any = None
        self._engine: Any = None
        self._slots: list[_Slot] = []
        """One slot for each batch size from 1 row; the sizes of a range share one."""
        self._stream = 0

    def load(self) -> None:
        """Find or build the engine, and run the smallest batch of each range, of zeros."""
        self.close()
        try:
            self._device = self._find_device()
            self._device.enter()
            self._open(self._find_tensorrt(), PlanOptions.of(dict(self._spec.options)))
            for slot in {id(slot): slot for slot in self._slots}.values():
                zeros = [[np.zeros((slot.least, *p.spec.shape), p.dtype)] for p in self._inputs]
                self._run(slot, slot.least, zeros)
                self._check_outputs(slot)
        except Exception as error:  # the bindings raise a different type for each cause
            self.close()
            raise RuntimeFailed(f"{self._name} cannot be loaded: {_cause(error)}") from error

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return self.run_pieces([[tensor] for tensor in inputs])

    def run_pieces(self, inputs: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """Run a batch whose rows, of each input, are those of some tensors in their order."""
        if self._engine is None:
            raise RuntimeFailed(f"{self._name} is not loaded")
        rows = self._rows(inputs)
        slot = self._slots[rows - 1]
        try:
            with RECORDING:
                return self._run(slot, rows, inputs)
        except Exception as error:
            slot.rows = 0
            with suppress(RuntimeFailed):  # nothing may still be copied when the next batch comes
                self._wait()
            raise RuntimeFailed(f"{self._name} failed: {_cause(error)}") from error

    def close(self) -> None:
        if self._device is None:
            return
        with suppress(RuntimeFailed):
            self._device.enter()
            self._wait()
        self._slots = []
        self._engine = None
        self._runtime = None
        for port in (*self._inputs, *self._outputs):
            port.rows = None
        held, self._held = self._held, ExitStack()
        self._device, self._stream = None, 0
        with suppress(RuntimeFailed):  # after a fault on the device nothing can be freed
            held.close()

    # -- loading ----------------------------------------------------------------------------------

    def _open(self, trt: Any, options: PlanOptions) -> None:
        device, held = self._device, self._held
        assert device is not None
        logger = _logger(trt)
        logger.take()
        self._runtime = trt.Runtime(logger)
        engine = self._find_engine(trt, logger, options)
        self._check_signature(trt, engine, options.ranges[0])
        self._stream = device.stream()
        held.callback(device.end_stream, self._stream)
        self._allocate(options.ranges[-1].high)
        scratch_bytes = int(engine.device_memory_size_v2)
        scratch = 0
        if scratch_bytes:
            scratch = device.allocate(scratch_bytes)
            held.callback(device.free, scratch)
        for index, each in enumerate(options.ranges):
            context = self._context(trt, engine, index)
            if scratch_bytes:
                context.set_device_memory(scratch, scratch_bytes)
            self._slots += [_Slot(context, each.low)] * (each.high - each.low + 1)
        self._engine = engine

    def _find_engine(self, trt: Any, logger: Any, options: PlanOptions) -> Any:
        """The engine from the cache, or else a new one."""
        try:
            onnx = Path(self._spec.path).read_bytes()
        except OSError as error:
            raise RuntimeFailed(f"{self._spec.path}: {error.strerror}") from error
        cached = EngineCache(options.folder)
        key = options.key(str(trt.__version__), self._device, digest_of(onnx), self._spec)
        plan = cached.get(key.digest)
        if plan is not None:
            engine = self._runtime.deserialize_cuda_engine(plan)
            if engine is not None:
                return engine
            log.warning("TensorRT refuses a kept engine of %s: %s", self._name, logger.take())
            cached.remove(key.digest)
        with cached.building(key.digest):
            plan = cached.get(key.digest)  # another process may have built it meanwhile
            if plan is None:
                plan = self._build(trt, logger, onnx, options, cached, key)
        engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            cached.remove(key.digest)
            raise RuntimeFailed(f"TensorRT cannot read the engine that it built: {logger.take()}")
        return engine

    def _build(
        self, trt: Any, logger: Any, onnx: bytes, options: PlanOptions, cached: EngineCache,
        key: EngineKey,
    ) -> bytes:  # fmt: skip
        timings = timing_key(str(trt.__version__), self._device).digest
        log.info("building an engine for %s on %s", self._name, key.gpu)
        plan, grown = build_plan(
            trt, logger, onnx, self._spec, options,
            threads=self._threads, timings=cached.get(timings) or b"", said=logger.take,
        )  # fmt: skip
        cached.put(key.digest, plan)
        if grown:
            cached.put(timings, grown)
        return plan

    def _check_signature(self, trt: Any, engine: Any, first: BatchRange) -> None:
        """Refuse an engine whose tensors are not the task's, or not plain tensors on the device.

        Of outputs an engine may tell the shape that they have in its first range: one row, where
        that range is of one batch size. What they have in each range is asked after its first run.
        """
        wants = {(True, p.spec.name): p for p in self._inputs}
        wants |= {(False, p.spec.name): p for p in self._outputs}
        for index in range(engine.num_io_tensors):
            name = engine.get_tensor_name(index)
            is_input = engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT
            port = wants.pop((is_input, name), None)
            if port is None:
                raise RuntimeFailed(f"its engine has a tensor {name!r}, which the task has not")
            if engine.get_tensor_location(name) != trt.TensorLocation.DEVICE:
                raise RuntimeFailed(f"tensor {name!r} decides on shapes")
            shape, dtype = tuple(engine.get_tensor_shape(name)), engine.get_tensor_dtype(name)
            try:
                has = np.dtype(trt.nptype(dtype))
            except TypeError as error:
                raise RuntimeFailed(f"tensor {name!r} is {dtype}, which numpy has not") from error
            rows = {-1} if is_input or first.low < first.high else {-1, first.low}
            if has != port.dtype or shape not in {(n, *port.spec.shape) for n in rows}:
                told, wanted = in_words([(has, shape)]), (-1, *port.spec.shape)
                raise RuntimeFailed(
                    f"tensor {name!r} is {told}, the task's is {in_words([(port.dtype, wanted)])}"
                )
        if wants:
            raise RuntimeFailed(f"its engine lacks {', '.join(sorted(n for _, n in wants))}")

    def _check_outputs(self, slot: _Slot) -> None:
        """Refuse an engine whose outputs have other rows than the batch that it ran."""
        for port in self._outputs:
            shape = tuple(slot.context.get_tensor_shape(port.spec.name))
            if shape != (slot.rows, *port.spec.shape):
                raise RuntimeFailed(
                    f"for {slot.rows} rows, tensor {port.spec.name!r} has the shape {[*shape]}"
                )

    def _allocate(self, rows: int) -> None:
        """Lay out all tensors for so many rows in one block on the host and one on the device."""
        assert self._device is not None
        ports = (*self._inputs, *self._outputs)
        offsets, size = [], 0
        for port in ports:
            offsets.append(size)
            size += -(-rows * port.row_bytes // ALIGNMENT) * ALIGNMENT
        size = max(size, ALIGNMENT)
        device = self._device.allocate(size)
        self._held.callback(self._device.free, device)
        host, memory = self._device.pin(size)
        self._held.callback(self._device.unpin, host)
        for port, offset in zip(ports, offsets, strict=True):
            port.device, port.host = device + offset, host + offset
            part = memory[offset : offset + rows * port.row_bytes]
            port.rows = part.view(port.dtype).reshape(rows, *port.spec.shape)

    def _context(self, trt: Any, engine: Any, index: int) -> Any:
        """An execution context for one range, all addresses set, without scratch memory."""
        context = engine.create_execution_context(
            trt.ExecutionContextAllocationStrategy.USER_MANAGED
        )
        if context is None:
            raise RuntimeFailed("TensorRT cannot create an execution context")
        if not context.set_optimization_profile_async(index, self._stream):
            raise RuntimeFailed(f"TensorRT cannot select optimisation profile {index}")
        self._wait()
        for port in (*self._inputs, *self._outputs):
            if not context.set_tensor_address(port.spec.name, port.device):
                raise RuntimeFailed(f"TensorRT refuses the address of {port.spec.name!r}")
        return context

    # -- running ----------------------------------------------------------------------------------

    def _rows(self, inputs: Sequence[Sequence[Tensor]]) -> int:
        """How many rows a batch has.

        Raises:
            RuntimeFailed: its tensors are not the task's, or there is no range for so many rows.
        """
        rows = 0
        for piece in zip(*inputs, strict=True):
            self._signature.check_inputs(piece)
            rows += rows_of(piece)
        if not 0 < rows <= len(self._slots):
            raise RuntimeFailed(
                f"{self._name} takes 1 to {len(self._slots)} rows at a time, not {rows}"
            )
        return rows

    def _run(self, slot: _Slot, rows: int, inputs: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        device, stream, context = self._device, self._stream, slot.context
        assert device is not None
        device.enter()
        for port, pieces in zip(self._inputs, inputs, strict=True):
            assert port.rows is not None
            upload_rows(device, stream, port.device, port.host, port.rows[:rows], pieces)
        if slot.rows != rows:
            for port in self._inputs:
                if not context.set_input_shape(port.spec.name, (rows, *port.spec.shape)):
                    raise RuntimeFailed(f"TensorRT refuses {rows} rows of {port.spec.name!r}")
            slot.rows = rows
        if not context.execute_async_v3(stream):
            raise RuntimeFailed(f"TensorRT cannot run {rows} rows")
        for port in self._outputs:
            device.download(port.host, port.device, rows * port.row_bytes, stream)
        device.wait(stream)
        # The next batch writes over this memory.
        return [port.rows[:rows].copy() for port in self._outputs if port.rows is not None]

    def _wait(self) -> None:
        if self._device is not None and self._stream:
            self._device.wait(self._stream)


def _cause(error: Exception) -> str:
    """An error's own words, else its type too; the bindings raise bare types."""
    return error.message if isinstance(error, RuntimeFailed) else f"{type(error).__name__}: {error}"


def _port(spec: TensorSpec) -> _Port:
    dtype = np.dtype(spec.dtype)
    return _Port(spec, dtype, dtype.itemsize * int(np.prod(spec.shape, dtype=np.int64)))


@cache
def _logger(trt: Any) -> Any:
    """The one logger of the process: TensorRT complains of a second one."""

    class Logger(trt.ILogger):  # type: ignore[misc]
        """Passes on warnings, and keeps the last errors, to explain a failure."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self._errors: deque[str] = deque(maxlen=3)
            self._lock = threading.Lock()

        def log(self, severity: Any, msg: str) -> None:
            text = " ".join(msg.split())[:500]
            if severity in (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR):
                with self._lock:
                    self._errors.append(text)
                log.warning("TensorRT: %s", text)
            elif severity == trt.ILogger.WARNING:
                log.info("TensorRT: %s", text)

        def take(self) -> str:
            """The errors since the last call of this method."""
            with self._lock:
                said = "; ".join(self._errors)
                self._errors.clear()
            return said or "it did not say why"

    return Logger()
