"""Orders: rules of operators, checked, written and told."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from controlplane.settings import Settings
from controlplane.timestamps import spoken, timestamp
from planner.residency.possible import check_possible
from variants.catalog.protocol import Catalog
from variants.catalog.validity.rules import check_rule
from variants.figures import counted
from variants.types import CatalogSnapshot, DeviceKindName, Event, Rule, RuleKind


def give(
    catalog: Catalog,
    known: CatalogSnapshot,
    settings: Settings,
    there: Iterable[str],
    rule: Rule,
) -> Rule:
    """Have a rule hold from now on, and tell it. This blocks.

    Args:
        known: the catalog's newest snapshot.
        settings: those of now.
        there: the device kind of each worker that runs.

    Raises:
        InvalidInput: it says something that is not possible.
        TaskNotFound, NotFound: there is no such task, variant or device kind.
        Conflict: it cannot be followed, for certain, or there are 1,000 rules.
        StateUnavailable: the catalog cannot be written.
    """
    if not rule.why:  # saying again how many does not unsay the reason
        before = (one.why for one in known.rules if one.subject == rule.subject)
        rule = replace(rule, why=next(before, ""))
    check_rule(rule)
    check_possible(known, rule, most_workers(settings, catalog.inventory(), there))
    stored = catalog.put_rule(rule)
    match rule.kind:
        case RuleKind.PIN:
            _tell("pinned", catalog, stored, words(stored))
        case RuleKind.FORBID:
            _tell("forbidden", catalog, stored, words(stored))
        case RuleKind.FREEZE:
            _tell("frozen", catalog, stored, words(stored))
    return stored


def take_back(catalog: Catalog, id: int) -> Rule:
    """End a rule, and tell it. This blocks.

    Raises:
        NotFound: there is none with this id.
        StateUnavailable: the catalog cannot be written.
    """
    rule = catalog.remove_rule(id)
    said = f"rule {rule.id} was taken back: {words(rule)}"
    if rule.kind is RuleKind.FREEZE:
        said = f"plans are made again: rule {rule.id} was taken back"
        _tell("thawed", catalog, rule, said)
    else:
        _tell("rule_removed", catalog, rule, said)
    return rule


def most_workers(
    settings: Settings, asked: Mapping[DeviceKindName, int], there: Iterable[str] = ()
) -> list[Mapping[DeviceKindName, int]]:
    """The most workers of each kind, one for each way to split the machine; none on a cluster,
    where nodes may come.

    Args:
        asked: the numbers of workers that operators asked for.
        there: the device kind of each worker that runs, asked for or not.
    """
    if settings.ray_address:
        return []
    wanted = settings.wanted(asked)
    for kind, count in Counter(map(DeviceKindName, there)).items():
        wanted[kind] = max(count, wanted.get(kind, 0))
    if not settings.layouts:
        return [wanted]
    return [
        {kind: min(count, wanted.get(kind, count)) for kind, count in layout.items()}
        for layout in settings.layouts
    ]


def words(rule: Rule) -> str:
    """What a rule says, and who says it why: ``2 replicas on cpu-2, by ann: release``."""
    match rule.kind:
        case RuleKind.PIN:
            said = counted(rule.replicas, "replica")
        case RuleKind.FORBID:
            said = "it answers nothing and is loaded nowhere"
        case RuleKind.FREEZE:
            said = "the plan stays as it is"
            if rule.until_s is not None:
                said += f" until {spoken(rule.until_s)}"
    if rule.device_kind:
        said += f" on {rule.device_kind}"
    if rule.by:
        said += f", by {rule.by}"
    return f"{said}: {rule.why}" if rule.why else said


def _tell(kind: str, catalog: Catalog, rule: Rule, message: str) -> None:
    subject = f"{rule.task}/{rule.variant}" if rule.task else "plan"
    catalog.add_event(Event(at=timestamp(), kind=kind, subject=subject, message=message))
