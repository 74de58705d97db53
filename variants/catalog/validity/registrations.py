"""What may enter a catalog: the checks that every implementation runs before it writes.

Each check raises with one sentence that names the thing and what is wrong with it. What is stored
already comes in as arguments.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from variants.buckets import positions_axis
from variants.catalog.validity.buckets import check_bucket
from variants.catalog.validity.sharing import check_sharing
from variants.catalog.validity.texts import check_version_text
from variants.errors import Conflict, InvalidInput, NotFound
from variants.figures import counted
from variants.images import check_image
from variants.metrics.metric import parse_metric
from variants.texts.inputs import check_text
from variants.types import (
    NAME,
    DeviceKind,
    DeviceKindName,
    Event,
    ModelVersion,
    Plan,
    Profile,
    ProfileSource,
    ProfilingRequest,
    Registration,
    Slo,
    Task,
    TaskName,
    TensorSpec,
    TickRecord,
    Variant,
    VariantName,
)

DTYPES = ("float32", "float64", "int64", "int32", "uint8", "bool")
"""The element types that a task's tensors may have."""

MAX_WORKERS = 10_000
"""The most workers of one device kind that can be asked for."""

MAX_ERROR = 3.0
"""Largest standard deviation of a predicted latency's logarithm: a factor of 20 either way says
nothing any more."""

DAY_HOURS = 24
"""Values of a curve over a day."""

MAX_AXES = 7
"""Axes of a tensor besides the batch's: the tensor channel carries eight."""

LARGEST = 2**31 - 1
"""The largest version number, batch size or core count that every database can hold."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def check_registration(
    registration: Registration, device_kinds: Collection[DeviceKindName] = ()
) -> None:
    """Refuse a registration that contradicts itself.

    ``device_kinds`` are the kinds that are known already, besides those that it brings along.

    Raises:
        InvalidInput: the first thing found wrong, in one sentence.
    """
    check_task(registration.task)
    _check_version(registration.version, registration.task)
    if not registration.variants:
        raise InvalidInput(f"version {registration.version.label!r} has no variants")
    for variant in registration.variants:
        _check_variant(variant, registration.version)
    _unique("variant", (variant.name for variant in registration.variants))
    for kind in registration.device_kinds:
        check_device_kind(kind)
    _unique("device kind", (kind.name for kind in registration.device_kinds))

    names = {variant.name for variant in registration.variants}
    kinds = {kind.name for kind in registration.device_kinds}.union(device_kinds)
    _check_profiles(registration.task.name, registration.profiles, names, kinds)


def version_of(variant: Variant, versions: Iterable[ModelVersion]) -> ModelVersion:
    """The registered version that a variant is of.

    Raises:
        NotFound: there is none.
    """
    wanted = (variant.task, variant.model, variant.version)
    for version in versions:
        if (version.task, version.model, version.version) == wanted:
            return version
    raise NotFound(f"task {variant.task!r} has no version {variant.model_version}")


def check_addition(
    version: ModelVersion,
    variants: tuple[Variant, ...],
    profiles: tuple[Profile, ...],
    *,
    taken: Collection[VariantName],
    device_kinds: Collection[DeviceKindName],
) -> None:
    """Refuse variants that cannot join a version; ``taken`` are the names used in its task.

    Raises:
        InvalidInput: one contradicts itself, the version or the others.
        Conflict: a name is taken.
    """
    for variant in variants:
        _check_variant(variant, version)
        if variant.name in taken:
            raise Conflict(f"task {version.task!r} has a variant {variant.name!r} already")
    _unique("variant", (variant.name for variant in variants))
    _check_profiles(version.task, profiles, {v.name for v in variants}, device_kinds)


def check_conflicts(
    registration: Registration,
    *,
    task: Task | None,
    versions: Collection[int],
    variants: Collection[VariantName],
    joins: bool = False,
) -> None:
    """Refuse a registration that contradicts what is stored.

    ``task`` is the stored task of that name, ``versions`` the stored versions of the model, and
    ``variants`` the names that are taken in the task. A version that ``joins`` makes no new task.

    Raises:
        Conflict: the first contradiction found, in one sentence.
    """
    new = registration.task
    if task is not None:
        if (task.inputs, task.outputs) != (new.inputs, new.outputs):
            raise Conflict(f"task {new.name!r} exists with another signature")
        if task.labels != new.labels:
            raise Conflict(f"task {new.name!r} exists with other labels")
        if task.metric != new.metric:  # by which its accuracy was measured
            raise Conflict(f"task {new.name!r} exists with another metric: {task.metric}")
        if task.bucket != new.bucket:
            raise Conflict(f"task {new.name!r} exists with another length or padding")
        if task.text != new.text:
            raise Conflict(f"task {new.name!r} exists with another way from texts to rows")
    elif joins:
        raise Conflict(
            f"task {new.name!r} was removed while {registration.version.label!r} was prepared for "
            "it; register it again to make the task anew"
        )
    if registration.version.version in versions:
        raise Conflict(f"version {registration.version.label!r} of task {new.name!r} exists")
    for variant in registration.variants:
        if variant.name in variants:
            raise Conflict(f"task {new.name!r} has a variant {variant.name!r} already")


def check_task(task: Task) -> None:
    """Refuse a task with a bad name, signature, label list, metric or default SLO."""
    _check_name("task", task.name)
    where = f"task {task.name!r}"
    for side, specs in (("input", task.inputs), ("output", task.outputs)):
        if not specs:
            raise InvalidInput(f"{where} has no {side}s")
        for spec in specs:
            _check_tensor(spec, f"{side} {spec.name!r} of {where}")
        _unique(f"{side} of {where}", (spec.name for spec in specs))
    check_labels(task)
    check_slo(task.slo, where)
    check_sharing(task.sharing, where)
    check_image(task)
    check_bucket(task)
    check_text(task)


def check_device_kind(kind: DeviceKind) -> None:
    """Refuse a device kind without cores, memory or a price."""
    _check_name("device kind", kind.name)
    where = f"device kind {kind.name!r}"
    _check_count(kind.cores, f"the number of cores of {where}", least=0 if kind.gpu else 1)
    _check_number(kind.memory_mib, f"the memory of {where}")
    _check_number(kind.usd_per_hour, f"the price of {where}")
    if kind.gpu is not None:
        _check_text(kind.gpu, f"the GPU of {where}")
    if kind.idle_w is not None:
        _check_number(kind.idle_w, f"the idle draw of {where}")
    if len(kind.carbon_g_per_kwh) not in (0, 1, DAY_HOURS):
        raise InvalidInput(
            f"the carbon of {where} has {len(kind.carbon_g_per_kwh)} numbers, not 1 or {DAY_HOURS}"
        )
    for grams in kind.carbon_g_per_kwh:
        _check_number(grams, f"the carbon of {where}")


def check_profile(profile: Profile) -> None:
    """Refuse a profile whose points are missing, out of order or not positive and finite."""
    where = f"the profile of variant {profile.variant!r} on {profile.device_kind!r}"
    if not profile.points:
        raise InvalidInput(f"{where} has no points")
    for point in profile.points:
        _check_count(point.batch_size, f"a batch size in {where}")
        quantiles = (point.p50_ms, point.p95_ms, point.p99_ms)
        at = f"batch size {point.batch_size}"
        if not all(math.isfinite(ms) and ms > 0 for ms in quantiles):
            raise InvalidInput(f"{where} has a latency at {at} that is not positive and finite")
        if list(quantiles) != sorted(quantiles):
            raise InvalidInput(f"{where} has a p50, p95 and p99 at {at} that do not ascend")
        if not 0 <= point.error <= MAX_ERROR:
            raise InvalidInput(f"{where} has an error at {at} that is not from 0 to {MAX_ERROR:g}")
        if point.energy_j is not None:
            _check_number(point.energy_j, f"the energy at {at} in {where}")
    predicted = any(point.error for point in profile.points)
    if predicted and profile.source is ProfileSource.MEASURED:
        raise InvalidInput(f"{where} has predicted points, so it is not a measured one")
    if any(low.batch_size >= high.batch_size for low, high in pairwise(profile.points)):
        raise InvalidInput(f"{where} has batch sizes that do not ascend")
    _check_number(profile.memory_mib, f"the memory in {where}")
    _check_number(profile.load_s, f"the load time in {where}")
    for optional, what in (
        (profile.cold_load_s, "the cold load time"),
        (profile.host_memory_mib, "the host's memory"),
        (profile.energy_j, "the energy"),
        (profile.working_mib, "the working memory"),
    ):
        if optional is not None:
            _check_number(optional, f"{what} in {where}")
    if (profile.working_mib or 0.0) > profile.memory_mib:
        raise InvalidInput(f"{where} has more working memory than memory")
    _check_text(profile.host, f"the host of {where}")
    _check_text(profile.measured_at, f"the time of {where}")
    _check_text(profile.measured_on, f"the machine of {where}")


def check_profiling_request(request: ProfilingRequest) -> None:
    """Refuse a request for a device kind that cannot be one, or with odd text."""
    if not NAME.fullmatch(request.device_kind):
        raise InvalidInput(f"{request.device_kind[:40]!r} cannot be the name of a device kind")
    _check_text(request.reason, "the reason of a profiling request")
    _check_text(request.at, "the time of a profiling request")


def check_inventory(device_kind: str, count: int) -> None:
    """Raise ``InvalidInput`` unless so many workers of a kind may be asked for."""
    if not NAME.fullmatch(device_kind):
        raise InvalidInput(f"{device_kind[:40]!r} cannot be the name of a device kind")
    if not 0 <= count <= MAX_WORKERS:
        raise InvalidInput(f"{count} workers are not possible; choose 0 to {MAX_WORKERS}")


def check_plan(plan: Plan) -> None:
    """Refuse a plan that cannot be written down: shares that are not in [0, 1], odd text."""
    for placement in plan.placements:
        where = f"variant {placement.variant!r} on worker {placement.worker!r}"
        if not 0 <= placement.share <= 1:
            raise InvalidInput(f"the share of {where} is {placement.share}, not in [0, 1]")
    for kind, count in plan.workers.items():
        _check_count(count, f"the number of {kind!r} workers in the plan", least=0)
    _check_text(plan.created_at, "the time of the plan")


def check_event(event: Event) -> None:
    """Refuse an event whose text cannot be stored."""
    for text in (event.at, event.kind, event.subject, event.message):
        _check_text(text, "an event")


def storable(text: str) -> str:
    """A text with every character replaced that no catalog can store."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def plain_body(record: TickRecord) -> dict[str, Any]:
    """The body of a tick as every catalog gives it back: a copy, made of plain JSON values.

    Raises:
        InvalidInput: there is something in it that JSON cannot say, such as NaN or a set.
    """
    _check_text(record.at, "the time of a tick")
    try:
        return dict(json.loads(json.dumps(dict(record.body), allow_nan=False)))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the body of a tick is not plain JSON: {error}") from error


def _check_version(version: ModelVersion, task: Task) -> None:
    _check_name("model", version.model)
    where = f"version {version.label!r}"
    if version.task != task.name:
        raise InvalidInput(f"{where} belongs to task {version.task!r}, not to {task.name!r}")
    _check_count(version.version, f"the number of {where}")
    _check_digest(version.source, f"the source of {where}")
    _check_text(version.format, f"the format of {where}")
    _check_text(version.created_at, f"the time of {where}")
    check_version_text(version, task)


def _check_profiles(
    task: TaskName,
    profiles: tuple[Profile, ...],
    variants: Collection[VariantName],
    kinds: Collection[DeviceKindName],
) -> None:
    """Refuse profiles of other variants, on unknown device kinds, or two of the same."""
    for profile in profiles:
        check_profile(profile)
        if profile.task != task or profile.variant not in variants:
            raise InvalidInput(
                f"a profile is of variant {profile.variant!r} of task {profile.task!r}, "
                "which is not in this registration"
            )
        if profile.device_kind not in kinds:
            raise InvalidInput(
                f"the profile of variant {profile.variant!r} names "
                f"the unknown device kind {profile.device_kind!r}"
            )
    _unique("profile", (f"{profile.variant} on {profile.device_kind}" for profile in profiles))


def check_judged(variant: Variant) -> None:
    """Refuse a variant whose answers cannot be worth what it says, with ``InvalidInput``."""
    where = f"variant {variant.name!r}"
    _check_count(variant.accuracy_rows, f"the number of evaluation rows of {where}", least=0)
    if not 0 <= variant.accuracy <= 1:
        raise InvalidInput(f"the accuracy of {where} is {variant.accuracy}, not in [0, 1]")
    if variant.agreement is not None and not 0 <= variant.agreement <= 1:
        raise InvalidInput(f"the agreement of {where} is {variant.agreement}, not in [0, 1]")
    _check_text(variant.note, f"the note of {where}")


def not_judged(variant: Variant) -> NotFound:
    """Why what a variant is worth cannot be written."""
    return NotFound(
        f"task {variant.task!r} has no variant {variant.name!r} with the artifact that was judged"
    )


def _check_variant(variant: Variant, version: ModelVersion) -> None:
    _check_name("variant", variant.name)
    where = f"variant {variant.name!r}"
    if (variant.task, variant.model, variant.version) != (
        version.task,
        version.model,
        version.version,
    ):
        raise InvalidInput(
            f"{where} belongs to {variant.model_version!r} of task {variant.task!r}, "
            f"not to {version.label!r} of task {version.task!r}"
        )
    _check_name("runtime", variant.runtime)
    _check_digest(variant.artifact, f"the artifact of {where}")
    check_judged(variant)
    if not 0 <= variant.size_bytes < 2**63:
        raise InvalidInput(f"the size of {where} is {variant.size_bytes} bytes")
    _check_options(variant.options, where)


def _check_options(options: Mapping[Any, Any], where: str) -> None:
    for key, value in options.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInput(f"option {key!r} of {where} is not text")
        _check_text(key, f"an option of {where}")
        _check_text(value, f"option {key!r} of {where}")


def _check_tensor(spec: TensorSpec, where: str) -> None:
    if not spec.name:
        raise InvalidInput(f"{where} has no name")
    _check_text(spec.name, f"the name of {where}")
    if spec.dtype not in DTYPES:
        raise InvalidInput(
            f"{where} has type {spec.dtype!r}; it must be one of {', '.join(DTYPES)}"
        )
    if len(spec.shape) > MAX_AXES:
        raise InvalidInput(f"{where} has {len(spec.shape)} axes; at most {MAX_AXES} are possible")
    for size in spec.shape:
        _check_count(size, f"a dimension of {where}")


def check_labels(task: Task) -> None:
    """Refuse names that are not those of a task's classes, with ``InvalidInput``; none are fine."""
    if not task.labels:
        return
    where, metric = f"task {task.name!r}", parse_metric(task.metric)
    if not metric.classifies:
        raise InvalidInput(f"{where} has labels, which only classifiers have, and is of {metric}")
    for label in task.labels:
        _check_text(label, f"a label of {where}")
    if len(set(task.labels)) != len(task.labels):
        raise InvalidInput(f"{where} has the same label for two classes")
    output = task.outputs[0]
    by_position = positions_axis(task) is not None
    classes = output.shape[-1] if by_position else math.prod(output.shape)
    if len(task.labels) != classes:
        raise InvalidInput(
            f"{where} has {counted(len(task.labels), 'label')}, but output {output.name!r} "
            f"has {classes} class{'' if classes == 1 else 'es'}"
        )


def labelled(task: Task, labels: tuple[str, ...]) -> Task:
    """The task with these names of its classes.

    Raises:
        InvalidInput: they are not those of its classes.
    """
    if not all(label.strip() for label in labels):
        raise InvalidInput(f"a label of task {task.name!r} is empty")
    found = replace(task, labels=labels)
    check_labels(found)
    return found


def check_slo(slo: Slo, where: str) -> None:
    """Refuse defaults that no query could have, with ``InvalidInput``; ``where`` names the task."""
    if not (math.isfinite(slo.latency_ms) and slo.latency_ms > 0):
        raise InvalidInput(f"the default latency of {where} is not positive and finite")
    if slo.accuracy is not None and not 0 <= slo.accuracy <= 1:
        raise InvalidInput(f"the default accuracy floor of {where} is not in [0, 1]")
    if slo.cost is not None:
        _check_number(slo.cost, f"the default cost ceiling of {where}")


def _check_name(what: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"{what} name {name!r} must be 1 to 128 lower-case letters, digits, dots, dashes "
            "or underscores, and begin with a letter or a digit"
        )


def _check_digest(digest: str, where: str) -> None:
    if not _DIGEST.fullmatch(digest):
        raise InvalidInput(f"{where} is {digest!r}, not 64 lower-case hexadecimal digits")


def _check_count(count: int, where: str, least: int = 1) -> None:
    if not least <= count <= LARGEST:
        raise InvalidInput(f"{where} is {count}; it must be between {least} and {LARGEST}")


def _check_number(number: float, where: str) -> None:
    if not (math.isfinite(number) and number >= 0):
        raise InvalidInput(f"{where} is {number}; it must be finite and not negative")


def _check_text(text: str, where: str) -> None:
    if _UNSTORABLE.search(text):
        raise InvalidInput(f"{where} contains a character that cannot be stored")


def _unique(what: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInput(f"{what} {twice[0]!r} is given twice")
