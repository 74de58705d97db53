"""A client's word finds the gateway that gave the answer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import orjson
import pytest

from controlplane.gateway.canaries.arms import Trial
from controlplane.gateway.canaries.feedback import Feedback
from controlplane.gateway.canaries.recent_answers import RecentAnswers
from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.reports.demand_report import feedback_by_class
from controlplane.live_state import LiveState
from tests.variants.catalog_builders import task
from variants.errors import Conflict, InvalidInput, NotFound, StateUnavailable

SAID = {"task": "digits", "variant": "mlp", "right": 1, "wrong": 1}


class Gateway:
    """What one gateway has for it, and a trial that its answers count for."""

    def __init__(self, folder: Path, name: str, live: LiveState | None = None) -> None:
        self.answers, self.counters, self.trial = RecentAnswers(), Counters(), Trial()
        self.feedback = Feedback(folder, name, self.answers, self.counters, lambda: 0.0, live)

    def answered(self, id_: str, metric: str = "top1") -> None:
        scores = np.eye(3, dtype=np.float32)[[0, 1]]
        of = task(metric=metric)
        self.answers.note(id_.encode(), of, "mlp", [scores], self.trial.canary, 0.0)

    @property
    def counted(self) -> tuple[int, int]:
        variant = self.counters.task("digits").of("mlp")
        return variant.right, variant.wrong


@pytest.fixture
async def gateways(short_folder: Path) -> AsyncIterator[list[Gateway]]:
    made = [Gateway(short_folder, name) for name in ("one", "two", "three")]
    for each in made:
        await each.feedback.start()
    yield made
    for each in made:
        await each.feedback.stop()


async def test_it_counts_once_where_the_answer_was_given(gateways: list[Gateway]) -> None:
    first, second, _ = gateways
    second.answered("r-1")
    assert await first.feedback.give("r-1", ["a", "a"]) == {**SAID, "anew": True}
    assert await second.feedback.give("r-1", ["a", "a"]) == {**SAID, "anew": False}
    assert [each.counted for each in gateways] == [(0, 0), (1, 1), (0, 0)]
    assert (second.trial.canary.right, second.trial.canary.wrong) == (1, 1)


async def test_the_other_gateway_s_refusal_comes_back_with_its_type(
    gateways: list[Gateway],
) -> None:
    first, second, _ = gateways
    second.answered("r-1")
    with pytest.raises(InvalidInput, match="an answer with 2 rows"):
        await first.feedback.give("r-1", ["a"])
    await first.feedback.give("r-1", ["a", "b"])
    with pytest.raises(Conflict):
        await first.feedback.give("r-1", ["b", "b"])


async def test_what_nobody_knows_is_not_found(gateways: list[Gateway]) -> None:
    with pytest.raises(NotFound, match="no answer with this request id"):
        await gateways[0].feedback.give("r-1", ["a"])
    for odd in (("\ud800", ["a"]), ("r-1", ["\ud800"])):
        with pytest.raises(NotFound):
            await gateways[0].feedback.give(*odd)
    gateways[1].answered("r-1")
    await gateways[1].feedback.stop()
    with pytest.raises(NotFound):
        await gateways[0].feedback.give("r-1", ["a", "a"])


# -- on several machines: gateways that share a live state and no folder ---------------------------


@pytest.fixture
async def live(live_url: str) -> AsyncIterator[LiveState]:
    live = LiveState(live_url)
    yield live
    await live.close()


@pytest.fixture
async def far(short_folder: Path, live: LiveState) -> AsyncIterator[list[Gateway]]:
    made = [Gateway(short_folder / name, name, live) for name in ("one", "two", "three")]
    listening = [asyncio.create_task(_answer(each, live)) for each in made]
    async with asyncio.timeout(60):
        while await live.ask("does anybody hear", {}) < len(made):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    yield made
    for one in listening:
        one.cancel()
    await asyncio.gather(*listening, return_exceptions=True)


async def test_a_word_reaches_the_machine_that_gave_the_answer(far: list[Gateway]) -> None:
    """It was `NOT_FOUND` at any other."""
    first, second, third = far
    second.answered("r-1")
    assert await first.feedback.give("r-1", ["a", "a"]) == {**SAID, "anew": True}
    assert await third.feedback.give("r-1", ["a", "a"]) == {**SAID, "anew": False}
    assert [each.counted for each in far] == [(0, 0), (1, 1), (0, 0)]
    assert (second.trial.canary.right, second.trial.canary.wrong) == (1, 1)
    with pytest.raises(InvalidInput, match="an answer with 2 rows"):
        await first.feedback.give("r-1", ["a"])
    with pytest.raises(Conflict):
        await third.feedback.give("r-1", ["b", "b"])


async def test_what_no_machine_knows_is_not_found_once_all_have_said_so(
    far: list[Gateway],
) -> None:
    with pytest.raises(NotFound, match="no answer with this request id"):
        await far[0].feedback.give("r-2", ["a"])


async def test_one_that_does_not_say_leaves_it_open(far: list[Gateway], live: LiveState) -> None:
    silent = asyncio.create_task(_listen(live))
    async with asyncio.timeout(60):
        while await live.ask("does anybody hear", {}) <= len(far):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    with pytest.raises(StateUnavailable, match="not all gateways of other machines"):
        await far[0].feedback.give("r-3", ["a"])
    silent.cancel()
    await asyncio.gather(silent, return_exceptions=True)


async def _answer(gateway: Gateway, live: LiveState) -> None:
    """Answer what others ask, as a running gateway does."""
    assert gateway.feedback.elsewhere is not None
    async for token, word in live.questions():
        await gateway.feedback.elsewhere.answer(token, word)


async def _listen(live: LiveState) -> None:
    async for _ in live.questions():
        pass


async def test_without_the_live_state_it_is_open_as_well(tmp_path: Path) -> None:
    live = LiveState(f"unix://{tmp_path}/none")
    alone = Gateway(tmp_path, "one", live)
    alone.answered("r-1")
    assert await alone.feedback.give("r-1", ["a", "a"]) == {**SAID, "anew": True}
    with pytest.raises(StateUnavailable):
        await alone.feedback.give("r-2", ["a"])
    await live.close()


async def test_rows_are_counted_by_class_where_each_counts_alike(gateways: list[Gateway]) -> None:
    first, second, _ = gateways
    second.answered("r-1", "balanced")
    assert await first.feedback.give("r-1", ["a", "c"]) == {**SAID, "anew": True}
    await first.feedback.give("r-1", ["a", "c"])
    counted = second.counters.task("digits").of("mlp")
    assert counted.classes == {0: [1, 0, 0], 2: [0, 1, 0], 1: [0, 0, 1]}

    total = Counters()
    for _ in range(2):
        told = orjson.dumps(second.counters.plain(), option=orjson.OPT_NON_STR_KEYS)
        total.add(orjson.loads(told))
    assert total.task("digits").of("mlp").classes == {0: [2, 0, 0], 2: [0, 2, 0], 1: [0, 0, 2]}
    assert feedback_by_class(second.counters.tasks) == {
        "digits": {"mlp": [[0, 1, 0, 0], [1, 0, 0, 1], [2, 0, 1, 0]]}
    }
