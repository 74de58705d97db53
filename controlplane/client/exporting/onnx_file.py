"""An exported ONNX model: without what exporters note in it, and answered by a runtime."""

import os
from typing import Any

import numpy as np

from controlplane.client.exporting.agreement import Arrays
from controlplane.client.exporting.exported import ExportError

BATCH = "batch"
"""What the free axis is called."""


def cleaned(model: Any) -> None:
    """Drop what exporters note of the source code, and give the batch axis its name.

    The notes are larger than a small model, and name files of the user's machine.
    """
    del model.metadata_props[:]
    graph = model.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.ClearField("doc_string")
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        axes = value.type.tensor_type.shape.dim
        if axes and not axes[0].HasField("dim_value"):
            axes[0].dim_param = BATCH


def serialized(model: Any) -> bytes:
    """The model's bytes, the same for the same model.

    Raises:
        ExportError: it has more than the 2 GiB that a protobuf message can hold.
    """
    try:
        return bytes(model.SerializeToString(deterministic=True))
    except Exception as error:  # each implementation of protobuf has its own
        raise ExportError(f"the model is too large for one ONNX file: {error}") from error


class OnnxAnswers:
    """Answers rows by an ONNX model: with ONNX Runtime, or slowly without it."""

    def __init__(self, model: bytes) -> None:
        # Without this ONNX Runtime sends events to Microsoft, and keeps an identifier in ~/.cache.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            import onnxruntime
        except ImportError:
            from onnx.reference import ReferenceEvaluator

            self._session: Any = ReferenceEvaluator(model)
            self._outputs = list(self._session.output_names)
            return
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )
        self._outputs = [output.name for output in self._session.get_outputs()]

    def __call__(self, rows: Arrays) -> Arrays:
        answers = self._session.run(None, {name: np.asarray(rows[name]) for name in rows})
        return dict(zip(self._outputs, answers, strict=True))
