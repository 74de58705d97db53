"""Rules with round numbers."""

from collections.abc import Iterable
from dataclasses import replace

from tests.planner.builders import catalog, profile, variant
from variants.types import (
    CatalogSnapshot,
    DeviceKindName,
    Rule,
    RuleKind,
    TaskName,
    VariantName,
)


def pin(
    variant: str, replicas: int = 1, *, id: int = 1, kind: str = "", task: str = "digits"
) -> Rule:
    return Rule(
        kind=RuleKind.PIN,
        task=TaskName(task),
        variant=VariantName(variant),
        device_kind=DeviceKindName(kind),
        replicas=replicas,
        id=id,
    )


def forbid(
    variant: str, *, id: int = 1, kind: str = "", task: str = "digits", why: str = ""
) -> Rule:
    return replace(pin(variant, id=id, kind=kind, task=task), kind=RuleKind.FORBID, why=why)


def freeze(*, id: int = 1, until_s: float | None = None, why: str = "") -> Rule:
    return Rule(kind=RuleKind.FREEZE, until_s=until_s, why=why, id=id)


def ruled(catalog: CatalogSnapshot, *rules: Rule) -> CatalogSnapshot:
    return replace(catalog, rules=rules)


def ids(rules: Iterable[Rule]) -> list[int]:
    return [rule.id for rule in rules]


def sized(**mib: float) -> CatalogSnapshot:
    """Variants of these sizes on ``cpu-1``."""
    return catalog(
        [variant(name) for name in mib],
        [profile(name, memory_mib=size) for name, size in mib.items()],
    )
