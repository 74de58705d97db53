"""Suspicions: why a model may be as bad as it seems, and would not be if it were used rightly.

Who brings a model that is right in nine of ten rows elsewhere, and in three of ten here, has mostly
handed in rows that were prepared otherwise than those of its training, or labels in another order.
Both can be tried: what makes a model right far more often, on rows that it was not chosen by, is no
chance. Where nothing does, nothing is said but that all rows get the same answer.

- *labels in another order*: the renaming of classes that is best on half of the rows, judged by the
  other half;
- *inputs prepared otherwise*: the usual steps that are forgotten, or done twice, each on the same
  rows. Of the rows whose answer a step changes, as many would become right as wrong if it did
  nothing (McNemar, "Note on the sampling error of the difference between correlated proportions or
  percentages", Psychometrika 12, 1947);
- *targets on another scale*: the straight line that is best on half of the rows, judged by the
  other half.

Only a model that is right in less than ``GOOD`` of its rows is looked at.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from math import lgamma, log
from typing import NamedTuple

import numpy as np

from variants.figures import accuracies, accuracy_text
from variants.metrics.metric import Metric, MetricKind
from variants.metrics.scoring import flat, r2
from workers.runtimes.protocol import Tensor

GOOD = 0.9
LEAST_ROWS = 40
"""With fewer nothing is tried."""
MOST_ROWS = 200
"""That a step is tried on, evenly spread."""
MOST_S = 10.0
"""That all steps may take; of a slow model they are tried on fewer rows."""
RENAMED, RENAMED_GAIN = 0.7, 0.3
"""So good has a renaming to be, and so much better than what is there."""
STEP_GAIN = 0.1
"""So much better has a step to be."""
BEYOND_ALWAYS = 0.1
"""And so much better than always the most frequent label, which a model may be worse than by chance
alone."""
ERROR = 1e-4
"""The chance that a step which does nothing seems to be one, all steps together."""
SAME_SHARE, SAME_BEYOND = 0.95, 0.3
"""So many rows get one answer, and so many more than have that label."""
LINE, LINE_GAIN = 0.8, 0.3
"""R² of a line, and by how much it has to be better than what is there."""
_IMAGENET = (np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225]))
"""Mean and standard deviation of its pixels in [0, 1], by which most models of pictures are trained
(torchvision's documentation of its weights)."""

Answer = Callable[[Sequence[Tensor]], Tensor]
"""The first output for some rows."""


class _Found(NamedTuple):
    share: float
    """Of the rows that would be right."""
    words: str


_NOTHING = _Found(0.0, "")


def suspicion(
    metric: Metric,
    outputs: Tensor,
    truth: Tensor,
    rows: Sequence[Tensor],
    answer: Answer,
    classes: Sequence[str] = (),
) -> str:
    """A clause on what would make the model better, or on what is odd; empty where nothing is.

    Args:
        outputs: first output ``(rows, *shape)``.
        truth: labels ``(rows,)`` or targets ``(rows, *shape)``.
        rows: inputs ``(rows, *shape)``, in the task's order.
        classes: their names.
    """
    if len(truth) < LEAST_ROWS:
        return ""
    if metric.kind in (MetricKind.R2, MetricKind.WITHIN):
        return _another_scale(outputs, truth)
    if not metric.classifies or outputs.ndim != 2:
        return ""
    answers = np.argmax(outputs, axis=1)
    if float((answers == truth).mean()) >= GOOD:
        return ""
    found = max(
        _prepared(answers, truth, rows, answer),
        _renamed(answers, truth, outputs.shape[1], classes),
        key=lambda one: one.share,
    )
    always = float(np.unique(truth, return_counts=True)[1].max() / len(truth))
    if found.share >= always + BEYOND_ALWAYS:
        return found.words
    if all(one.dtype.kind in "iu" and one.ndim == 2 for one in rows):
        return ""  # numbers of tokens, or of categories: they have no scale
    return _all_the_same(answers, truth, classes)


# -- labels ----------------------------------------------------------------------------------------


def _renamed(answers: Tensor, labels: Tensor, count: int, classes: Sequence[str]) -> _Found:
    from scipy.optimize import linear_sum_assignment

    order = np.random.default_rng(0).permutation(len(labels))
    half = len(order) // 2
    met = np.zeros((count, count))
    np.add.at(met, (answers[order[:half]], labels[order[:half]]), 1)
    means = np.arange(count)
    given, taken = linear_sum_assignment(met, maximize=True)
    means[given] = taken
    others = order[half:]
    now = float((answers[others] == labels[others]).mean())
    then = float((means[answers[others]] == labels[others]).mean())
    if then < RENAMED or then - now < RENAMED_GAIN:
        return _NOTHING
    was, would = accuracies(now, then)
    asked = np.unique(labels)
    back = np.argsort(means)  # what is answered, by label
    shift = {int(place) for place in (asked - back[asked])}
    if shift in ({1}, {-1}):
        how = "more" if shift == {1} else "less"
        return _Found(
            then,
            f"it would be right in {would} of the rows, not in {was}, if it answered one {how}: are"
            " classes counted from 0 in its scores and in the labels?",
        )
    moved = [int(label) for label in asked if back[label] != label]
    some = ", ".join(
        f"{_name(label, classes)} is answered {_name(int(back[label]), classes)}"
        for label in moved[:3]
    )
    more = ", ..." if len(moved) > 3 else ""
    return _Found(
        then,
        f"it would be right in {would} of the rows, not in {was}, if its classes had another order:"
        f" {some}{more}; are the names of --labels, or the numbers of `labels`, in the order of its"
        " scores?",
    )


def _name(number: int, classes: Sequence[str]) -> str:
    return repr(classes[number]) if number < len(classes) else str(number)


def _all_the_same(answers: Tensor, labels: Tensor, classes: Sequence[str]) -> str:
    found, counts = np.unique(answers, return_counts=True)
    most = int(found[counts.argmax()])
    share, labelled = float(counts.max() / len(answers)), float((labels == most).mean())
    if share < SAME_SHARE or share - labelled < SAME_BEYOND:
        return ""
    said, has = accuracies(share, labelled)
    return (
        f"it answers {_name(most, classes)} to {said} of the rows, of which {has} have that label:"
        " are rows prepared as those that it was trained with, in scale and in the order of"
        " features or channels?"
    )


# -- inputs ----------------------------------------------------------------------------------------


def _prepared(answers: Tensor, labels: Tensor, rows: Sequence[Tensor], answer: Answer) -> _Found:
    at = int(np.argmax([one[0].size for one in rows]))
    steps = list(_steps(rows[at]))
    if not steps:
        return _NOTHING
    chosen = np.unique(np.linspace(0, len(labels) - 1, MOST_ROWS).astype(np.intp))
    began_s = time.perf_counter()
    first = chosen[:LEAST_ROWS]
    answer([one[first] for one in rows])
    each_s = (time.perf_counter() - began_s) / len(first)
    count = min(len(chosen), int(MOST_S / max(1e-9, each_s * len(steps))))
    if count < LEAST_ROWS:
        return _NOTHING
    chosen = chosen[np.linspace(0, len(chosen) - 1, count).astype(np.intp)]
    before = answers[chosen] == labels[chosen]
    best, found = STEP_GAIN, _NOTHING
    for what, step in steps:
        changed = [
            step(one[chosen]) if place == at else one[chosen] for place, one in enumerate(rows)
        ]
        outputs = answer(changed)
        after = np.argmax(outputs, axis=1) == labels[chosen]
        gained, lost = int((after & ~before).sum()), int((before & ~after).sum())
        gain = (gained - lost) / count
        if gain > best and _chance(gained, gained + lost) < ERROR / len(steps):
            best = gain
            share = float(after.mean())
            was, would = accuracies(float(before.mean()), share)
            found = _Found(
                share,
                f"it would be right in {would} of {count} rows, not in {was}, {what}: do the rows"
                " go through the same steps as those that it was trained with?",
            )
    return found


def _steps(tensor: Tensor) -> Iterator[tuple[str, Callable[[Tensor], Tensor]]]:
    """What may have been forgotten, or done twice, of an input ``(rows, *shape)``: a clause, and
    what makes such rows of others."""
    shape, real = tensor.shape[1:], tensor.dtype.kind == "f"
    channels = next((at for at in (1, 3) if len(shape) == 3 and tensor.shape[at] == 3), None)
    is_picture = len(shape) == 3 and (channels is not None or 1 in shape[::2])
    scales: list[tuple[str, Callable[[Tensor], Tensor]]] = []
    if real:
        largest, least = float(np.abs(tensor).max(initial=0.0)), float(tensor.min(initial=0.0))
        kind = tensor.dtype
        if largest > 2.0:
            scales.append(("with inputs divided by 255", lambda x: (x / 255).astype(kind)))
        if largest <= 1.0:
            scales.append(("with inputs times 255", lambda x: (x * 255).astype(kind)))
        if channels is not None and least >= 0.0:
            whole = 255.0 if largest > 2.0 else 1.0
            mean, std = (_along(one, channels) for one in _IMAGENET)
            scales.append(
                (
                    "with pixels normalised by the mean and deviation of ImageNet"
                    + (", after division by 255" if whole > 1 else ""),
                    lambda x: ((x / whole - mean) / std).astype(kind),
                )
            )
        if least >= 0.0 and largest > 0.0:
            whole = 255.0 if largest > 2.0 else 1.0
            scales.append(("with inputs from -1 to 1", lambda x: (x / whole * 2 - 1).astype(kind)))
        mean_of, std_of = tensor.mean(axis=0), tensor.std(axis=0)
        std_of = np.where(std_of > 0, std_of, 1)
        if not is_picture:
            scales.append(
                (
                    "with each feature less its mean and divided by its deviation",
                    lambda x: ((x - mean_of) / std_of).astype(kind),
                )
            )
    yield from scales
    if channels is not None:

        def turned(x: Tensor) -> Tensor:
            return np.ascontiguousarray(np.flip(x, channels))

        yield "with the channels of pictures in the other order", turned
        for what, step in scales:
            yield f"{what}, and their channels in the other order", _one_after(step, turned)
    height = 2 if is_picture and shape[0] in (1, 3) else 1
    if is_picture and tensor.shape[height] == tensor.shape[height + 1]:
        yield (
            "with height and width of pictures exchanged",
            lambda x: np.ascontiguousarray(np.swapaxes(x, height, height + 1)),
        )


def _one_after(
    first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]
) -> Callable[[Tensor], Tensor]:
    return lambda rows: second(first(rows))


def _along(numbers: Tensor, axis: int) -> Tensor:
    """One number for each channel, ``(channels, 1, 1)`` or ``(1, 1, channels)``."""
    return numbers.reshape((3, 1, 1) if axis == 1 else (1, 1, 3))


def _chance(count: int, of: int) -> float:
    """How probable it is that a fair coin falls so at least so often."""
    logs = [
        lgamma(of + 1) - lgamma(k + 1) - lgamma(of - k + 1) - of * log(2)
        for k in range(count, of + 1)
    ]
    return min(1.0, float(np.exp(logs).sum()))


# -- targets ---------------------------------------------------------------------------------------


def _another_scale(outputs: Tensor, targets: Tensor) -> str:
    given, wanted = flat(outputs), flat(targets)
    if given.shape[1] != 1:
        return ""
    order = np.random.default_rng(0).permutation(len(given))
    fit, check = order[: len(order) // 2], order[len(order) // 2 :]
    x, y = given[fit, 0], wanted[fit, 0]
    if not x.std() or not y.std():
        return ""
    slope = float(np.cov(x, y, bias=True)[0, 1] / x.var())
    start = float(y.mean() - slope * x.mean())
    now = r2(given[check], wanted[check])
    then = r2(slope * given[check] + start, wanted[check])
    if then < LINE or then - max(now, 0.0) < LINE_GAIN:
        return ""
    return (
        f"{slope:.4g} times its answer {'+' if start >= 0 else '-'} {abs(start):.4g} would explain"
        f" {accuracy_text(then)} of what differs in the targets (R²), and the answer itself"
        f" {accuracy_text(max(0.0, now))}: are the targets on the scale that it was trained for?"
    )
