"""The task that a model joins, and whether its first output is what the task's metric judges."""

from collections.abc import Mapping, Sequence
from math import prod

from controlplane.building.types import RegistrationRequest
from variants.buckets import points
from variants.catalog.validity.tasks import MOST_LABELS, check_given, check_labels
from variants.checks.onnx_check import OnnxInfo, check_signature
from variants.checks.onnx_signature import describe
from variants.errors import Conflict, InvalidArtifact, InvalidInput
from variants.figures import counted, some_of
from variants.images import check_image
from variants.metrics.metric import TOP1, Metric, check_output, parse_metric
from variants.texts.inputs import check_text
from variants.types import ImageScale, Slo, Task, TaskName, TensorSpec

OTHER_METRICS = "--metric within:T, r2, cosine or nearest judges other models"
ONE_PROBABILITY = "of one probability a row, within:0.499 with 0 and 1 as targets"
POSITIONS = (
    "where it has scores for each position of a row, leave that axis open and give --lengths"
)


def joined_task(
    request: RegistrationRequest, info: OnnxInfo, known: Task | None, *, where: str
) -> Task:
    """The known task, or a new one with the model's own signature.

    Args:
        info: what the model says of itself.
        where: what the model is called in sentences.

    Raises:
        InvalidArtifact: the model has another signature, or its first output does not suit the
            metric.
        InvalidInput: an option of the request does not fit the model.
        Conflict: the task has other labels, or in another order, another metric or other defaults,
            of images too.
    """
    metric = None if request.metric is None else parse_metric(request.metric)
    if known is None:
        new = _new_task(request, info, metric or TOP1, where)
        _check_rows(info, new, where)
        return new
    check_signature(info, known, where=where)
    _check_rows(info, known, where)
    for what, given, has in (
        ("labels", request.labels, known.labels),
        ("metric", None if metric is None else str(metric), known.metric),
        ("defaults", request.slo, known.slo),
        ("image", request.image, known.image),
        ("length", request.bucket, known.bucket),
        ("text", request.text, known.text),
    ):
        if given is not None and given != has:
            raise Conflict(f"task {known.name!r} exists with {_other(what, known, request)}")
    if is_reordered(info.classes, known.labels):
        raise Conflict(
            f"{where}: its scores are of {some_of(info.classes, MOST_LABELS)}, in this order,"
            f" and those of task {known.name!r} of {some_of(known.labels, MOST_LABELS)}; train"
            " it with the classes in that order, or register it for another task"
        )
    return known


def _check_rows(info: OnnxInfo, task: Task, where: str) -> None:
    """
    Raises:
        InvalidArtifact: an output of the task has not one answer for each row.
    """
    uneven = [spec.name for spec in task.outputs if spec.name in info.uneven]
    if uneven:
        raise InvalidArtifact(
            f"{where}: output {uneven[0]!r} has another number of rows than come in, as the boxes"
            " that a detector has found, and an answer has one for each; --keep-outputs names the"
            " outputs that stay, or export the model without its last step, such as the suppression"
            " of boxes, and do that where the query is asked"
        )


def _new_task(request: RegistrationRequest, info: OnnxInfo, metric: Metric, where: str) -> Task:
    """A task with the model's own signature, and its classes where no labels are given."""
    along = {} if request.bucket is None else {o.output: o.axis for o in request.bucket.outputs}
    outputs = _outputs(metric, info, along, where)
    labels = request.labels
    if labels is None and metric.classifies:
        labels = info.classes
    if is_reordered(info.classes, labels or ()):
        raise InvalidInput(
            f"{where} has its classes in another order than the labels that were given:"
            f" {some_of(info.classes, MOST_LABELS)}; leave them out to have these"
        )
    task = Task(
        name=TaskName(request.task),
        inputs=info.inputs,
        outputs=outputs,
        labels=_labels(metric, labels or (), outputs[0], where),
        metric=str(metric),
        slo=request.slo or Slo(),
        image=request.image,
        bucket=request.bucket,
        text=request.text,
    )
    check_labels(task)
    check_image(task)
    check_text(task)
    return task


def is_reordered(classes: tuple[str, ...], labels: tuple[str, ...]) -> bool:
    """Whether a name that both have stands at another place, so that answers would be misnamed."""
    places = {label: place for place, label in enumerate(labels)}
    return any(places.get(name, place) != place for place, name in enumerate(classes))


def other_classes(info: OnnxInfo, task: Task, where: str) -> str:
    """A sentence where a model calls some of its classes otherwise than its task, and others not:
    it may have been trained with other classes. Where no name is the same, they are spelled
    otherwise. Else empty."""
    pairs = list(zip(info.classes, task.labels, strict=False))
    others = [(own, named) for own, named in pairs if own != named]
    if not others or len(others) == len(pairs):
        return ""
    own, named = others[0]
    more = f", and so for {counted(len(others) - 1, 'other')}" if others[1:] else ""
    return (
        f"{where} calls the class {own[:80]!r} that task {task.name!r} calls {named[:80]!r}{more}:"
        " answers have the task's names, so a model of other classes is one for another task"
    )


def _other(what: str, known: Task, request: RegistrationRequest) -> str:
    """What a task has that was to be another one, and what can be done about it."""
    more = ""
    match what:
        case "labels" if _is_permuted(request.labels or (), known.labels):
            return (
                f"these labels in another order, {some_of(known.labels, MOST_LABELS)}, which stays:"
                f" have the model give its scores in that one, {_in_order(request.labels, known)}"
                " as its last step, and leave --labels out"
            )
        case "defaults":
            return "other defaults, which stay; `modelless tasks set` changes them"
        case "image":
            return (
                "another mean and std of images, which stay, as all its models get the same"
                f" numbers: have the model begin with {_step_between(known, request)}, or change"
                " them for all by `modelless tasks set`"
            )
        case "length" if known.bucket is None:
            has = "rows of one length"
        case "length":
            has = "another length, or other padding, which stay"
        case "text":
            has = "another way from texts to rows, which stays"
        case "metric":
            has = f"another metric, which stays: {known.metric}"
        case _ if known.labels:
            has = f"other labels, which stay: {some_of(known.labels, MOST_LABELS)}"
            more = f" (`modelless tasks label {known.name}` changes them)"
        case _:
            has = "classes without names"
            more = f" (`modelless tasks label {known.name}` names them)"
    return (
        f"{has}; leave that option out{more}, register for another task, or remove this one with"
        f" all its models: `modelless tasks remove {known.name}`"
    )


def _is_permuted(labels: Sequence[str], known: Sequence[str]) -> bool:
    return labels != known and sorted(labels) == sorted(known)


def _in_order(labels: Sequence[str] | None, known: Task) -> str:
    """How scores in the order of labels become those of a task, in Python."""
    places = {label: place for place, label in enumerate(labels or ())}
    order = [places[label] for label in known.labels]
    return f"scores[:, {order}]" if len(order) <= MOST_LABELS else "each in its place"


def _step_between(known: Task, request: RegistrationRequest) -> str:
    """How pictures in the numbers of a task become those of a model, in Python."""
    has, wants = known.image or ImageScale(), request.image or ImageScale()
    mean, std, own_mean, own_std = (
        f"{numbers[0]:g}" if len(numbers) == 1 else f"[{', '.join(f'{n:g}' for n in numbers)}]"
        for numbers in (has.mean, has.std, wants.mean, wants.std)
    )
    return f"(x * {std} + {mean} - {own_mean}) / {own_std}"


def _outputs(
    metric: Metric, info: OnnxInfo, along: Mapping[str, int], where: str
) -> tuple[TensorSpec, ...]:
    """The outputs of a new task: the model's, without a class before the scores of classes.

    Args:
        along: outputs that are as long as the rows, to the axis of a row.

    Raises:
        InvalidArtifact: the metric cannot judge the first one.
    """
    first, *others = info.outputs
    if points(str(metric), first):
        along = {name: axis for name, axis in along.items() if name != first.name}
    wrong = check_output(metric, first, along.get(first.name))
    if wrong is None:
        return info.outputs
    # What skl2onnx writes of its own accord: the class, then the probability of each.
    whole = not first.dtype.startswith("float")
    is_class = metric.classifies and len(others) == 1 and not first.shape and whole
    if is_class and check_output(metric, others[0]) is None:
        return tuple(others)
    hint = f"; {OTHER_METRICS}" if metric.classifies else ""
    if metric.classifies and not whole and prod(first.shape) == 1:
        hint += f": {ONE_PROBABILITY}"
    if metric.classifies and not whole and len(first.shape) == 2 and first.shape[1] >= 2:
        hint += f"; {POSITIONS}"
    if any(check_output(metric, one, along.get(one.name)) is None for one in others):
        hint += "; --keep-outputs NAMES puts another output first"
    raise InvalidArtifact(f"{where}: its first output {wrong}, but is {describe(first)}{hint}")


def _labels(
    metric: Metric, labels: tuple[str, ...], output: TensorSpec, where: str
) -> tuple[str, ...]:
    """The names of a new task's classes.

    Raises:
        InvalidInput: they cannot be those of the first output.
    """
    if labels and not metric.classifies:
        raise InvalidInput(
            f"labels name the classes of a classifier; a task of the metric {metric} has none"
        )
    if labels and len(labels) != output.shape[-1]:
        raise InvalidInput(
            f"{counted(len(labels), 'label')} {'was' if len(labels) == 1 else 'were'} given, but "
            f"output {output.name!r} of {where} has "
            f"{output.shape[-1]} classes"
        )
    check_given(labels)
    places: dict[str, int] = {}
    for place, label in enumerate(labels, start=1):
        if (before := places.setdefault(label, place)) != place:
            raise InvalidInput(
                f"a label is given twice: number {before:,} and number {place:,} are both"
                f" {label[:80]!r}"
            )
    return labels
