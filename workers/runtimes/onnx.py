"""ONNX Runtime on the CPU."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from variants.errors import RuntimeFailed
from workers.runtime import Tensor
from workers.types import LoadSpec


class OnnxRuntime:
    """A variant stored as an ONNX file. ``threads`` compute one batch.

    Threads never spin while they wait: spinning starves the process that feeds them. Outputs come
    in the order of the spec.
    """

    def __init__(self, spec: LoadSpec, threads: int) -> None:
        self._spec = spec
        self._threads = threads
        self._inputs = [tensor.name for tensor in spec.inputs]
        self._outputs = [tensor.name for tensor in spec.outputs]
        self._session: Any = None
        self._call: Callable[[Sequence[str], Mapping[str, Tensor], None], list[Tensor]]
        self._call = self._unloaded

    def load(self) -> None:
        """Create the session and run one row of zeros through it."""
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = self._threads
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        try:
            session = ort.InferenceSession(
                self._spec.path, options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # the binding raises a different type for each cause
            raise RuntimeFailed(f"{self._name} cannot be loaded: {error}") from error
        self._check_signature(session)
        self._session = session
        # The public method checks names on each call and doubles the cost of a small model: 11 us
        # against 5. The names were checked above; the binding checks types and shapes itself.
        self._call = getattr(session, "_sess", session).run
        row = [np.zeros((1, *t.shape), dtype=t.dtype) for t in self._spec.inputs]
        try:
            self.run(row)
        except RuntimeFailed:
            self.close()
            raise

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        try:
            return self._call(self._outputs, dict(zip(self._inputs, inputs, strict=True)), None)
        except RuntimeFailed:
            raise
        except Exception as error:  # as above
            raise RuntimeFailed(f"{self._name} failed: {error}") from error

    def close(self) -> None:
        self._call = self._unloaded
        self._session = None

    @property
    def _name(self) -> str:
        return f"{self._spec.task}/{self._spec.variant}"

    def _check_signature(self, session: Any) -> None:
        has = {node.name for node in session.get_inputs()}
        gives = {node.name for node in session.get_outputs()}
        if has != set(self._inputs):
            raise RuntimeFailed(
                f"{self._name} takes inputs {sorted(has)}, the task has {sorted(self._inputs)}"
            )
        if not gives >= set(self._outputs):
            missing = sorted(set(self._outputs) - gives)
            raise RuntimeFailed(f"{self._name} has no output {', '.join(missing)}")

    def _unloaded(self, *_: object) -> list[Tensor]:
        raise RuntimeFailed(f"{self._name} is not loaded")
