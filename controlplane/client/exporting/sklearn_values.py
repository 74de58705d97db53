"""A scikit-learn regressor or transformer as ONNX: float32 rows in, numbers for each row out.

Of a regressor they are its predictions, of a transformer what it makes of the row: a vector; of a
classifier that gives several labels to a row, the probability of each. As of
classifiers, a few rows may be answered differently in float32, and the result says how many were.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from controlplane.client.exporting.agreement import close
from controlplane.client.exporting.exported import Exported, ExportError, check_names
from controlplane.client.exporting.onnx_file import BATCH, OnnxAnswers, serialized
from controlplane.client.exporting.sklearn_onnx import (
    DIFFERENT,
    INPUT,
    Rows,
    check_categories,
    check_rounding,
    converted,
    exact_rows,
    keep_only,
    rows_of,
    silenced,
    write_checked,
)
from variants.figures import counted

OUTPUT = "values"


def export_values(
    model: Any,
    example_inputs: Any,
    target: Path,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Exported:
    """Write a fitted regressor or transformer, or a pipeline that ends in one, to ``target``.

    Raises:
        ExportError: it is none, is not fitted, has no ONNX form, or answers otherwise in float32.
        OSError: ``target`` cannot be written.
    """
    names = check_names(input_names or (INPUT,), count=1, what="input")
    names += check_names(output_names or (OUTPUT,), count=1, what="output")
    rows = rows_of(example_inputs)
    with silenced():
        wanted = _answers(model, rows)
        told = [wanted]
        if (exact := exact_rows(example_inputs, rows)) is not None:
            told.append(_answers(model, exact))
        onnx = _as_onnx(model, names, rows, wanted)
    check_categories(model)
    different, difference = compare(onnx, names, rows, *told, exact=exact)
    info = write_checked(onnx, target, "the ONNX of this model")
    return Exported(
        path=target,
        inputs=info.inputs,
        outputs=info.outputs,
        rows=len(rows),
        different_rows=different,
        difference=difference,
    )


def _answers(model: Any, rows: Rows) -> Rows:
    """What the model gives for each row: ``(rows, numbers)``."""
    name = type(model).__name__
    regresses, classifies = _regresses(model), _classifies(model)
    if classifies and not hasattr(model, "predict_proba"):
        raise ExportError(f"{name} gives several labels to a row, and no probabilities of them")
    if hasattr(model, "cluster_centers_"):
        raise ExportError(
            f"{name} is no classifier; one that gives the same clusters is"
            " KNeighborsClassifier(1).fit(model.cluster_centers_, range(n_clusters))"
        )
    others = hasattr(model, "predict") or not hasattr(model, "transform")
    if not regresses and not classifies and others:
        raise ExportError(f"{name} is no classifier, no regressor and no transformer")
    try:
        if classifies:
            found = model.predict_proba(rows)
            if isinstance(found, list):  # the probabilities of each label, without and with it
                found = np.stack([each[:, -1] for each in found], axis=1)
        else:
            found = model.predict(rows) if regresses else model.transform(rows)
    except Exception as error:  # each step of a pipeline has its own
        raise ExportError(f"{name} does not answer the example inputs: {error}") from error
    if hasattr(found, "toarray"):  # a sparse matrix
        found = found.toarray()
    found = np.asarray(found)
    if found.dtype.kind not in "iuf" or found.ndim > 2 or len(found) != len(rows):
        raise ExportError(
            f"{name} gives {found.dtype} {found.shape} for {counted(len(rows), 'row')}; it has to "
            "give numbers for each row"
        )
    found = found.reshape(len(rows), -1)
    if not np.isfinite(found).all():
        raise ExportError(f"{name} gives numbers that are not finite for the example inputs")
    return found


def _regresses(model: Any) -> bool:
    return bool(sys.modules["sklearn.base"].is_regressor(model))


def _classifies(model: Any) -> bool:
    return bool(sys.modules["sklearn.base"].is_classifier(model))


def _as_onnx(model: Any, names: Sequence[str], rows: Rows, wanted: Rows) -> bytes:
    """ONNX with ``names`` as its one input and its one output."""
    from onnx import TensorProto, helper

    options = {id(model): {"zipmap": False}} if _classifies(model) else None
    made = converted(model, names[0], rows, options)
    try:
        found = _output_of(made, names[0], rows, wanted)
    except ExportError as error:
        if not _classifies(model):
            raise
        raise ExportError(
            f"{type(model).__name__} of several labels has no ONNX form; OneVsRestClassifier, which"
            " fits a classifier for each label, has"
        ) from error
    # Some converters leave the axis of the numbers out, or give float64.
    last = [
        helper.make_node("Cast", [found], ["values/float"], to=TensorProto.FLOAT),
        helper.make_node("Constant", [], ["values/shape"], value_ints=[-1, wanted.shape[1]]),
        helper.make_node("Reshape", ["values/float", "values/shape"], [names[1]]),
    ]
    output = helper.make_tensor_value_info(names[1], TensorProto.FLOAT, [BATCH, wanted.shape[1]])
    keep_only(made, found, last, output)
    return serialized(made)


def _output_of(made: Any, name: str, rows: Rows, wanted: Rows) -> str:
    """Name of the first output that has as many numbers as the model gives."""
    for output, values in OnnxAnswers(serialized(made))({name: rows}).items():
        if np.size(values) == wanted.size and np.asarray(values).dtype.kind == "f":
            return output
    raise ExportError("its ONNX form has no output of the numbers that the model gives")


def compare(
    onnx: bytes, names: Sequence[str], rows: Rows, *told: Rows, exact: Rows | None = None
) -> tuple[int, float]:
    """How many rows are answered differently, and by how much the numbers of all others differ.

    Args:
        told: what the model gives, for the rows as they are and as they were before they were
            rounded; it is enough if a row is answered as in one of them.
        exact: the rows before they were rounded, where that has changed them.

    Raises:
        ExportError: too many are answered differently, or are for having been rounded.
    """
    values = OnnxAnswers(onnx)({names[0]: rows})[names[1]]
    same, apart = np.zeros(len(rows), bool), np.zeros(len(rows))
    for wanted in told:
        if values.shape != wanted.shape:
            raise ExportError(f"the ONNX gives {values.shape}, and the model {wanted.shape}")
        apart = np.where(same, apart, np.abs(values - wanted).max(axis=1))
        so = close(values, wanted).all(axis=1)
        same |= so
    check_rounding(rows, exact, int((same & ~so).sum()))
    different = int((~same).sum())
    if different > DIFFERENT * len(rows):
        raise ExportError(
            f"in float32, {different} of {len(rows)} example rows are answered differently, by up"
            f" to {apart.max():.3g}; scale the features, or choose another model"
        )
    return different, float(apart[same].max(initial=0.0))
