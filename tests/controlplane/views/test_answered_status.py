"""Which tasks nothing can answer, in words."""

from collections.abc import Mapping
from types import MappingProxyType

import pytest

from controlplane.views.answered_status import AnsweredLevel, answered_status
from planner.selection.missing_workers import WAITS
from planner.types import Refusal, RefusalCode
from tests.variants.catalog_builders import registration
from variants.catalog.memory import MemoryCatalog
from variants.types import ModelName, Stage, TaskName

FIRST, SECOND = "mlp-v1-onnx-fp32", "mlp-v2-onnx-fp32"


def refused(
    reasons: Mapping[str, str] = MappingProxyType({}),
    code: RefusalCode = RefusalCode.SLO_INFEASIBLE,
) -> Refusal:
    return Refusal(code=code, message="no worker is running", reasons=reasons)


@pytest.fixture
def catalog() -> MemoryCatalog:
    made = MemoryCatalog()
    for task in ("digits", "letters"):
        for number in (1, 2):
            made.register(registration(number=number, of=task))
    return made


def test_nothing_is_said_where_each_task_could_be_answered(catalog: MemoryCatalog) -> None:
    found = answered_status(catalog.snapshot(), {})
    assert (found.level, found.sentence) == (AnsweredLevel.ANSWERED, "")


def test_variants_with_the_same_reason_stand_together(catalog: MemoryCatalog) -> None:
    why = {FIRST: "cannot be loaded: it is in quarantine", SECOND: "needs 9 MiB, more than it has"}
    found = answered_status(catalog.snapshot(), {TaskName("digits"): refused(why)})
    assert found.sentence == (
        f"digits cannot be answered now: {FIRST}: cannot be loaded: it is in quarantine, {SECOND}:"
        " needs 9 MiB, more than it has."
    )
    same = dict.fromkeys((FIRST, SECOND), "is in quarantine")
    found = answered_status(catalog.snapshot(), {TaskName("digits"): refused(same)})
    assert found.tasks == {"digits": f"{FIRST}, {SECOND}: is in quarantine"}


def test_only_variants_of_live_versions_are_named(catalog: MemoryCatalog) -> None:
    catalog.set_stage([TaskName("digits")], ModelName("mlp"), 2, Stage.RETIRED)
    why = {FIRST: "is in quarantine", SECOND: "its version mlp-v2 is retired"}
    found = answered_status(catalog.snapshot(), {TaskName("digits"): refused(why)})
    assert found.tasks == {"digits": f"{FIRST}: is in quarantine"}


def test_a_task_without_a_live_version_is_told_elsewhere(catalog: MemoryCatalog) -> None:
    for number in (1, 2):
        catalog.set_stage([TaskName("digits")], ModelName("mlp"), number, Stage.RETIRED)
    found = answered_status(catalog.snapshot(), {TaskName("digits"): refused()})
    assert (found.level, found.tasks) == (AnsweredLevel.ANSWERED, {})


def test_tasks_with_the_same_reason_stand_together(catalog: MemoryCatalog) -> None:
    asked = {TaskName(name): refused(code=RefusalCode.NO_WORKERS) for name in ("letters", "digits")}
    found = answered_status(catalog.snapshot(), asked)
    assert found.sentence == "digits, letters cannot be answered now: no worker is running."


def test_a_few_of_many_are_named() -> None:
    catalog, asked = MemoryCatalog(), {}
    for number in range(8):
        name = TaskName(f"task-{number}")
        catalog.register(registration(of=name))
        asked[name] = refused({FIRST: f"needs {max(number, 3)} MiB, more than it has"})
    said = answered_status(catalog.snapshot(), asked).sentence
    assert said.startswith("task-0, task-1, task-2 and 1 more cannot be answered now: ")
    assert said.endswith(" There are 2 more reasons of other tasks.")


def test_of_a_worker_that_is_awaited_it_is_said_of_queries_and_not_of_one(
    catalog: MemoryCatalog,
) -> None:
    said = "no worker that could answer is running; the first is expected in 4.0 s"
    awaited = Refusal(code=RefusalCode.NO_WORKERS, message=said + WAITS, awaited=True)
    found = answered_status(catalog.snapshot(), {TaskName("digits"): awaited})
    assert found.tasks == {"digits": f"{said}, and queries that have the time wait"}
