"""Rules of operators in every catalog: in memory, on SQLite, on PostgreSQL."""

from dataclasses import replace
from typing import Any

import pytest

from tests.contracts.places import MEMORY_IN_EACH_RUN, Place
from tests.variants.catalog_builders import registration
from variants.catalog.protocol import MOST_RULES, Catalog
from variants.errors import Conflict, InvalidInput, NotFound
from variants.types import (
    DeviceKindName,
    ModelName,
    Rule,
    RuleKind,
    Stage,
    TaskName,
    VariantName,
)

DIGITS, LETTERS = TaskName("digits"), TaskName("letters")
NAME = VariantName("mlp-v1-onnx-fp32")
PIN = Rule(
    kind=RuleKind.PIN, task=DIGITS, variant=NAME, replicas=2, at_s=1_000.5, by="ann", why="für A"
)
FORBID = Rule(kind=RuleKind.FORBID, task=DIGITS, variant=NAME, at_s=1_001.0)
FEW = 20
FREEZE = Rule(kind=RuleKind.FREEZE, at_s=1_002.0, until_s=9_000.0, why="sale")


@pytest.fixture
def catalog(somewhere: Place) -> Catalog:
    catalog = somewhere.open()
    catalog.register(registration())
    return catalog


def test_rules_are_read_back_by_id_at_a_new_revision(catalog: Catalog, somewhere: Place) -> None:
    stored = [catalog.put_rule(one) for one in (PIN, replace(FORBID, id=77), FREEZE)]
    assert stored == [replace(PIN, id=1), replace(FORBID, id=2), replace(FREEZE, id=3)]
    other = somewhere.open()
    assert other.rules() == other.snapshot().rules == tuple(stored)
    assert other.marks().revision == 4


def test_saying_the_same_again_changes_it_under_its_id(catalog: Catalog) -> None:
    catalog.put_rule(PIN)
    catalog.put_rule(FREEZE)
    more = catalog.put_rule(replace(PIN, replicas=3, why=""))
    longer = catalog.put_rule(replace(FREEZE, until_s=None))
    elsewhere = catalog.put_rule(replace(PIN, device_kind=DeviceKindName("cpu-1")))
    assert (more.id, longer.id, elsewhere.id) == (1, 2, 3)
    assert catalog.rules() == (more, longer, elsewhere)


def test_a_rule_is_taken_back_and_its_id_is_not_given_again(catalog: Catalog) -> None:
    pin = catalog.put_rule(PIN)
    before = catalog.revision()
    assert catalog.remove_rule(1) == pin
    assert (catalog.rules(), catalog.revision()) == ((), before + 1)
    with pytest.raises(NotFound, match="there is no rule 1, nor any other"):
        catalog.remove_rule(1)
    assert catalog.revision() == before + 1
    assert catalog.put_rule(PIN).id == 2


@MEMORY_IN_EACH_RUN
@pytest.mark.parametrize(
    ("rule", "change", "reason"),
    [
        (PIN, {"replicas": 0}, "1 to 10,000 replicas"),
        (PIN, {"replicas": 10_001}, "1 to 10,000 replicas"),
        (FORBID, {"replicas": 2}, "only a pin"),
        (PIN, {"task": ""}, "'task' is missing"),
        (PIN, {"task": "No Name"}, "cannot be the name of a task"),
        (PIN, {"variant": "No Name"}, "cannot be the name of a variant"),
        (PIN, {"device_kind": "../x"}, "cannot be the name of a device kind"),
        (PIN, {"at_s": float("nan")}, "cannot begin"),
        (PIN, {"until_s": 5_000.0}, "only a freeze ends"),
        (FREEZE, {"until_s": 1_002.0}, "must end after it begins"),
        (FREEZE, {"until_s": 1e12}, "before 2100"),
        (FREEZE, {"task": "digits"}, "names no task"),
        (PIN, {"why": "x" * 201}, "at most 200 printable"),
        (PIN, {"by": "a\nb"}, "at most 100 printable"),
    ],
)
def test_what_cannot_be_is_refused(
    catalog: Catalog, rule: Rule, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        catalog.put_rule(replace(rule, **change))
    assert (catalog.rules(), catalog.revision()) == ((), 1)


def test_an_unknown_variant_has_no_rules(catalog: Catalog) -> None:
    with pytest.raises(NotFound, match="task 'letters' has no variant"):
        catalog.put_rule(replace(PIN, task=LETTERS))
    assert (catalog.rules(), catalog.revision()) == ((), 1)


def test_there_are_so_many_at_most(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand, of which each takes a database milliseconds: here only a few."""
    assert MOST_RULES == 1_000
    monkeypatch.setattr("variants.catalog.validity.rules.MOST_RULES", FEW)
    kinds = [DeviceKindName(f"cpu-{n}") for n in range(1, FEW + 1)]
    for kind in kinds:
        catalog.put_rule(replace(PIN, device_kind=kind))
    with pytest.raises(Conflict, match=f"{FEW} rules, the most possible"):
        catalog.put_rule(FREEZE)
    assert catalog.put_rule(replace(PIN, device_kind=kinds[0], replicas=5)).id == 1
    assert len(catalog.rules()) == FEW


def test_what_is_removed_takes_its_rules_along(catalog: Catalog) -> None:
    catalog.register(registration(number=2))
    catalog.register(registration(of="letters"))
    second = VariantName("mlp-v2-onnx-fp32")
    for task, variant in ((DIGITS, NAME), (DIGITS, second), (LETTERS, NAME)):
        catalog.put_rule(replace(PIN, task=task, variant=variant))
    freeze = catalog.put_rule(FREEZE)
    catalog.set_stage([DIGITS], ModelName("mlp"), 2, Stage.RETIRED)
    catalog.remove_version([DIGITS], ModelName("mlp"), 2)
    assert [(one.task, one.variant) for one in catalog.rules()[:2]] == [
        (DIGITS, NAME),
        (LETTERS, NAME),
    ]
    catalog.remove_task(DIGITS)
    assert [one.task for one in catalog.rules()] == [LETTERS, ""]
    assert catalog.rules()[-1] == freeze
