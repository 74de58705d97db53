"""What is said to be changed every gateway goes by: no query is told otherwise."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from controlplane.access.key_changes import add
from controlplane.cli.known_everywhere import wait_until_known
from controlplane.gateway.gateway import Gateway
from controlplane.gateway.looks import Looks
from controlplane.live_state import LiveState
from controlplane.live_state.following import PATIENCE_S, UNASKED_S, taken_up
from controlplane.settings import load_settings
from tests.controlplane.serving import (
    FAST,
    TASK,
    Answer,
    Client,
    Known,
    Served,
    filled,
    query,
    request,
)
from tests.ports import free_port
from tests.undisturbed import undisturbed
from tests.workers import builders as workers
from variants.artifacts.store import FileArtifactStore
from variants.catalog.memory import MemoryCatalog
from variants.errors import StateUnavailable
from variants.types import TaskName

SLO = b'{"latency_ms": 77}'
DIGITS = replace(TASK, name=TaskName("digits"))


@pytest.fixture(autouse=True)
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gateways look at nothing by themselves for as long as a test takes."""
    monkeypatch.setattr("controlplane.gateway.gateway.POLL_S", 3_600.0)
    monkeypatch.setattr("controlplane.gateway.http.followed_keys.LOOK_S", 3_600.0)


@pytest.fixture
async def live(live_url: str) -> AsyncIterator[LiveState]:
    made = LiveState(live_url)
    yield made
    await made.close()


@asynccontextmanager
async def another(
    of: Served, made: Callable[[Gateway], None] = lambda _: None
) -> AsyncIterator[Gateway]:
    """A second gateway of the same installation; ``made`` is given it before it starts."""
    settings = of.gateway.settings.model_copy(update={"port": free_port()})
    secret = of.secret.read_bytes()
    gateway = Gateway(settings, of.gateway.catalog, of.gateway.store, secret)
    made(gateway)
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.stop()


async def listening(live: LiveState, count: int) -> None:
    """Return once so many gateways hear what is asked."""
    while await live.ask("nobody", {}) < count:  # noqa: ASYNC110 - Valkey tells nobody
        await asyncio.sleep(0.01)


def deaf(gateway: Gateway) -> None:
    """It hears no questions: its connection to the live state has just broken."""

    async def nothing(
        listening: Callable[[], None] = lambda: None,
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        await asyncio.Event().wait()
        yield "", {}

    gateway.live.questions = nothing  # type: ignore[method-assign]


def silent(gateway: Gateway) -> None:
    """It hears questions and answers none: its process has just stopped."""

    async def nothing(token: str, said: Mapping[str, Any]) -> None:
        pass

    gateway.live.answer = nothing  # type: ignore[method-assign]


async def changed(
    served: Served, method: str, path: str, body: bytes | None = None, port: int = 0
) -> Answer:
    """What comes of a request, at another gateway's port where that is given."""
    client = Client(*await asyncio.open_connection("127.0.0.1", port or served.port))
    async with client:
        client.send(request(method, path, body))
        return await client.answer()


async def reporting(live: LiveState, gateway: Gateway) -> None:
    """Return once it is known that there is this gateway."""
    while gateway.id not in await live.gateways():  # noqa: ASYNC110 - Valkey tells nobody
        await asyncio.sleep(0.01)


def register_digits(served: Served) -> None:
    catalog, store = served.gateway.catalog, served.gateway.store
    assert isinstance(catalog, MemoryCatalog)
    assert isinstance(store, FileArtifactStore)
    model = workers.double_model(served.folder / "another.onnx")
    filled(catalog, store, model, [Known(name=FAST, accuracy=0.9, p95_ms=1.0)], DIGITS)


async def test_what_was_registered_is_known_to_every_gateway_once_they_have_been_asked(
    served: Served, live: LiveState
) -> None:
    async with another(served) as other:
        await listening(live, 2)
        register_digits(served)
        assert await taken_up(live)
        for each in (served.gateway, other):
            assert "digits" in each.path.tasks
            assert "digits" in each.path.snapshot.tasks


async def test_a_command_that_writes_by_itself_returns_when_the_gateways_know_it(
    served: Served, live: LiveState
) -> None:
    await listening(live, 1)
    register_digits(served)
    await asyncio.to_thread(wait_until_known, served.gateway.settings)
    assert "digits" in served.gateway.path.tasks


def test_a_command_waits_for_nobody_where_nothing_runs(tmp_path: Path) -> None:
    began_s = monotonic()
    wait_until_known(load_settings(state_dir=tmp_path, redis_url=""))
    assert monotonic() - began_s < UNASKED_S


async def test_what_one_gateway_was_told_over_rest_all_go_by_when_it_answers(
    served: Served, live: LiveState
) -> None:
    async with another(served) as other:
        await listening(live, 2)
        answer = await changed(served, "PATCH", "/v1/tasks/letters/slo", SLO)
        assert answer.status == 200, answer.body
        for each in (served.gateway, other):
            assert each.path.tasks[TASK.name].slo.latency_ms == 77
        answer = await changed(served, "DELETE", "/v1/tasks/letters")
        assert answer.status == 200, answer.body
        for each in (served.gateway, other):
            assert TASK.name not in each.path.tasks
        assert (await served.ask(query(1))).error[1] == "TASK_NOT_FOUND"


async def test_a_key_that_was_made_a_moment_ago_opens_every_gateway(
    served: Served, live: LiveState
) -> None:
    async with another(served) as other:
        await listening(live, 2)
        add(served.gateway.settings.client_keys_path, "shop", 2.0)
        assert await taken_up(live)
        for each in (served.gateway, other):
            assert each.path.counts_clients


async def test_without_the_live_state_the_one_that_was_told_goes_by_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> int:
        raise StateUnavailable("the live state (Redis or Valkey) does not answer")

    monkeypatch.setattr(served.gateway.live, "ask", away)
    register_digits(served)
    began_s = monotonic()
    assert (await changed(served, "PATCH", "/v1/tasks/letters/slo", SLO)).status == 200
    assert served.gateway.path.tasks[TASK.name].slo.latency_ms == 77
    assert "digits" in served.gateway.path.tasks
    assert monotonic() - began_s < UNASKED_S  # no other one is on this machine


async def test_a_gateway_that_hears_no_question_goes_by_what_itself_was_told(
    served: Served, live: LiveState
) -> None:
    """Others hear it, and say that they have looked."""
    async with another(served, deaf) as other:
        await listening(live, 1)
        port = other.settings.port
        answer = await changed(served, "PATCH", "/v1/tasks/letters/slo", SLO, port)
        assert answer.status == 200, answer.body
        for each in (served.gateway, other):
            assert each.path.tasks[TASK.name].slo.latency_ms == 77


async def test_where_one_of_the_gateways_hears_no_question_it_is_not_known_everywhere(
    served: Served, live: LiveState
) -> None:
    async with another(served, deaf) as other:
        await listening(live, 1)
        await reporting(live, other)
        assert not await taken_up(live)
    assert await taken_up(live)  # it was told to stop


async def test_a_gateway_that_dies_while_a_change_waits_holds_it_up_for_seconds_at_most(
    served: Served, live: LiveState
) -> None:
    async with another(served, silent):
        await listening(live, 2)

        async def in_time() -> None:
            began_s = monotonic()
            answer = await changed(served, "PATCH", "/v1/tasks/letters/slo", SLO)
            assert answer.status == 200, answer.body
            assert monotonic() - began_s < PATIENCE_S + UNASKED_S + 1.0

        await undisturbed(in_time, at_most_s=0.5)
        assert served.gateway.path.tasks[TASK.name].slo.latency_ms == 77


async def test_what_was_changed_is_answered_though_it_cannot_be_taken_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is changed all the same: who is told of an error changes it once more."""

    async def broken() -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(served.gateway._looks, "_look", broken)
    assert (await changed(served, "PATCH", "/v1/tasks/letters/slo", SLO)).status == 200
    assert served.gateway.catalog.snapshot().tasks[0].slo.latency_ms == 77


async def test_twenty_changes_at_once_are_known_when_each_is_answered(
    served: Served, live: LiveState, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They share questions and looks: a question for each would need as many connections to the
    live state, and forty looks at each gateway."""
    async with another(served) as other:
        await listening(live, 2)
        marks, questions = Counter[int](), list[str]()
        ask = served.gateway.live.ask

        async def noted(token: str, question: Mapping[str, Any]) -> int:
            questions.append(token)
            return await ask(token, question)

        monkeypatch.setattr(served.gateway.live, "ask", noted)
        for each in (served.gateway, other):
            read = each.known.marks

            async def counted(each: Gateway = each, read: Any = read) -> Any:
                marks[each.settings.port] += 1
                return await read()

            monkeypatch.setattr(each.known, "marks", counted)
        answers = await asyncio.gather(
            *(changed(served, "PATCH", "/v1/tasks/letters/slo", SLO) for _ in range(20))
        )
        assert {answer.status for answer in answers} == {200}
        for each in (served.gateway, other):
            assert each.path.tasks[TASK.name].slo.latency_ms == 77
        assert len(questions) < 10
        assert max(marks.values()) <= 20


async def test_what_changes_nothing_waits_for_nobody(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> int:
        raise AssertionError("asked")

    monkeypatch.setattr(served.gateway.live, "ask", never)
    assert (await served.get("/v1/tasks")).status == 200
    assert (await changed(served, "DELETE", "/v1/tasks/none")).status == 404
    assert (await served.ask({"task": "letters"}, path="/v1/explain")).status in (200, 400)


async def test_a_look_counts_for_those_who_came_before_it_began() -> None:
    began, may_end, looked = asyncio.Event(), asyncio.Event(), list[int]()

    async def look() -> None:
        looked.append(len(looked))
        began.set()
        await may_end.wait()

    looks = Looks(look)
    first = asyncio.create_task(looks.look())
    await began.wait()
    later = [asyncio.create_task(looks.look()) for _ in range(3)]
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(first, *later)
    assert looked == [0, 1]  # one for the first, and one for the three


async def test_a_look_that_fails_has_failed_for_all_who_came_before_it_began() -> None:
    """Where a database takes seconds to fail, the last of twenty would wait for a minute."""
    looked = list[int]()

    async def look() -> None:
        looked.append(len(looked))
        await asyncio.sleep(0)
        raise StateUnavailable("away")

    looks = Looks(look)
    found = await asyncio.gather(*(looks.look() for _ in range(20)), return_exceptions=True)
    assert [type(one) for one in found] == 20 * [StateUnavailable]
    assert looked == [0, 1]  # one for the first, and one for the others


async def test_a_look_that_fails_counts_for_nobody_who_comes_later() -> None:
    fails = True

    async def look() -> None:
        if fails:
            raise StateUnavailable("away")

    looks = Looks(look)
    with pytest.raises(StateUnavailable):
        await looks.look()
    fails = False
    await asyncio.gather(looks.look(), looks.look())
