"""ONNX Runtime, on the CPU or on an NVIDIA GPU."""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from variants.errors import RuntimeFailed
from variants.onnx_halves import crashing_optimisers
from variants.types import TensorSpec
from workers.runtimes.cuda import Device, first_device
from workers.runtimes.cuda_graphs import NO_NUMBER, NUMBER, Graphs
from workers.runtimes.gpu_thread import GpuThread
from workers.runtimes.idle_work import IdleWork
from workers.runtimes.onnx_providers import CPU, PROVIDERS, gpu_session, records_graphs
from workers.runtimes.options import Options
from workers.runtimes.protocol import Tensor, rows_of
from workers.runtimes.sharing.arena import ARENA
from workers.runtimes.sharing.sessions import OPEN
from workers.runtimes.signature import Signature
from workers.runtimes.weights.onnx_weights import mapped_session
from workers.types import LoadSpec

log = logging.getLogger(__name__)

SPIN_US = 100
"""About two wake-ups of a sleeping thread: a thread that spins as long as a wake-up takes loses at
most as much again. docs/decisions/0012 has what it brings."""

_CODES = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_NODE = re.compile(r"Non-zero status code returned while running (\w+ node)\..*?Status Message: ")
_PLACE = re.compile(r"\S+\.(?:cc|cpp|h):\d+ ")


class OnnxRuntime:
    """A variant stored as an ONNX file.

    In a worker, what batches take lies in one arena for all variants
    (``workers.runtimes.sharing.arena``).

    Threads that wait for the next operator spin for ``SPIN_US`` and then sleep: longer, and they
    starve the process that feeds them. Outputs come in the order of the spec.

    On a GPU, batches are replayed as CUDA graphs, where all of the model is there
    (``workers.runtimes.cuda_graphs``); docs/decisions/0029 has what that brings.

    Options, as text:
        threads: how many compute one batch; default all that are given.
        session: ``shared``: with all variants of this file and as many threads that this process
            has loaded, so that its weights are there once; default ``own``.
        provider: ``cuda`` or ``tensorrt``: on the GPU, or not at all; default the CPU.
        tf32: with a provider, 1: products of fp32 numbers may be rounded; default 0.
        graphs: with ``cuda``, 0: none are recorded; default 1.
        ranges: with ``tensorrt``, the first and the last batch size; default ``1,2-8,9-32,33-64``.
        engines: with ``tensorrt``, folder in which engines are kept.
    """

    keeps_inputs = False
    shares_working_memory = True

    def __init__(
        self, spec: LoadSpec, threads: int, *, device: Callable[[], Device] = first_device
    ) -> None:
        self._spec = spec
        self._threads = threads
        self._find_device = device
        self._inputs = [tensor.name for tensor in spec.inputs]
        self._outputs = [tensor.name for tensor in spec.outputs]
        self._session: Any = None
        self._in_arena = False
        """Whether its batches are in the arena of all variants."""
        self._shares: tuple[str, int] | None = None
        """What its session is made of, where others may use it too."""
        self._thread: GpuThread | None = None
        """That in which all runs, on a GPU."""
        self._graphs: Graphs | None = None
        self._later: IdleWork | None = None
        """Batch sizes that are yet to be recorded."""
        self.run_pieces: Callable[[Sequence[Sequence[Tensor]]], list[Tensor]] | None = None
        """Takes a batch in pieces, where rows are copied to a GPU in any case."""
        self._call: Callable[[Sequence[str], Mapping[str, Tensor], Any], list[Tensor]]
        self._call = self._unloaded

    def load(self) -> None:
        """Create the session and run one row of zeros through it."""
        told = Options(self._spec)
        threads = told.threads(self._threads)
        on_gpu = bool(told.text("provider") and told.choice("provider", PROVIDERS, ""))
        shared = told.choice("session", ("own", "shared"), "own") == "shared" and not on_gpu
        import onnxruntime as ort

        try:
            if on_gpu:
                graphs = told.choice("graphs", ("0", "1"), "1") == "1"
                options = _session_options(ort, threads)
                session = gpu_session(
                    ort, self._spec, options, device=self._find_device, graphs=graphs
                )
            else:
                session = self._cpu_session(ort, threads, shared=shared)
        except Exception as error:  # the binding raises a different type for each cause
            raise RuntimeFailed(f"{self._name} cannot be loaded: {_reason(error)}") from error
        try:
            self._check_signature(session)
        except RuntimeFailed:
            self.close()
            raise
        self._session = session
        # The public method checks names on each call and doubles the cost of a small model: 11 us
        # against 5. The names were checked above; the binding checks types and shapes itself.
        self._call = getattr(session, "_sess", session).run
        row = [np.zeros((1, *t.shape), dtype=t.dtype) for t in self._spec.inputs]
        try:
            if on_gpu:
                self._run_in_thread(GpuThread(), ort.RunOptions(), row)
            Signature(self._spec).check_outputs(self.run(row), 1)
            if on_gpu and records_graphs(session):
                self._record(session, ort.RunOptions)
                self.run(row)  # what could not be recorded must not have broken the rest
        except RuntimeFailed:
            self.close()
            raise
        if self._later is not None and self._spec.latency:  # else it is being measured
            self._later.begin()

    def _cpu_session(self, ort: Any, threads: int, *, shared: bool) -> Any:
        """A session of its own, or one that variants of the same artifact share."""
        path, options = self._spec.path, _session_options(ort, threads)
        self._in_arena = ARENA.prepare(ort, options)

        def make() -> Any:
            return mapped_session(ort, path, options, [CPU], crashing_optimisers(path))

        if not shared:
            return make()
        made_of = (self._spec.artifact, threads)
        session = OPEN.take(made_of, make)
        self._shares = made_of
        return session

    def finish_loading(self) -> None:
        """Record the batch sizes that ``load`` has left.

        Raises:
            RuntimeFailed: one cannot be recorded.
        """
        if self._later is None:
            return
        try:
            self._later.finish()
        except Exception as error:  # as in ``load``
            raise RuntimeFailed(f"{self._name} failed: {_reason(error)}") from error

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        options = ARENA.giving_back() if ARENA.gives_back and self._in_arena else None
        try:
            return self._call(self._outputs, dict(zip(self._inputs, inputs, strict=True)), options)
        except RuntimeFailed:
            raise
        except Exception as error:  # as above
            raise RuntimeFailed(f"{self._name} failed: {_reason(error)}") from error

    def close(self) -> None:
        shares, self._shares = self._shares, None
        if shares is not None:
            OPEN.leave(shares)
        self._call, self.run_pieces = self._unloaded, None
        if self._session is not None and self._in_arena and self._spec.own_working_mib:
            ARENA.gives_back = True
        thread, graphs, later = self._thread, self._graphs, self._later
        self._thread = self._graphs = self._session = self._later = None
        if later is not None:
            later.end()
        if thread is not None:
            if graphs is not None:
                with suppress(RuntimeFailed):  # after a fault on the device nothing can be freed
                    thread.call(graphs.close)
            thread.end()

    def _run_in_thread(self, thread: GpuThread, options: Any, row: Sequence[Tensor]) -> None:
        """Run in that thread from now on, unrecorded, and ``row`` at once."""
        self._thread, run = thread, self._call
        options.add_run_config_entry(NUMBER, NO_NUMBER)

        def through(call: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
            return lambda outputs, feeds, _: call(lambda: run(outputs, feeds, options))

        # The first run plans, which takes a quarter of a second: others need not wait for it.
        self._call = through(thread.call)
        self.run(row)
        self._call = through(thread.call_alone)

    def _record(self, session: Any, run_options: Callable[[], Any]) -> None:
        """Record batches, and play them from now on; without that where it fails."""
        thread = self._thread
        assert thread is not None
        graphs = Graphs(session, self._spec, self._find_device(), run_options)
        try:
            thread.call(graphs.record)
        except Exception as error:  # as in ``load``
            log.warning("%s goes without CUDA graphs: %s", self._name, _reason(error))
            with suppress(RuntimeFailed):
                thread.call(graphs.close)
            return
        self._graphs, plain = graphs, self._call
        self._later = IdleWork(
            self._name, thread, graphs.record_next, lambda: graphs.idle_s, lambda: graphs.misses
        )

        def play(outputs: Sequence[str], feeds: Mapping[str, Tensor], _: None) -> list[Tensor]:
            inputs = list(feeds.values())
            rows = rows_of(inputs)
            if rows > graphs.most_rows or not all(map(_fits, inputs, self._spec.inputs)):
                return plain(outputs, feeds, None)
            return thread.call(lambda: graphs.run([[tensor] for tensor in inputs], rows))

        def play_pieces(inputs: Sequence[Sequence[Tensor]]) -> list[Tensor]:
            rows = sum(map(len, inputs[0]))
            if rows > graphs.most_rows:
                return self.run([np.concatenate(pieces) for pieces in inputs])
            try:
                return thread.call(lambda: graphs.run(inputs, rows))
            except RuntimeFailed:
                raise
            except Exception as error:  # as in ``run``
                raise RuntimeFailed(f"{self._name} failed: {_reason(error)}") from error

        self._call, self.run_pieces = play, play_pieces

    @property
    def _name(self) -> str:
        return f"{self._spec.task}/{self._spec.variant}"

    def _check_signature(self, session: Any) -> None:
        has = {node.name for node in session.get_inputs()}
        gives = {node.name for node in session.get_outputs()}
        if has != set(self._inputs):
            takes, wanted = (", ".join(sorted(names)) for names in (has, self._inputs))
            raise RuntimeFailed(f"{self._name} takes inputs {takes}, the task has {wanted}")
        if not gives >= set(self._outputs):
            missing = sorted(set(self._outputs) - gives)
            raise RuntimeFailed(f"{self._name} has no output {', '.join(missing)}")

    def _unloaded(self, *_: object) -> list[Tensor]:
        raise RuntimeFailed(f"{self._name} is not loaded")


def _session_options(ort: Any, threads: int) -> Any:
    """For one batch at a time; threads that wait spin for ``SPIN_US`` at most."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    # A pattern is a second copy of the activations, beside what its first run has left in the
    # arena: twice the memory for a microsecond a run. docs/decisions/0015 has the figures, and
    # 0029 those of a GPU.
    options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_US))
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    return options


def _fits(tensor: Tensor, spec: TensorSpec) -> bool:
    """Whether it is what the binding would take; it says what is wrong with others."""
    return tensor.shape[1:] == spec.shape and tensor.dtype == spec.dtype


def _reason(error: BaseException) -> str:
    """What ONNX Runtime says on one line, without its codes and the places in its source."""
    text = _CODES.sub("", " ".join(str(error).split()))
    return _PLACE.sub("", _NODE.sub(r"\1: ", text))
