"""Whether a rule can be followed at all, as far as that is known for certain when it is given."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from planner.residency.pinned_fleet import Counts, held_by
from planner.residency.pins import sizes_of, why_nowhere
from planner.sentences import there_are
from variants.buckets import bucketed_named
from variants.errors import Conflict, NotFound, TaskNotFound
from variants.figures import counted, figure
from variants.types import CatalogSnapshot, Rule, RuleKind


def check_possible(catalog: CatalogSnapshot, rule: Rule, fleets: Sequence[Counts]) -> None:
    """Refuse a rule about what there is not, or that can never be followed.

    Args:
        catalog: with the rules so far.
        fleets: the most workers of each kind that there may be, one for each way to split the
            machine; none where that is not certain.

    Raises:
        TaskNotFound, NotFound: there is no such task, variant or device kind.
        Conflict: another rule says the opposite, the variant can run nowhere, or no fleet holds it
            beside what else is pinned.
    """
    if rule.kind is RuleKind.FREEZE:
        return
    _check_names(catalog, rule)
    if rule.kind is RuleKind.FORBID:
        _check_not_pinned(catalog, rule)
        return
    name = f"{rule.task}/{rule.variant}"
    if (never := why_nowhere(catalog, rule)) is not None:
        raise Conflict(f"{name} cannot be pinned: {never}")
    known = next((one for one in catalog.rules if one.subject == rule.subject), None)
    newest = 1 + max((one.id for one in catalog.rules), default=0)
    new = replace(rule, id=newest if known is None else known.id)
    after = replace(catalog, rules=(*(one for one in catalog.rules if one is not known), new))
    refusals = [_no_room(catalog, after, new, fleet) for fleet in fleets]
    if refusals and all(refusals):
        raise Conflict(f"{name} cannot be pinned: {refusals[0]}")


def _check_names(catalog: CatalogSnapshot, rule: Rule) -> None:
    if rule.task not in (tasks := {task.name for task in catalog.tasks}):
        named = rule.task[:128]
        if (of_lengths := bucketed_named(catalog.tasks, named)) is not None:
            buckets = ", ".join(one.name for one in of_lengths.buckets)
            raise TaskNotFound(
                f"task {named!r} takes rows of several lengths; rules are of one of its buckets:"
                f" {buckets}"
            )
        raise TaskNotFound(f"there is no task {named!r}{there_are(tasks, named)}")
    variants = {one.name for one in catalog.variants if one.task == rule.task}
    if rule.variant not in variants:
        named = rule.variant[:128]
        known = there_are(variants, named)
        raise NotFound(f"task {rule.task!r} has no variant {named!r}{known}")
    kinds = {kind.name for kind in catalog.device_kinds}
    if rule.device_kind and rule.device_kind not in kinds:
        named = rule.device_kind[:128]
        raise NotFound(f"there is no device kind {named!r}{there_are(kinds, named)}")


def _check_not_pinned(catalog: CatalogSnapshot, rule: Rule) -> None:
    """Refuse to forbid what a pin needs."""
    then = replace(catalog, rules=(*catalog.rules, rule))
    for pin in catalog.rules:
        if pin.kind is not RuleKind.PIN or pin.key != rule.key:
            continue
        if why_nowhere(catalog, pin) is None and why_nowhere(then, pin) is not None:
            raise Conflict(
                f"{rule.task}/{rule.variant} is pinned by rule {pin.id};"
                f" `modelless rules remove {pin.id}` takes the pin back"
            )


def _no_room(before: CatalogSnapshot, after: CatalogSnapshot, rule: Rule, fleet: Counts) -> str:
    """Why a fleet cannot hold one more pin, or more of it; empty where it can, or may."""
    sizes = sizes_of(after)
    rooms = {kind.name: kind.memory_mib for kind in after.device_kinds}
    fitting = {
        kind: mib
        for (kind, key), mib in sizes.items()
        if key == rule.key and rule.device_kind in ("", kind) and mib <= rooms[kind]
    }
    if not fitting:
        least = min(mib for (_, key), mib in sizes.items() if key == rule.key)
        return f"it needs {figure(least)} MiB, more than a worker has"
    able = sum(fleet.get(kind, 0) for kind in fitting)
    if not able:
        return f"no worker of {' or '.join(sorted(fitting))} is wanted"
    if able < rule.replicas:
        return f"it is to be on {rule.replicas:,} workers, and at most {able:,} could hold it"
    found, was = held_by(after, fleet), held_by(before, fleet)
    lacking = {lack.rule.id: lack for lack in found.lacks}
    if not found.sure or lacking.keys() <= {lack.rule.id for lack in was.lacks}:
        return ""
    if (own := lacking.get(rule.id)) is not None:
        return (
            f"beside what else is pinned, {own.held} of {counted(rule.replicas, 'replica')} "
            f"{'has' if own.held == 1 else 'have'} room"
        )
    others = sorted(lacking.keys() - {lack.rule.id for lack in was.lacks})
    return f"rule {_listed(others)} could not be held any more"


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))
