"""Doubt: what is registered all the same, and told of.

A version may be no better than guessing, mostly because labels are not in the order of the model's
scores, or rows were prepared otherwise than those of its training
(``profiler.evaluation.suspicions``). Or it is less accurate than its task asks for where a query
names no accuracy. Or that is nothing, and its cheapest variant, which then answers, is far less
accurate than another one. Or no worker has the memory for any of its variants, or none is as quick
as its task asks for by default.
"""

from collections.abc import Collection
from math import floor

from profiler.evaluation.accuracy import interval_of
from profiler.evaluation.labelled_rows import LabelledRows
from variants.buckets import asked_name, positions_axis
from variants.figures import accuracies, accuracy_text, apart
from variants.metrics.metric import LABELS, MetricKind, parse_metric
from variants.metrics.scoring import constant
from variants.types import CatalogSnapshot, Prefer, Registration, Stage, Task, Variant
from variants.working_memory import counted_mib

FAR = 0.03
"""How much less accurate a variant is that nobody would take without being told."""


def doubt(
    label: str,
    task: Task,
    variants: Collection[Variant],
    rows: LabelledRows,
    suspicion: str = "",
) -> str:
    """A sentence where none of the variants is better than always answering the same, or the model
    would be far better if it were used otherwise; else empty.
    Of texts, also where they are better by no more than chance: who reads them by the tokenizer of
    another model guesses.

    Args:
        suspicion: a clause on what would make the model better.
    """
    if task.bucket is not None:
        label = f"{label} of {task.name}"
    if suspicion:
        return f"{label}: {suspicion}"
    best = max((variant.accuracy for variant in variants), default=None)
    by, truth, along = parse_metric(task.metric), rows.truth, positions_axis(task)
    if best is None or truth is None or by.kind is MetricKind.TOP5:
        return ""
    same = constant(by, truth, along)
    if best > same and not (task.text is not None and _by_chance(best, same, task, variants)):
        return ""
    if task.text is not None:
        return _of_texts(label, task, best, same)
    if by.kind is MetricKind.TOP1:
        which = "rows" if along is None else "positions"
        return (
            f"{label} is right in {accuracy_text(best)} of the {which}, and always saying the most"
            f" frequent label would be in {accuracy_text(same)}: are the labels those of its"
            " scores, in their order?"
        )
    asked = "labels" if by.truth == LABELS else "targets"
    return (
        f"the accuracy of {label} by {by} is {accuracy_text(best)}, and always answering the"
        f" same would have {accuracy_text(same)}: are the {asked} those of its rows, in their"
        " order?"
    )


def _by_chance(best: float, same: float, task: Task, variants: Collection[Variant]) -> bool:
    """Whether an accuracy that is a share of rows may be no better than another one, by its 95 %
    interval."""
    rows = max(variant.accuracy_rows for variant in variants if variant.accuracy == best)
    return parse_metric(task.metric).counts_rows and interval_of(best, rows)[0] <= same


def _of_texts(label: str, task: Task, best: float, same: float) -> str:
    by = parse_metric(task.metric)
    what = "labels in the order of its scores"
    if by.truth != LABELS:
        what = "targets those of its rows"
    elif by.kind is MetricKind.NEAREST:
        what = "labels those of its rows"
    always = "the most frequent label" if by.kind is MetricKind.TOP1 else "the same"
    hardly = "no better than" if best <= same else "better by no more than chance than"
    return (
        f"the accuracy of {label} is {accuracy_text(best)}, {hardly} the {accuracy_text(same)} of"
        f" always answering {always}: are its texts read by the tokenizer that it was trained with,"
        f" and are the {what}?"
    )


def short_of_default(registration: Registration) -> str:
    """A sentence where no variant is as accurate as its task asks for by default; else empty."""
    floor = registration.task.slo.accuracy
    best = max((variant.accuracy for variant in registration.variants), default=None)
    if floor is None or best is None or best >= floor:
        return ""
    ours, asked = accuracies(best, floor)
    return (
        f"the accuracy of {registration.version.label} is {ours} at best, and queries of"
        f" {registration.task.name} that name none ask for {asked}: it answers none of these"
    )


def slow_for_default(registration: Registration) -> str:
    """A sentence where no variant takes as little for a row as its task asks for by default; else
    empty."""
    profiles = registration.profiles
    quickest = min(profiles, key=lambda one: one.points[0].p95_ms, default=None)
    slo_ms = registration.task.slo.latency_ms
    if quickest is None or quickest.points[0].p95_ms <= slo_ms:
        return ""
    takes, asked = apart(quickest.points[0].p95_ms, slo_ms, 0)
    name = asked_name(registration.task)
    return (
        f"{quickest.variant}, the quickest of {registration.version.label}, takes {takes} ms for a"
        f" row on {quickest.device_kind} (p95), and queries of {name} that name no latency ask for"
        f" {asked} ms: `modelless tasks set {name} --latency-ms MS` allows more"
    )


def too_large(registration: Registration) -> str:
    """A sentence where no worker of the kinds that it was measured on has the memory for any of its
    variants; else empty."""
    kinds = {kind.name: kind for kind in registration.device_kinds}
    needs = [
        (counted_mib(profile, kinds[profile.device_kind]), profile)
        for profile in registration.profiles
        if profile.device_kind in kinds
    ]
    if not needs or any(need <= kinds[one.device_kind].memory_mib for need, one in needs):
        return ""
    least_mib, profile = min(needs, key=lambda one: one[0])
    needed, has = apart(least_mib, kinds[profile.device_kind].memory_mib)
    return (
        f"no worker can load {registration.version.label}: {profile.variant} needs {needed} MiB,"
        f" and a {profile.device_kind} has {has} for variants: MODELLESS_WORKER_MEMORY_MIB, or"
        " memory_mib= of the kind, gives it more"
    )


def far_from_best(registration: Registration, before: CatalogSnapshot) -> str:
    """A sentence where queries that name no accuracy get a variant of this version that is far less
    accurate than another live one of the task; else empty.

    Args:
        before: what was registered until then.
    """
    task, version = registration.task, registration.version
    live = {
        one.label for one in before.versions if (one.task, one.stage) == (task.name, Stage.LIVE)
    }
    there = [v for v in before.variants if v.task == task.name and v.model_version in live]
    variants = {one.name: one for one in (*there, *registration.variants)}
    kinds = (*before.device_kinds, *registration.device_kinds)
    prices = {kind.name: kind.usd_per_hour for kind in kinds}
    costs: dict[str, float] = {}
    for profile in (*before.profiles, *registration.profiles):
        if profile.task == task.name and profile.variant in variants:
            cost = prices.get(profile.device_kind, 1.0) * profile.points[0].p50_ms
            costs[profile.variant] = min(cost, costs.get(profile.variant, cost))
    floor = task.slo.accuracy or 0.0
    fit = [one for one in variants.values() if one.name in costs and one.accuracy >= floor]
    if version.stage is not Stage.LIVE or task.slo.prefer is not Prefer.COST or not fit:
        return ""
    taken = min(fit, key=lambda variant: (costs[variant.name], variant.name))
    best = max(fit, key=lambda variant: (variant.accuracy, -costs[variant.name]))
    new = {one.name for one in registration.variants}
    if taken.name not in new or best.accuracy - taken.accuracy <= FAR:
        return ""
    name = asked_name(task)
    asking = f"tasks set {name} --accuracy {floor_below(best.accuracy)}"
    return (
        f"queries of {task.name} that name no accuracy get {taken.name}, as the cheapest, whose"
        f" accuracy is {accuracy_text(taken.accuracy)}; that of {best.name} is"
        f" {accuracy_text(best.accuracy)}: `modelless {asking}` asks for more"
    )


def floor_below(accuracy: float) -> float:
    """A floor in hundredths, at least one hundredth below an accuracy."""
    return floor(100 * accuracy - 1) / 100
