"""OpenVINO on the CPU."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from threading import Lock
from time import perf_counter
from typing import Any

import numpy as np

from variants.errors import RuntimeFailed
from variants.figures import MOST_NAMED, some_of
from workers.runtimes.options import Options
from workers.runtimes.protocol import Tensor
from workers.runtimes.signature import Signature
from workers.runtimes.weights.openvino_weights import mapped_model
from workers.types import LoadSpec

PRECISIONS = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}
"""Our names to OpenVINO's."""
LONG_S = 0.002
"""A batch that took less has filled little: it is not looked after."""
_INT32 = np.iinfo(np.int32)


class OpenVinoRuntime:
    """A variant stored as an ONNX file. Outputs come in the order of the spec.

    It computes 64-bit numbers in 32 bits. Integers that need more are refused.

    The batch axis stays open: over the digits family, a model compiled for one batch size was at
    most 6 us quicker per batch than one compiled for all, and each takes as long to compile.

    Options:
        precision: in which the processor computes what the file leaves in floating point: ``fp32``
            (default), ``bf16`` or ``fp16``. Left alone, OpenVINO takes bf16 where there is any.
        threads: how many compute one batch.
    """

    keeps_inputs = False
    shares_working_memory = True

    def __init__(self, spec: LoadSpec, threads: int) -> None:
        self._spec = spec
        self._threads = threads
        self._name = f"{spec.task}/{spec.variant}"
        self._signature = Signature(spec)
        self._inputs: list[int] = []
        self._outputs: list[int] = []
        self._compiled: Any = None
        self._running = Lock()
        self._request: Any = None
        self._tensor: Any = None

    def load(self) -> None:
        """Compile the model and run one row of zeros through it."""
        options = Options(self._spec)
        precision = options.choice("precision", PRECISIONS, "fp32")
        properties = _properties(PRECISIONS[precision], options.threads(self._threads))
        try:
            openvino = import_openvino()
            # Asked for ONNX: left to guess, it tries the readers of four other formats too.
            reader = openvino.frontend.FrontEndManager().load_by_framework("onnx")

            def compile_model(model: Any) -> Any:
                _keep_extremes_apart(model, openvino.opset13)
                return openvino.Core().compile_model(model, "CPU", properties)

            compiled = mapped_model(reader, self._spec.path, compile_model)
            computes_in = compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        except Exception as error:  # the binding raises RuntimeError, with a page of its insides
            raise RuntimeFailed(f"{self._name} cannot be loaded: {_cause(error)}") from error
        if computes_in != PRECISIONS[precision]:
            raise RuntimeFailed(f"{self._name} cannot be loaded: this CPU has no {precision}")
        self._inputs = self._indices(compiled.inputs, [t.name for t in self._spec.inputs])
        self._outputs = self._indices(compiled.outputs, [t.name for t in self._spec.outputs])
        if len(compiled.inputs) != len(self._inputs):
            raise RuntimeFailed(f"{self._name} takes more inputs than the task has")
        self._tensor = openvino.Tensor
        self._compiled = compiled
        self._request = compiled.create_infer_request()
        row = [np.zeros((1, *t.shape), dtype=t.dtype) for t in self._spec.inputs]
        try:
            self._signature.check_outputs(self.run(row), 1)
        except RuntimeFailed:
            self.close()
            raise

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        request = self._request
        if request is None:
            raise RuntimeFailed(f"{self._name} is not loaded")
        self._signature.check_inputs(inputs)
        for tensor in inputs:
            if tensor.dtype == np.int64 and tensor.size:
                self._check_range(tensor)
        held = [_shareable(tensor) for tensor in inputs]  # the request does not hold them
        began_s = perf_counter()
        try:
            with self._running:
                outputs = self._infer(request, held)
        except Exception as error:  # as above
            raise RuntimeFailed(f"{self._name} failed: {_cause(error)}") from error
        if perf_counter() - began_s >= LONG_S:
            _HOLDER.is_now(self)
        return outputs

    def give_back(self) -> None:
        """Give back what its batches took, unless one is running: the next takes it anew."""
        compiled = self._compiled  # another thread may close this one meanwhile
        if compiled is not None and self._running.acquire(blocking=False):
            try:
                with suppress(RuntimeError):  # the batch of another variant does not fail for it
                    compiled.release_memory()
            finally:
                self._running.release()

    def _infer(self, request: Any, held: list[Tensor]) -> list[Tensor]:
        for index, tensor in zip(self._inputs, held, strict=True):
            request.set_input_tensor(index, self._tensor(tensor, True))
        request.infer(share_outputs=True)
        # A result lies in the request's own memory, which the next batch writes over.
        return [request.get_output_tensor(index).data.copy() for index in self._outputs]

    def close(self) -> None:
        self._request = self._compiled = None
        _HOLDER.leaves(self)

    def _check_range(self, tensor: Tensor) -> None:
        if tensor.min() < _INT32.min or tensor.max() > _INT32.max:
            raise RuntimeFailed(
                f"{self._name} failed: OpenVINO computes int64 in 32 bits, and a number needs more"
            )

    def _indices(self, ports: Sequence[Any], names: list[str]) -> list[int]:
        """The positions of the tensors with these names among the model's."""
        found = {name: index for index, port in enumerate(ports) for name in port.names}
        missing = [name for name in names if name not in found]
        if missing:
            has = some_of(sorted(found), MOST_NAMED)
            raise RuntimeFailed(f"{self._name} has no {', '.join(missing)}; it has: {has}")
        return [found[name] for name in names]


class _Holder:
    """Which variant of this process keeps what a long batch took. OpenVINO keeps it with each
    model; a worker runs one batch at a time, so the one before gives it back when another has had
    its turn. Given back after each batch, it would be taken anew for the next one, page by page."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._one: OpenVinoRuntime | None = None

    def is_now(self, one: OpenVinoRuntime) -> None:
        with self._lock:
            before, self._one = self._one, one
        if before is not None and before is not one:
            before.give_back()

    def leaves(self, one: OpenVinoRuntime) -> None:
        with self._lock:
            if self._one is one:
                self._one = None


_HOLDER = _Holder()


def import_openvino() -> Any:
    """The ``openvino`` package, without what it does when it is imported.

    Importing it imports its conversion tools, which fork the process and post an event to Google
    Analytics from there, unless the user once opted out. The package has a stand-in for where
    ``openvino_telemetry`` is not installed, so we say that it is not.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return import_module("openvino")  # it has no types


def _keep_extremes_apart(model: Any, operators: Any) -> None:
    """Put a step without a value of its own behind each largest or smallest along an axis.

    OpenVINO (2026.4) computes what follows ``ReduceMax`` and ``ReduceMin`` as a part of them, and
    wrongly where that is quantising: answers of 8-bit models differ from the first such node on.
    Between axes that are kept and axes that are dropped there is a step that it does not take in.
    """
    for node in model.get_ordered_ops():
        if node.get_type_name() not in ("ReduceMax", "ReduceMin"):
            continue
        kept = node.get_attributes()["keep_dims"]
        users = node.output(0).get_target_inputs()
        node.set_attribute("keep_dims", not kept)
        node.validate_and_infer_types()  # or axes behind its old rank would be refused
        turn = operators.unsqueeze if kept else operators.squeeze
        as_before = turn(node.output(0), node.input_value(1))
        for user in users:
            user.replace_source_output(as_before.output(0))
        named = node.output(0).get_names()
        as_before.output(0).set_names(named)
        node.output(0).set_names(set())
    model.validate_nodes_and_infer_types()


def _properties(precision: str, threads: int) -> dict[str, Any]:
    """One stream of so many threads, which the system may move, and exactly this precision.

    Pinning is off: several processes that each pin to the first cores would share those and leave
    the others idle. The second thread of a core is used if we are given it: a caller that gives us
    four means four."""
    return {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": threads,
        "ENABLE_CPU_PINNING": False,
        "ENABLE_CPU_RESERVATION": False,
        "ENABLE_HYPER_THREADING": True,
        "SCHEDULING_CORE_TYPE": "ANY_CORE",
        "INFERENCE_PRECISION_HINT": precision,
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
    }


def _shareable(tensor: Tensor) -> Tensor:
    """The array itself, or a copy where OpenVINO does not take it: read-only, or with gaps."""
    return tensor if tensor.flags.carray else np.array(tensor, order="C")


def _cause(error: Exception) -> str:
    """The last line of an error: those before name source files and what did not hold there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].lstrip("- ")[:300] if lines else type(error).__name__
