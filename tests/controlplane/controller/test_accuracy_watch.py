"""What the control loop makes of feedback, over a catalog in memory and through a whole fleet."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.controller.accuracy_watch import GONE_S, KEEP_EVERY_S, AccuracyWatch
from controlplane.controller.events.journal import Journal
from planner.feedback.by_class import MOST_CLASSES
from planner.feedback.evidence import SPAN_S, Finding
from tests.controlplane.fleet import eventually, fleet, gateway
from tests.planner.builders import catalog, key, profile, task, variant
from tests.ports import free_port
from variants.catalog.memory import MemoryCatalog
from variants.errors import StaleEpoch
from variants.types import CatalogSnapshot, LengthBucket, TaskName

CATALOG = catalog([variant("a", 0.95)], [profile("a", 1.0)])


class Loop:
    """A leading control loop."""

    def __init__(self, trusted: str = "") -> None:
        self.catalog, self.now_s = MemoryCatalog(), 1e9
        self.epoch = self.catalog.acquire_leadership("here")
        self.known = CATALOG
        self.watch = self.another(trusted)

    def another(self, trusted: str) -> AccuracyWatch:
        self.journal = Journal(self.catalog)
        return AccuracyWatch(self.catalog, self.journal, lambda: self.now_s, trusted)

    def hears(
        self,
        gateway: str = "g1",
        *,
        right: int = 0,
        wrong: int = 0,
        classes: Sequence[list[int]] = (),
    ) -> bool:
        """A gateway has counted so many since it started."""
        report: dict[str, Any] = {"feedback": {"digits": {"a": [right, wrong]}}}
        if classes:
            report["feedback_by_class"] = {"digits": {"a": classes}}
        self.watch.count({gateway: report})
        return self.watch.judge(self.known)

    async def events(self) -> list[tuple[str, str]]:
        await self.journal.store_events()
        return [(one.kind, one.message) for one in reversed(self.catalog.events(100))]


async def test_what_contradicts_is_told_once_and_changes_nothing_by_itself() -> None:
    it = Loop()
    assert not it.hears(right=20, wrong=30)
    it.now_s += 1.0
    assert not it.hears(right=20, wrong=31)
    assert await it.events() == [
        (
            "accuracy_differs",
            "right 40 % of 50 rows by feedback, 95 % of 100 when measured; what was measured"
            " counts on; MODELLESS_TRUST_FEEDBACK says otherwise",
        )
    ]
    assert it.watch.at(CATALOG) is CATALOG
    assert it.watch.counted == {}


@pytest.mark.parametrize("trusted", ["digits", "all", "churn, digits"])
async def test_it_counts_for_the_tasks_that_were_named(trusted: str) -> None:
    it = Loop(trusted)
    assert it.hears(right=20, wrong=30)
    assert it.watch.counted == {key("a"): Finding(0.4, 50)}
    assert [one.accuracy for one in it.watch.at(CATALOG).variants] == [0.4]
    [(_, message)] = await it.events()
    assert message.endswith("; queries and plans go by it")
    assert not Loop("churn").hears(right=20, wrong=30)


async def test_what_is_said_of_it_no_more_is_what_was_measured_again() -> None:
    it = Loop("all")
    assert it.hears(right=20, wrong=30)
    it.now_s += 2 * SPAN_S + 1.0
    assert it.hears(right=20, wrong=30)
    assert it.watch.at(CATALOG) is CATALOG
    assert await it.events() == [
        ("accuracy_differs", (await it.events())[0][1]),
        (
            "accuracy_as_measured",
            "nothing was said of it for long: what was measured counts",
        ),
    ]


def test_differences_are_taken_by_gateway() -> None:
    it = Loop("all")
    for name in ("g1", "g2", "g1", "g2"):
        it.hears(name, right=5, wrong=10)
    assert it.watch.counted == {key("a"): Finding(1 / 3, 30)}
    it.now_s += GONE_S + 1.0
    it.hears("g2", right=5, wrong=10)
    it.hears("g1", right=0, wrong=30)  # so long after, it counts anew
    assert it.watch.counted == {key("a"): Finding(10 / 60, 60)}


def judged_by(metric: str, classes: int = 2) -> CatalogSnapshot:
    """The catalog with a task of so many classes."""
    outputs = (replace(task().outputs[0], shape=(classes,)),)
    return replace(CATALOG, tasks=(replace(task(), metric=metric, outputs=outputs),))


CLASSES = [[0, 200, 0, 200], [1, 0, 200, 0]]
"""All rows are taken for the first of two classes."""


@pytest.mark.parametrize(
    ("metric", "said"),
    [("balanced", "balanced accuracy 50 %"), ("f1", "macro F1 33.3 %")],
)
async def test_where_each_class_counts_alike_a_mean_over_classes_is_held_against_it(
    metric: str, said: str
) -> None:
    it = Loop("all")
    it.known = judged_by(metric)
    assert not it.hears(right=20, wrong=30)  # nothing of classes is known
    assert (it.watch.counted, it.watch.contradicted) == ({}, {})
    assert it.hears("g2", right=200, wrong=200, classes=CLASSES)
    assert it.watch.counted[key("a")].rows == 400
    [(kind, message)] = await it.events()
    assert kind == "accuracy_differs"
    assert message == (
        f"{said} on 400 rows by feedback, 95 % on 100 when measured; queries and plans go by it"
    )
    assert not it.hears("g2", right=200, wrong=200, classes=CLASSES)  # nothing counts twice
    assert it.watch.counted[key("a")].rows == 400


def test_of_more_classes_than_are_counted_feedback_contradicts_nothing() -> None:
    it = Loop("all")
    it.known = judged_by("balanced", MOST_CLASSES + 1)
    assert not it.hears(right=0, wrong=400, classes=[[0, 0, 400, 0]])


async def test_what_was_heard_of_classes_survives_the_control_loop() -> None:
    it = Loop("all")
    it.known = judged_by("balanced")
    it.hears(right=200, wrong=200, classes=CLASSES)
    it.now_s += KEEP_EVERY_S
    await it.watch.keep(it.epoch)
    it.watch = it.another("all")
    await it.watch.recall()
    assert it.hears(right=200, wrong=200, classes=CLASSES)
    assert it.watch.counted == {key("a"): Finding(0.5, 400)}


def test_all_buckets_of_a_task_are_meant_by_the_name_that_clients_ask() -> None:
    it = Loop("reviews")
    bucket = LengthBucket(of=TaskName("reviews"), length=16, axes=())
    it.known = replace(CATALOG, tasks=(replace(task(), bucket=bucket),))
    assert it.hears(wrong=30)


async def test_what_was_heard_survives_the_control_loop() -> None:
    it = Loop("all")
    it.hears(right=20, wrong=30)
    it.now_s += KEEP_EVERY_S
    await it.watch.keep(it.epoch)
    await it.events()
    it.watch = it.another("all")
    await it.watch.recall()
    assert it.watch.judge(it.known)
    assert it.watch.counted == {key("a"): Finding(0.4, 50)}
    assert it.hears(right=20, wrong=30) is False  # nothing counts twice, and nothing is told twice
    assert [kind for kind, _ in await it.events()] == ["accuracy_differs"]


async def test_another_control_loop_s_word_is_not_written_over() -> None:
    it = Loop("all")
    it.hears(wrong=30)
    it.now_s += KEEP_EVERY_S
    it.catalog.acquire_leadership("elsewhere")
    with pytest.raises(StaleEpoch):
        await it.watch.keep(it.epoch)


async def test_what_was_kept_by_something_else_is_left_alone() -> None:
    it = Loop("all")
    it.catalog.put_learned("feedback", 0.0, b'{"evidence": [[1]]}', epoch=it.epoch)
    await it.watch.recall()
    assert not it.watch.judge(it.known)


@pytest.mark.slow
async def test_queries_leave_a_variant_that_clients_say_is_wrong(tmp_path: Path) -> None:
    """The floor of a query holds by what clients get, and not by what was measured once."""
    port = free_port()
    async with (
        fleet(tmp_path, port=port, trust_feedback="digits") as it,
        gateway(it) as (_, client),
    ):
        cheap, dear = it.register("a"), it.register("b", profiled_ms=2.0)
        it.control()
        row = [9.0] + [0.0] * 63  # an echo answers with it, so the best class is the first

        async def answer() -> httpx.Response:
            body: dict[str, Any] = {"task": "digits", "inputs": [row]}
            body["slo"] = {"latency_ms": 10_000.0, "accuracy": 0.85}
            return await client.post("/v1/query", json=body)

        async def by(name: str) -> bool:
            got = await answer()
            return got.status_code == 200 and got.json()["variant"] == name

        async def held() -> bool:
            return {cheap, dear} <= {name for names in it.ready().values() for name in names}

        await eventually(held, "both variants")
        await eventually(lambda: by(cheap), "an answer by the cheaper one")

        async def left() -> bool:
            """Whether another variant answers than the one of which clients say that it is wrong,
            as is said of this answer."""
            got = await answer()
            if got.json()["variant"] != cheap:
                return True
            word = {"request_id": got.headers["X-Request-Id"], "labels": ["7"]}
            assert (await client.post("/v1/feedback", json=word)).json()["wrong"] == 1
            return False

        await eventually(left, "an answer by the other one")
        assert await by(dear)
        rows = (await client.get("/v1/tasks/digits/variants")).json()["variants"]
        counted = {one["name"]: (one["accuracy"], one["counted_accuracy"]) for one in rows}
        assert counted == {cheap: (0.9, 0.0), dear: (0.9, None)}
        assert "accuracy_differs" in it.kinds_of_events()
