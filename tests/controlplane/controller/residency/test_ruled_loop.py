"""Rules of operators, from the catalog to real worker processes."""

from pathlib import Path
from time import time

import pytest

from tests.controlplane.fleet import Fleet, eventually, fleet
from variants.types import Rule, RuleKind, TaskName, VariantName

pytestmark = pytest.mark.slow

A, B = "a-v1-echo-fp32", "b-v1-echo-fp32"


def rule(it: Fleet, kind: RuleKind, variant: str = "", until_s: float | None = None) -> Rule:
    """A rule about a variant, or a freeze."""
    task, name = TaskName("digits" if variant else ""), VariantName(variant)
    return it.catalog.put_rule(
        Rule(kind=kind, task=task, variant=name, at_s=time() - 60.0, until_s=until_s)
    )


async def test_a_pin_drives_out_what_is_loaded_and_stays(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a", memory_mib=60.0)
        it.register("b", memory_mib=60.0)
        it.control()
        await eventually(lambda: len(it.ready().get("w1", ())) == 1)
        [there] = it.ready()["w1"]
        other = B if there == A else A
        pin = rule(it, RuleKind.PIN, other)
        await it.until_ready(w1=[other])
        it.catalog.remove_rule(pin.id)
        rule(it, RuleKind.PIN, there)
        await it.until_ready(w1=[there])


async def test_what_is_forbidden_is_unloaded_and_comes_back(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        it.register("b")
        it.control()
        await it.until_ready(w1=[A, B])
        forbid = rule(it, RuleKind.FORBID, A)
        await it.until_ready(w1=[B])
        it.catalog.remove_rule(forbid.id)
        await it.until_ready(w1=[A, B])


async def test_a_frozen_plan_is_restored_and_nothing_else(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        it.control()
        await it.until_ready(w1=[A])
        freeze = rule(it, RuleKind.FREEZE)
        it.register("b")
        it.cluster.kill("w1")
        await it.until_ready(w2=[A])
        plan = it.catalog.latest_plan()
        assert plan is not None
        assert [(one.worker, one.variant) for one in plan.placements] == [("w2", A)]
        assert plan.explanation[0].startswith("The plan is frozen (rule 1)")
        it.catalog.remove_rule(freeze.id)
        await it.until_ready(w2=[A, B])


async def test_a_freeze_whose_time_is_over_is_taken_back_and_told(tmp_path: Path) -> None:
    async with fleet(tmp_path) as it:
        it.register("a")
        rule(it, RuleKind.FREEZE, until_s=time() - 1.0)
        it.control()
        await it.until_ready(w1=[A])
        await eventually(lambda: "thawed" in it.kinds_of_events())
        assert it.catalog.rules() == ()
