"""A scikit-learn classifier as ONNX: float32 rows in, one score for each class out.

scikit-learn computes in float64 and a server in float32. That moves probabilities by very little,
but behind a scaler it may carry a row across a tree's threshold. So a few rows may be answered
differently, and the result says how many were. ``HistGradientBoostingClassifier`` has thresholds
that are numbers of the rows themselves: scikit-learn itself answers such a row in float64 otherwise
than the same row rounded to float32, and the ONNX is right where it does either.
"""

import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controlplane.client.exporting.agreement import close
from controlplane.client.exporting.exported import Exported, ExportError, check_names
from controlplane.client.exporting.onnx_file import BATCH, OnnxAnswers, cleaned, serialized
from variants.checks.class_names import write_class_names
from variants.checks.onnx_check import OnnxInfo, check_model
from variants.errors import InvalidArtifact
from variants.figures import counted

OPSETS = {"": 20, "ai.onnx.ml": 3}
INPUT = "features"
OUTPUT = "scores"
CHECKED_ROWS = 1_000
DIFFERENT = 0.01
"""Share of the compared rows that may be answered differently."""

Rows = NDArray[Any]
OUTLIERS = np.array([-1, 1])
"""What outlier detectors call their classes: a row is none where its decision is above 0."""


def export_classifier(
    model: Any,
    example_inputs: Any,
    target: Path,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> Exported:
    """Write a fitted classifier, or a pipeline that ends in one, to ``target``.

    Raises:
        ExportError: it is none, is not fitted, has no ONNX form, or answers otherwise in float32.
        OSError: ``target`` cannot be written.
    """
    names = check_names(input_names or (INPUT,), count=1, what="input")
    names += check_names(output_names or (OUTPUT,), count=1, what="output")
    rows = rows_of(example_inputs)
    with silenced():
        classes, predicted, wanted = _answers(model, rows)
        told = [(predicted, wanted)]
        if (exact := exact_rows(example_inputs, rows)) is not None:
            told.append(_answers(model, exact)[1:])
        onnx = _as_onnx(model, names, rows, classes)
    check_categories(model)
    different, difference = compare(onnx, names, rows, classes, *told, exact=exact)
    info = write_checked(onnx, target, "the classifier's ONNX")
    return Exported(
        path=target,
        inputs=info.inputs,
        outputs=info.outputs,
        labels=tuple(str(one) for one in classes),
        rows=len(rows),
        different_rows=different,
        difference=difference,
    )


def is_outlier_detector(model: Any) -> bool:
    """Whether it is one, or a pipeline that ends in one. scikit-learn is there where it is."""
    return bool(sys.modules["sklearn.base"].is_outlier_detector(model))


def gives_one_class(model: Any, example_inputs: Any) -> bool:
    """Whether it is a classifier or an outlier detector, and no classifier that gives several
    labels to a row.

    Raises:
        ExportError: the examples are no rows.
    """
    if not sys.modules["sklearn.base"].is_classifier(model):
        return is_outlier_detector(model)
    rows = rows_of(example_inputs)
    with silenced(), suppress(Exception):  # it is told of where all rows are answered
        return bool(np.ndim(model.predict(rows[:1])) == 1)
    return True


@contextmanager
def silenced() -> Iterator[None]:
    """Without the warnings of converters, and of models that were trained on named columns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def write_checked(onnx: bytes, target: Path, what: str) -> OnnxInfo:
    """Write a model that would be registered; ``what`` begins the sentence where it would not.

    Raises:
        ExportError: it would be refused.
        OSError: ``target`` cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
        file = Path(folder) / target.name
        file.write_bytes(onnx)
        try:
            info = check_model(file)
        except InvalidArtifact as error:
            raise ExportError(f"{what} would be refused: {error.message}") from error
        file.replace(target)
    return info


def rows_of(given: Any) -> Rows:
    """Example rows ``(rows, features)`` as float32, at most ``CHECKED_ROWS`` of them.

    Raises:
        ExportError: they are none, or none that can be asked.
    """
    try:
        with np.errstate(over="ignore"):
            rows = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ExportError(
            f"example_inputs are not numbers, which is all that a served model takes: {error}; give"
            " the place of each text in a list instead, as an OrdinalEncoder outside of the model"
            " does, and fit the model to such rows"
        ) from error
    if rows.ndim != 2 or not rows.size:
        raise ExportError(
            f"example_inputs have shape {rows.shape}; give (rows, features) with one row or more"
        )
    rows = rows[:CHECKED_ROWS]
    if not (finite := np.isfinite(rows)).all():
        row, feature = np.argwhere(~finite)[0]
        raise ExportError(
            f"example_inputs have {rows[row, feature]} in row {row}, feature {feature}, and queries"
            " take finite numbers alone: fit the model to rows in which another number stands for"
            " what is missing, such as -1.0, which SimpleImputer(missing_values=-1.0) fills in"
        )
    return rows


def exact_rows(given: Any, rows: Rows) -> Rows | None:
    """The same rows in float64; None where float32 holds them exactly."""
    exact = np.asarray(given, dtype=np.float64)[: len(rows)]
    return None if np.array_equal(exact, rows) else exact


def check_rounding(rows: Rows, exact: Rows | None, others: int) -> None:
    """
    Args:
        exact: the rows before they were rounded, where that has changed them.
        others: how many of them are answered as the model answers the rounded row and not the row
            itself.

    Raises:
        ExportError: too many are: what tells rows apart is lost where they are asked in float32.
    """
    if exact is None or others <= DIFFERENT * len(rows):
        return
    lost = np.abs(exact - rows).max(axis=0)
    column = int(np.argmax(lost / np.maximum(np.ptp(exact, axis=0), np.finfo(np.float64).tiny)))
    raise ExportError(
        f"{others} of {len(rows)} example rows are answered otherwise once they are rounded to"
        f" float32, in which rows are asked: it moves feature {column}, which is such as"
        f" {exact[0, column]:.10g}, by up to {lost[column]:.2g}; fit the model to rows without what"
        " all have in common, such as to times since some day, and ask with such rows"
    )


def check_categories(model: Any) -> None:
    """
    Raises:
        ExportError: its trees, or those of a pipeline's last step, have categories, which its ONNX
            would compare as numbers.
    """
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    given = getattr(last, "is_categorical_", None)
    if given is not None and np.any(given):
        raise ExportError(
            f"the categorical_features of {type(last).__name__} have no ONNX form; a OneHotEncoder"
            " before it in a pipeline has"
        )


def _answers(model: Any, rows: Rows) -> tuple[Rows, Rows, Rows | None]:
    """Classes ``(classes,)``, the predicted class of each row ``(rows,)``, and probabilities
    ``(rows, classes)`` where there are some."""
    name = type(model).__name__
    try:
        predicted = model.predict(rows)
        classes = OUTLIERS if is_outlier_detector(model) else model.classes_
        wanted = model.predict_proba(rows) if hasattr(model, "predict_proba") else None
    except Exception as error:  # each step of a pipeline has its own
        raise ExportError(f"{name} does not answer the example inputs: {error}") from error
    if predicted.ndim != 1 or not isinstance(classes, np.ndarray):
        raise ExportError(f"{name} predicts several classes for each row; one is needed")
    if len(classes) < 2:
        raise ExportError(f"{name} knows one class only")
    if wanted is not None:
        unlike = int((classes[wanted.argmax(axis=1)] != predicted).sum())
        if unlike > DIFFERENT * len(rows):
            raise ExportError(
                f"{name} does not predict its most probable class for {unlike} of {len(rows)} "
                "example rows; leave its own probabilities out, or use CalibratedClassifierCV"
            )
    return classes, predicted, wanted


def converted(model: Any, name: str, rows: Rows, options: Any = None) -> Any:
    """The ``ModelProto`` that skl2onnx makes of a model, with one input ``name``.

    Raises:
        ExportError: it makes none.
    """
    try:
        from skl2onnx import to_onnx
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError as error:
        raise ExportError(
            "exporting scikit-learn models needs skl2onnx: "
            "`pip install 'modelless[sklearn-export]'`"
        ) from error
    types = [(name, FloatTensorType([None, rows.shape[1]]))]
    try:
        try:
            return to_onnx(model, initial_types=types, target_opset=OPSETS, options=options)
        except NameError:  # some classifiers never pack their scores, and do not take the option
            return to_onnx(model, initial_types=types, target_opset=OPSETS)
    except Exception as error:  # converters raise whatever they meet
        raise no_onnx(model, error) from error


def no_onnx(model: Any, error: Exception) -> ExportError:
    """That a model has no ONNX form, with the first line of why."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ExportError(f"{type(model).__name__} has no ONNX form: {reason}")


def _as_onnx(model: Any, names: Sequence[str], rows: Rows, classes: Rows) -> bytes:
    """ONNX with ``names`` as its one input and its one output. Classes are named in it, unless they
    are numbers from 0 on, which are their places anyway."""
    made = converted(model, names[0], rows, {id(model): {"zipmap": False}})
    try:
        scores = OnnxAnswers(serialized(made))({names[0]: rows})
    except ExportError:
        raise
    except Exception as error:  # each runtime has its own
        raise no_onnx(model, error) from error
    found = made.graph.output[1].name
    given = scores[found].reshape(len(rows), -1)
    if found == names[1]:  # some converters call them so
        found = f"{found}/made"
        _rename(made, names[1], found)
    swapped = _is_swapped(model, rows, given)
    _keep_scores(made, found, names[1], given.shape[1], len(classes), swapped)
    named = [str(one) for one in classes]
    if classes.dtype.kind in "biuUO" and named != [str(place) for place in range(len(named))]:
        write_class_names(made, named)
    return serialized(made)


def _rename(model: Any, before: str, after: str) -> None:
    """Call a tensor of the main graph otherwise."""
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [after if name == before else name for name in names]


def _is_swapped(model: Any, rows: Rows, scores: Rows) -> bool:
    """Whether two columns of decision scores stand in the wrong order, as those of ``SVC`` do:
    a decision is the margin of the second class.
    """
    if hasattr(model, "predict_proba") or scores.shape[1] != 2:
        return False
    margin = model.decision_function(rows)
    first, second = (float(np.abs(scores[:, column] - margin).max()) for column in (0, 1))
    return first < second


def _keep_scores(
    model: Any, found: str, name: str, columns: int, classes: int, swapped: bool
) -> None:
    """Make the scores the only output, ``name``, and drop what they do not need.

    One column for two classes is the margin m of the second class: the scores are -m and m.
    """
    from onnx import TensorProto, helper

    last = []
    if (columns, classes) == (1, 2):
        last.append(helper.make_node("Constant", [], ["scores/shape"], value_ints=[-1, 1]))
        last.append(helper.make_node("Reshape", [found, "scores/shape"], ["scores/margin"]))
        last.append(helper.make_node("Neg", ["scores/margin"], ["scores/negated"]))
        both = ["scores/negated", "scores/margin"]
        last.append(helper.make_node("Concat", both, [name], axis=1))
    elif swapped:
        last.append(helper.make_node("Constant", [], ["scores/order"], value_ints=[1, 0]))
        last.append(helper.make_node("Gather", [found, "scores/order"], [name], axis=1))
    else:
        last.append(helper.make_node("Identity", [found], [name]))
    output = helper.make_tensor_value_info(name, TensorProto.FLOAT, [BATCH, classes])
    keep_only(model, found, last, output)


def keep_only(model: Any, found: str, last: Sequence[Any], output: Any) -> None:
    """Make ``output`` the only one, which the nodes ``last`` make of the tensor ``found``, and drop
    what it does not need."""
    from onnx import helper

    graph = model.graph
    needed, kept = {found}, []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(_read_by(node))
    kept.reverse()
    held = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.node[:], graph.initializer[:], graph.output[:]
    graph.node.extend([*kept, *last])
    graph.initializer.extend(held)
    graph.output.append(output)
    opsets = OPSETS | {entry.domain: entry.version for entry in model.opset_import}
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(*entry) for entry in sorted(opsets.items()))
    cleaned(model)


def _read_by(node: Any) -> Iterator[str]:
    """Names that a node reads, those within its graphs among them."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _read_by(inner)


def compare(
    onnx: bytes,
    names: Sequence[str],
    rows: Rows,
    classes: Rows,
    *told: tuple[Rows, Rows | None],
    exact: Rows | None = None,
) -> tuple[int, float]:
    """How many rows are answered differently, and by how much the scores of all others differ.

    Args:
        told: the class ``(rows,)`` and the probabilities ``(rows, classes)`` or None that the model
            gives, once for the rows as they are and once as they were before they were rounded; it
            is enough if a row is answered as in one of them.
        exact: the rows before they were rounded, where that has changed them.

    Raises:
        ExportError: too many are answered differently, or are for having been rounded.
    """
    scores = OnnxAnswers(onnx)({names[0]: rows})[names[1]]
    if scores.shape != (len(rows), len(classes)):
        raise ExportError(
            f"the ONNX gives {scores.shape} for {counted(len(rows), 'row')} and {len(classes)} "
            "classes"
        )
    same, apart = np.zeros(len(rows), bool), np.zeros(len(rows))
    for predicted, wanted in told:
        place = np.searchsorted(classes, predicted)
        so = close(scores[np.arange(len(rows)), place], scores.max(axis=1))
        if wanted is not None:
            so &= close(scores, wanted).all(axis=1)
            by = np.abs(scores - wanted).max(axis=1)
            apart = np.where(same, apart, by)
        same |= so
    check_rounding(rows, exact, int((same & ~so).sum()))
    different = int((~same).sum())
    if different > DIFFERENT * len(rows):
        raise ExportError(
            f"in float32, {different} of {len(rows)} example rows are answered differently; "
            "scale the features, or choose another classifier"
        )
    return different, float(apart[same].max(initial=0.0))
