"""Labelled rows of ``.npz`` files, and splitting them.

A file holds one array per input of the task, its first axis counting rows, and what is right: an
array ``labels`` of whole numbers or of names of classes, or an array ``targets`` like the task's
first output. Which one it is, the task's metric says. Where positions are judged one by one, there
is a label or a target for each (``position_truth``). ``npz_arrays`` reads the files.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profiler.evaluation.npz_arrays import MAX_MIB, read_arrays
from profiler.evaluation.position_truth import (
    ByPosition,
    position_labels,
    position_targets,
    within_rows,
)
from profiler.evaluation.right_classes import right_classes
from variants.buckets import bucket_of, judged_axis
from variants.errors import InvalidArtifact
from variants.figures import counted
from variants.metrics.metric import LABELS, TARGETS, Metric, MetricKind, parse_metric
from variants.metrics.positions import Flags, positions_first
from variants.types import Task, TensorSpec

CALIBRATION_ROWS = 200
CALIBRATION_SHARE = 0.2
"""Share of the evaluation rows that calibrates when there is no file for that; at most
``CALIBRATION_ROWS`` rows."""

NAMES = (
    "arrays are called like the model's inputs; numpy.savez takes any name as **{'a.b:0': rows},"
    " and modelless.export calls inputs otherwise by input_names"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRows:
    """Input arrays by name, each ``(rows, *shape)`` of the task's type, and labels ``(rows,)`` or
    targets ``(rows, *shape)`` of the first output's type; of a task that is judged position by
    position labels ``(rows, positions)``, as ``variants.metrics.positions`` has both."""

    inputs: dict[str, NDArray[Any]]
    labels: NDArray[np.int64] | None = None
    targets: NDArray[Any] | None = None

    @property
    def truth(self) -> NDArray[Any] | None:
        """What is right: the labels, or the targets."""
        return self.targets if self.labels is None else self.labels

    @property
    def digest(self) -> str:
        """SHA-256 of all arrays with their names, types and shapes."""
        digest = hashlib.sha256()
        arrays = {f"input {name}": array for name, array in self.inputs.items()}
        for name, array in ((LABELS, self.labels), (TARGETS, self.targets)):
            if array is not None:
                arrays[name] = array
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def take(self, chosen: NDArray[np.int64]) -> "LabelledRows":
        """Only the rows at the indices ``chosen`` ``(n,)``, in that order."""
        return LabelledRows(
            inputs={name: array[chosen] for name, array in self.inputs.items()},
            labels=None if self.labels is None else self.labels[chosen],
            targets=None if self.targets is None else self.targets[chosen],
        )

    def without(self, others: "LabelledRows") -> "LabelledRows":
        """Those whose inputs are not the same as those of any of the others."""
        seen = set(others._contents())
        kept = [index for index, one in enumerate(self._contents()) if one not in seen]
        return self.take(np.array(kept, dtype=np.int64))

    def _contents(self) -> Iterator[bytes]:
        """A digest of the inputs of each row."""
        arrays = [np.ascontiguousarray(self.inputs[name]) for name in sorted(self.inputs)]
        for index in range(len(self)):
            digest = hashlib.blake2b(digest_size=16)
            for array in arrays:
                digest.update(array[index].tobytes())
            yield digest.digest()

    def sample(self, most: int) -> "LabelledRows":
        """At most so many of them, drawn at random: the same ones of the same rows."""
        if len(self) <= most:
            return self
        drawn = np.random.default_rng(0).permutation(len(self))[:most]
        return self.take(np.sort(drawn))

    def save(self, path: Path) -> None:
        """Write them as this module reads them."""
        arrays: dict[str, Any] = dict(self.inputs)
        if self.labels is not None:
            arrays[LABELS] = self.labels
        if self.targets is not None:
            arrays[TARGETS] = self.targets
        np.savez(path, **arrays)


def read_task_rows(path: Path, task: Task, *, unlabelled: bool = False) -> LabelledRows:
    """Rows of a task, with what its metric judges by. ``unlabelled`` rows may come without.

    Raises:
        InvalidArtifact: one sentence with the first thing that is wrong; it names the file.
    """
    metric, output = parse_metric(task.metric), task.outputs[0]
    by, first = None, judged_axis(task)
    if first is not None:
        by = ByPosition(axes=bucket_of(task).axes, first=first, length=output.shape[first.axis])
    if metric.classifies:
        classes, names = output.shape[-1], task.labels
        return read_rows(
            path, task.inputs, classes=classes, names=names, by=by, unlabelled=unlabelled
        )
    return read_rows(path, task.inputs, judged=(metric, output), by=by, unlabelled=unlabelled)


def read_rows(
    path: Path,
    inputs: tuple[TensorSpec, ...],
    *,
    classes: int | None = None,
    names: Sequence[str] = (),
    judged: tuple[Metric, TensorSpec] | None = None,
    by: ByPosition | None = None,
    unlabelled: bool = False,
    max_mib: float = MAX_MIB,
) -> LabelledRows:
    """Rows ``(rows, *shape)`` for each input of a task; with ``classes``, labels ``(rows,)`` in
    ``[0, classes)`` are required too; with a metric that judges no classes and the first output,
    ``judged``, the labels or targets of that metric.

    ``unlabelled`` rows may come with labels or targets or without. Where positions are judged one
    by one, ``by`` says how, and labels are ``(rows, positions)``.

    Floats are cast to the task's precision and integers to floats, and labels may be ``names`` of
    the classes; nothing else is converted.

    Raises:
        InvalidArtifact: one sentence with the first thing that is wrong; it names the file.
    """
    truth = LABELS if judged is None else judged[0].truth
    becomes = {spec.name: np.dtype(spec.dtype) for spec in inputs}
    becomes[truth] = np.dtype(judged[1].dtype if judged and truth == TARGETS else np.int64)
    arrays = read_arrays(path, max_mib, becomes)
    if any(spec.name == truth for spec in inputs):
        raise InvalidArtifact(f"{path.name}: an input is called {truth!r}, where the {truth} go")
    right = classes is not None or judged is not None
    if unlabelled and truth not in arrays:
        right = False
    needed = [spec.name for spec in inputs] + ([truth] if right else [])
    missing = [name for name in needed if name not in arrays]
    if missing:
        has = ", ".join(sorted(arrays)) or "nothing"
        hint = "" if missing[0] == truth else f": {NAMES}"
        if judged is not None and missing[0] == truth == TARGETS:
            hint = f", and the metric {judged[0]} judges by the right first output of each row"
        raise InvalidArtifact(f"{path.name} lacks the array {missing[0]!r}; it has {has}{hint}")
    rows = {spec.name: _input(path, arrays[spec.name], spec) for spec in inputs}
    counts = {name: len(array) for name, array in rows.items()}
    if right and arrays[truth].ndim:
        counts[truth] = len(arrays[truth])
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise InvalidArtifact(f"{path.name}: its arrays differ in their number of rows: {told}")
    if not next(iter(counts.values())):
        raise InvalidArtifact(f"{path.name} has no rows")
    inside = within_rows(rows, by) if by is not None else None
    labels = targets = None
    where = f"{path.name}: array {truth!r}"
    if right and judged is not None and truth == TARGETS:
        targets = _targets(path, arrays[TARGETS], *judged, by, inside)
    elif right and inside is not None:
        labels = position_labels(where, arrays[LABELS], classes, names, inside)
    elif right:
        labels = right_classes(where, arrays[LABELS], classes, names)
    return LabelledRows(inputs=rows, labels=labels, targets=targets)


def check_rows(path: Path, *, truth: str = LABELS, unlabelled: bool = False) -> None:
    """Refuse a file that holds the rows of no task: what can be said before the task is known but
    for its metric, which judges by the array ``truth``.

    Raises:
        InvalidArtifact: one sentence with the first thing that is wrong; it names the file.
    """
    names = read_arrays(path).keys()
    has = ", ".join(sorted(names)) or "nothing"
    if not unlabelled and truth not in names:
        raise InvalidArtifact(f"{path.name} lacks the array {truth!r}; it has {has}")
    if not names - {truth}:
        raise InvalidArtifact(f"{path.name} lacks an array of inputs; it has {has}")


def split_for_calibration(rows: LabelledRows, path: Path) -> tuple[LabelledRows, LabelledRows]:
    """Calibration rows and evaluation rows, disjoint; the same split for the same file.

    Data sets repeat rows: copies of evaluation rows do not calibrate. Where more than half of the
    calibration rows are such, they do: then rows are few different ones, which queries are as well.

    Raises:
        InvalidArtifact: there are too few to split.
    """
    if len(rows) < 10:
        raise InvalidArtifact(
            f"{path.name} has {counted(len(rows), 'row')}; without a calibration file at least 10 "
            "are needed"
        )
    order = np.random.default_rng(0).permutation(len(rows))
    count = min(CALIBRATION_ROWS, int(len(rows) * CALIBRATION_SHARE))
    drawn, rest = rows.take(np.sort(order[:count])), rows.take(np.sort(order[count:]))
    own = drawn.without(rest)
    return (own if 2 * len(own) >= len(drawn) else drawn), rest


def _input(path: Path, array: NDArray[Any], spec: TensorSpec) -> NDArray[Any]:
    """The array ``(rows, *spec.shape)`` in the input's type, finite and contiguous."""
    where = f"{path.name}: array {spec.name!r}"
    if array.ndim == 0 or array.shape[1:] != spec.shape:
        raise InvalidArtifact(f"{where} has shape {array.shape}, not {_wanted(spec)}")
    return _cast(where, array, np.dtype(spec.dtype))


def _wanted(spec: TensorSpec) -> str:
    return f"({', '.join(['rows', *map(str, spec.shape)])})"


def _cast(
    where: str, array: NDArray[Any], wanted: np.dtype[Any], *, finite: bool = True
) -> NDArray[Any]:
    """The same numbers in another type, contiguous, and finite unless that is looked at later."""
    widened = array.dtype.kind in "iu" and wanted.kind == "f"
    rounded = array.dtype.kind == "f" and wanted.kind == "f"
    if array.dtype != wanted and not widened and not rounded:
        fit = "fit into it" if array.dtype.kind in "iu" else "are such numbers"
        raise InvalidArtifact(
            f"{where} has type {array.dtype}, and the model takes {wanted}: write it with"
            f" .astype({str(wanted)!r}), if all its values {fit}"
        )
    with np.errstate(over="ignore"):
        cast = np.ascontiguousarray(array, dtype=wanted)
    if finite and wanted.kind == "f" and not np.isfinite(cast).all():
        row = int(np.argmin(np.isfinite(cast).reshape(len(cast), -1).all(1)))
        raise InvalidArtifact(f"{where} is not finite in row {row}, which no query can be")
    return cast


def _targets(
    path: Path,
    array: NDArray[Any],
    metric: Metric,
    output: TensorSpec,
    by: ByPosition | None,
    inside: Flags | None,
) -> NDArray[Any]:
    """The array ``(rows, *output.shape)`` in the first output's type, finite but for NaN at
    positions that are not judged, where these are judged one by one.

    Of one number a row it may be ``(rows,)`` or ``(rows, 1)``, whatever the output is.
    """
    where = f"{path.name}: array {TARGETS!r}"
    one = math.prod(output.shape) == 1 and array.ndim > 0 and array.size == len(array)
    if array.ndim == 0 or (array.shape[1:] != output.shape and not one):
        raise InvalidArtifact(
            f"{where} has shape {array.shape}, not {_wanted(output)}, that of output"
            f" {output.name!r}"
        )
    wanted, shaped = np.dtype(output.dtype), array.reshape(len(array), *output.shape)
    if by is not None and inside is not None:
        cast = position_targets(where, _cast(where, shaped, wanted, finite=False), by, inside)
        vectors, places = positions_first(cast, by.along), "row {}, position {}"
    else:
        cast = _cast(where, shaped, wanted)
        vectors, places = cast.reshape(len(cast), -1), "row {}"
    if metric.kind is MetricKind.COSINE:
        zero = np.argwhere(~vectors.any(axis=-1))
        if len(zero):
            raise InvalidArtifact(
                f"{where} is all zeros in {places.format(*zero[0])}: such a vector has no"
                " direction, and the metric cosine compares directions"
            )
    return cast
