"""Tasks that nothing can answer are named before a query meets it, by a gateway that serves."""

from typing import Any

import pytest

from controlplane.gateway.reports.unanswered_tasks import unanswered_tasks
from planner.types import Query, Refusal, RefusalCode
from tests.controlplane.serving import FAST, Served, until
from variants.types import DeviceKindName, Rule, RuleKind, TaskName, VariantName

LETTERS = TaskName("letters")


async def answered(served: Served) -> Any:
    answer = await served.get("/v1/plan")
    assert answer.status == 200, answer.body
    return answer.json["answered"]


def forbid(served: Served, *variants: str, kind: str = "") -> None:
    for variant in variants:
        served.gateway.catalog.put_rule(
            Rule(
                kind=RuleKind.FORBID, task=LETTERS, variant=VariantName(variant),
                device_kind=DeviceKindName(kind), why="wrong",
            )
        )  # fmt: skip


async def test_a_task_is_named_when_all_that_could_answer_it_is_forbidden(served: Served) -> None:
    await served.worker("w1", FAST)
    all_well = {"level": "tasks_answered", "sentence": "", "tasks": {}}
    assert await answered(served) == all_well
    variants = [str(one.name) for one in served.gateway.catalog.snapshot().variants]
    forbid(served, *variants)
    await until(lambda: LETTERS in unanswered(served))
    told = await answered(served)
    assert told["level"] == "tasks_unanswered"
    first = (
        f"{variants[0]}: an operator has forbidden it (rule 1: wrong), {variants[1]}: an operator"
    )
    assert told["tasks"]["letters"].startswith(first)
    assert told["sentence"] == f"letters cannot be answered now: {told['tasks']['letters']}."


async def test_a_task_is_named_when_no_worker_is_there(served: Served) -> None:
    told = await answered(served)
    assert told["level"] == "tasks_unanswered"
    assert "no worker" in told["tasks"]["letters"]


def unanswered(served: Served) -> dict[TaskName, Refusal]:
    path = served.gateway.path
    return unanswered_tasks(path.tasks, path.foreseen, path.clock_ms())


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (RefusalCode.SLO_INFEASIBLE, True),
        (RefusalCode.ARTIFACT_INVALID, True),
        (RefusalCode.NO_WORKERS, True),
        (RefusalCode.COLD, False),
        (RefusalCode.OVERLOADED, False),
    ],
)
def test_what_only_takes_time_is_no_reason(code: RefusalCode, told: bool) -> None:
    refusal = Refusal(code=code, message="no")

    def foreseen(query: Query, now_ms: float) -> Refusal:
        assert (query.rows, query.accuracy, query.cost, now_ms) == (1, None, None, 5.0)
        return refusal

    assert unanswered_tasks([LETTERS], foreseen, 5.0) == ({LETTERS: refusal} if told else {})
