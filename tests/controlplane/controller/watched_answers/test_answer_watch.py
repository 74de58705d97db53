"""What the control loop makes of the answers that workers count, over a catalog in memory."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from controlplane.controller.events.journal import Journal
from controlplane.controller.watched_answers.answer_watch import KEEP_EVERY_S, NAME, AnswerWatch
from tests.planner.builders import catalog, profile, task, variant
from variants.catalog.memory import MemoryCatalog
from variants.errors import StaleEpoch
from variants.types import AcceptedAnswers, ReplicaState, TaskName, VariantName
from workers.types import ReplicaStatus, WorkerStatus

SPAN_S = 100.0
CLASSES = 4
EVEN, OTHER = (25, 25, 25, 25), (55, 25, 10, 10)
TASK = replace(
    task(),
    labels=("cat", "dog", "horse", "cow"),
    outputs=(replace(task().outputs[0], shape=(CLASSES,)),),
)


def worker(name: str, *replicas: ReplicaStatus) -> WorkerStatus:
    return WorkerStatus(
        worker=name, device_kind="cpu-2", memory_mib=100.0, reserved_mib=0.0, draining=False,
        backlog_us=0, busy_ratio=0.0, replicas=replicas,
    )  # fmt: skip


class Loop:
    """A leading control loop, and one worker that has the variant ``a``."""

    def __init__(self) -> None:
        self.catalog, self.now_s = MemoryCatalog(), 1e9
        self.epoch = self.catalog.acquire_leadership("here")
        known = catalog([variant("a", 0.95)], [profile("a", 1.0)])
        self.known = replace(known, tasks=(TASK,))
        self.counted = [0] * CLASSES
        self.loaded_s, self.load_no = self.now_s, 1
        self.watch = self.another()

    def another(self) -> AnswerWatch:
        self.journal = Journal(self.catalog)
        return AnswerWatch(self.catalog, self.journal, lambda: self.now_s, SPAN_S)

    def status(self, answered: Sequence[int]) -> ReplicaStatus:
        return ReplicaStatus(
            task=TaskName("digits"), variant=VariantName("a"), state=ReplicaState.READY,
            memory_mib=1.0, answered=tuple(answered), load_no=self.load_no,
            loaded_for_s=self.now_s - self.loaded_s,
        )  # fmt: skip

    def load_anew(self) -> None:
        self.counted, self.loaded_s = [0] * CLASSES, self.now_s
        self.load_no += 1

    def seconds(self, count: int, answers: Sequence[int]) -> None:
        """So many of each class are answered in each second."""
        for _ in range(count):
            self.now_s += 1.0
            self.counted = [a + b for a, b in zip(self.counted, answers, strict=True)]
            self.watch.look([worker("w1", self.status(self.counted))])
            self.watch.judge(self.known)

    async def events(self) -> list[tuple[str, str]]:
        await self.journal.store_events()
        return [(one.kind, one.message) for one in reversed(self.catalog.events(100))]


async def test_what_has_changed_is_told_once_with_the_classes_and_so_is_its_end() -> None:
    it = Loop()
    it.seconds(150, EVEN)
    assert await it.events() == []
    it.seconds(100, OTHER)
    it.seconds(400, EVEN)
    (changed, words), (as_before, _) = await it.events()
    assert (changed, as_before) == ("answers_changed", "answers_as_before")
    assert "fall into other classes than of its first 10,000: cat: 25 % before, 30.4 % now" in words
    assert words.endswith("which says nothing of whether they are right")


async def test_what_is_known_is_told_of_each_variant() -> None:
    it = Loop()
    it.known = replace(
        it.known, variants=tuple(replace(v, answered=(70, 10, 10, 10)) for v in it.known.variants)
    )
    it.seconds(50, EVEN)
    (told,) = it.watch.told
    assert (told["task"], told["variant"], told["complete"]) == ("digits", "a", False)
    it.seconds(100, EVEN)
    (told,) = it.watch.told
    assert (told["changed"], told["moved"], told["differs"]) == (False, 0.0, True)
    assert told["from_held_out"] == pytest.approx(0.45)
    assert told["differences"][0] == {"classes": "cat", "before": 0.7, "now": 0.25}
    # Judged by other rows, without another answer.
    it.known = replace(
        it.known, variants=tuple(replace(v, answered=EVEN) for v in it.known.variants)
    )
    it.watch.judge(it.known)
    assert it.watch.told[0]["differs"] is False


def test_what_a_worker_says_again_counts_once_and_a_new_load_counts_anew() -> None:
    it = Loop()
    it.seconds(10, EVEN)
    it.watch.look([worker("w1", it.status(it.counted))])
    it.load_anew()
    it.seconds(5, EVEN)
    it.watch.look([worker("w1", it.status(it.counted)), worker("w2", it.status(EVEN))])
    it.watch.judge(it.known)
    assert it.watch.told[0]["first_rows"] == 1_600


async def test_it_survives_the_control_loop() -> None:
    it = Loop()
    it.seconds(150, EVEN)
    await it.watch.keep(it.epoch)
    it.watch = it.another()
    await it.watch.recall()
    it.now_s += 2.0
    it.seconds(1, EVEN)
    # What was answered while none led is known as counted, and not taken for new.
    assert it.watch.told[0]["first_rows"] == 10_000
    it.seconds(100, OTHER)
    assert [kind for kind, _ in await it.events()] == ["answers_changed"]
    it.now_s += KEEP_EVERY_S
    it.catalog.acquire_leadership("elsewhere")
    with pytest.raises(StaleEpoch):
        await it.watch.keep(it.epoch)


def accepted(since_s: float) -> AcceptedAnswers:
    return AcceptedAnswers(
        task=TaskName("digits"), variant=VariantName("a"), since_s=since_s, at_s=1e9
    )


async def changed() -> Loop:
    """A loop that has told of a change."""
    it = Loop()
    it.seconds(150, EVEN)
    it.seconds(100, OTHER)
    assert [kind for kind, _ in await it.events()] == ["answers_changed"]
    return it


async def test_of_what_an_operator_accepts_what_is_normal_is_learned_anew() -> None:
    it = await changed()
    since_s = it.watch.told[0]["since_s"]
    it.watch.accept([accepted(since_s)])
    it.watch.judge(it.known)
    (told,) = it.watch.told
    assert (told["changed"], told["since_s"], told["complete"]) == (False, None, False)
    assert (told["first_rows"], it.watch.changed) == (0, False)
    it.seconds(300, OTHER)
    assert it.watch.told[0]["first_rows"] == 10_000
    assert len(await it.events()) == 1
    it.seconds(100, EVEN)  # what was normal before is not any more
    assert [kind for kind, _ in await it.events()] == ["answers_changed"] * 2


async def test_a_word_of_another_change_accepts_nothing() -> None:
    it = await changed()
    since_s = it.watch.told[0]["since_s"]
    it.watch.accept([accepted(since_s - 1.0), accepted(since_s + 1e6)])
    it.watch.accept([replace(accepted(since_s), variant=VariantName("b"))])
    assert it.watch.changed


async def test_a_word_holds_for_the_control_loop_that_takes_over() -> None:
    """Whether the one before had heard it, or not; what is told is kept at once for that."""
    it = await changed()
    await it.watch.keep(it.epoch)
    since_s = it.watch.told[0]["since_s"]
    it.watch = it.another()
    await it.watch.recall()
    it.watch.accept([accepted(since_s)])
    assert not it.watch.changed
    await it.watch.keep(it.epoch)
    it.watch = it.another()
    await it.watch.recall()
    it.watch.accept([accepted(since_s)])  # the catalog has it on
    it.seconds(300, OTHER)
    assert (it.watch.told[0]["first_rows"], len(await it.events())) == (10_000, 1)


async def test_a_change_that_an_earlier_release_kept_can_be_accepted() -> None:
    it = await changed()
    await it.watch.keep(it.epoch)
    _, kept = it.catalog.learned(NAME) or (0.0, b"")
    ((task, name, plain),) = json.loads(kept)
    del plain["changed_s"]
    body = json.dumps([[task, name, plain]]).encode()
    it.catalog.put_learned(NAME, 0.0, body, epoch=it.epoch)
    it.watch = it.another()
    await it.watch.recall()
    it.watch.judge(it.known)
    assert it.watch.told[0]["since_s"] == 0.0
    it.watch.accept([accepted(0.0)])
    assert not it.watch.changed


async def test_what_was_kept_by_something_else_is_left_alone() -> None:
    it = Loop()
    it.catalog.put_learned(NAME, 0.0, b'[["digits", "a", {"first": [1]}]]', epoch=it.epoch)
    await it.watch.recall()
    it.watch.judge(it.known)
    assert it.watch.told == []


def test_of_a_variant_that_is_gone_nothing_is_said_or_kept() -> None:
    it = Loop()
    it.seconds(5, EVEN)
    it.watch.judge(replace(it.known, variants=()))
    assert it.watch.told == []
    assert (it.watch._seen, it.watch._answers) == ({}, {})
