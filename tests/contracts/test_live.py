"""The live state over the embedded Valkey and over a real ``redis-server``."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import monotonic

import pytest
from redis import Redis
from redis import asyncio as aioredis
from redis.exceptions import TimeoutError as RedisTimeoutError

from controlplane.live_state import PREFIX, Led, LiveState
from controlplane.live_state import state as live_state
from controlplane.live_state.announcements import ANSWERS_TTL_S
from controlplane.live_state.connection import ASKED_AGAIN_S, Silence
from controlplane.live_state.state import (
    GATEWAY_TTL_S,
    HISTORY_TTL_S,
    OPERATION_TTL_S,
    REPLACING_TTL_S,
)
from controlplane.startup.valkey import EmbeddedValkey
from tests.controlplane.fleet import eventually
from variants.errors import StateUnavailable

W1 = {"id": "w1", "address": "unix:/w1", "device_kind": "cpu-1"}
W2 = {"id": "w2", "address": "unix:/w2", "device_kind": "cpu-1"}


@pytest.fixture(scope="module")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = EmbeddedValkey(tmp_path_factory.mktemp("live"))
    server.start()
    yield server.url
    server.stop()


TIMEOUT_S = 30.0
"""More than a server that runs needs for an answer on a machine that others keep busy."""


@pytest.fixture(params=["valkey", "redis"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server without keys."""
    fixture = {"valkey": "valkey_url", "redis": "redis_server_url"}[request.param]
    found: str = request.getfixturevalue(fixture)
    with Redis.from_url(found) as client:
        client.flushall()
        yield found
        client.flushall()


@pytest.fixture
async def live(url: str) -> AsyncIterator[LiveState]:
    state = LiveState(url, timeout_s=TIMEOUT_S)
    yield state
    await state.close()


async def test_it_answers(live: LiveState) -> None:
    await live.ping()


async def test_a_full_memory_is_read_and_says_that_it_takes_nothing(
    url: str, live: LiveState
) -> None:
    await live.put_gateway("g1", {"answered": 1})
    assert live.refused == ""
    with Redis.from_url(url) as server:
        policy = server.config_get("maxmemory-policy")["maxmemory-policy"]
        server.config_set("maxmemory-policy", "noeviction")  # the embedded one forgets instead
        server.config_set("maxmemory", 1)
        try:
            with pytest.raises(
                StateUnavailable, match=r"Valkey\) refuses: .*maxmemory"
            ) as of_gateway:
                await live.put_gateway("g1", {"answered": 2})
            assert live.refused == of_gateway.value.message
            assert "answered" not in live.refused
            assert "(command" not in live.refused.replace('"', "").replace("'", "")
            with pytest.raises(StateUnavailable, match=r"Valkey\) refuses: .*maxmemory"):
                await live.put_controller({})
            assert await live.gateways() == {"g1": {"answered": 1}}
            assert live.refused != ""
        finally:
            server.config_set("maxmemory", 0)
            server.config_set("maxmemory-policy", policy)
    await live.put_controller({})
    assert live.refused == ""


async def test_one_installation_has_it_until_it_is_silent_or_gives_it_up(live: LiveState) -> None:
    ours, successor, theirs = "aaa host controller#1", "aaa host2 controller#2", "bbb host x"
    assert await live.owner() == ""
    assert await live.claim(ours, 60) == ""
    assert await live.claim(theirs, 60) == ours == await live.owner()
    assert await live.claim(successor, 60) == ""
    await live.give_up(ours)  # not any more the one that has it
    assert await live.claim(theirs, 60) == successor
    await live.give_up(successor)
    assert await live.claim(theirs, 1) == ""

    async def free() -> bool:
        return not await live.owner()

    await eventually(free)


async def test_an_empty_one_knows_nothing(live: LiveState) -> None:
    assert await live.workers() is None
    assert await live.gateways() == {}
    assert await live.operation("o1") is None


async def test_the_directory_of_workers(live: LiveState) -> None:
    assert await live.put_workers(1, [W1])
    assert await live.workers() == {"epoch": 1, "workers": [W1]}
    assert await live.put_workers(2, [W1, W2])
    assert await live.workers() == {"epoch": 2, "workers": [W1, W2]}


async def test_an_older_epoch_is_ignored_unless_forced(live: LiveState) -> None:
    await live.put_workers(10, [W1])
    assert not await live.put_workers(9, [W2])
    assert await live.workers() == {"epoch": 10, "workers": [W1]}
    assert await live.put_workers(9, [W2], force=True)
    assert await live.workers() == {"epoch": 9, "workers": [W2]}


async def test_who_leads_claims_publishes_and_marks_at_once(live: LiveState) -> None:
    ours, theirs = "aaa host controller#1", "bbb host x"
    assert await live.lead(ours, 60, 2, [W1]) == Led(other="", published=True, empty=True)
    assert await live.lead(ours, 60, 2, [W2]) == Led(other="", published=True, empty=False)
    assert await live.lead(ours, 60, 1, [W1]) == Led(other="", published=False, empty=False)
    assert await live.lead(theirs, 60, 3, [W1]) == Led(other=ours, published=False, empty=False)
    assert await live.workers() == {"epoch": 2, "workers": [W2]}
    assert await live.owner() == ours
    await live.give_up(ours)
    assert (await live.lead(theirs, 60, 3, [W1])).published


async def test_what_is_no_owner_has_no_live_state(live: LiveState) -> None:
    await live._redis.set("modelless:installation", b"what another program wrote there")
    assert await live.claim("aaa host controller#1", 60) == ""
    assert await live.owner() == "aaa host controller#1"


async def test_of_two_that_write_at_once_the_newer_stays(url: str) -> None:
    states = [LiveState(url) for _ in range(8)]
    for _ in range(20):
        await asyncio.gather(*(s.put_workers(n, [W1]) for n, s in enumerate(states, 1)))
        assert await states[0].workers() == {"epoch": 8, "workers": [W1]}
        await states[0].put_workers(0, [], force=True)
    await asyncio.gather(*(state.close() for state in states))


async def test_notices_of_nodes_are_read_as_they_were_written_and_end_once_passed_on(
    live: LiveState, url: str
) -> None:
    await live.put_notice({"node": "a", "why": "it goes", "until_s": 0.0})
    async with aioredis.Redis.from_url(url) as hook:
        await hook.rpush(f"{PREFIX}notices", '{ "node": "b" }', "no JSON")
    first, *others = await live.notices()
    assert others == [b'{ "node": "b" }', b"no JSON"]
    for each in others:
        await live.noticed(each)
    assert await live.notices() == [first]


async def test_gateways_report_and_expire(live: LiveState, url: str) -> None:
    assert await live.put_gateway("g1", {"demand": {"a": 1}}) is None
    await live.put_controller({"turned_s": 1.0})
    assert await live.put_gateway("g2", {"demand": {}}) == {"turned_s": 1.0}
    await live.put_gateway("g1", {"demand": {"a": 2}})
    assert await live.gateways() == {"g1": {"demand": {"a": 2}}, "g2": {"demand": {}}}
    await live.put_gateway("g1", {"demand": {"a": 3}})
    assert await live.gateways() == {"g1": {"demand": {"a": 3}}, "g2": {"demand": {}}}
    async with aioredis.Redis.from_url(url) as client:
        assert 0 < await client.ttl("modelless:gateway:g1") <= GATEWAY_TTL_S
        await client.pexpire("modelless:gateway:g1", 1)
        await asyncio.sleep(0.05)
        assert await live.gateways() == {"g2": {"demand": {}}}
        assert await client.smembers("modelless:gateways") == {b"g2"}


async def test_a_server_that_goes_back_in_time_takes_no_gateway_s_counts_back(
    live: LiveState, url: str
) -> None:
    """Whoever takes differences would count all again: what a replica has that became the server
    may be seconds old."""
    older, newer = ({"at_s": at_s, "demand": {"a": rows}} for at_s, rows in ((1.0, 5), (2.0, 7)))
    await live.put_gateway("g1", newer)
    assert await live.gateways() == {"g1": newer}
    await live.put_gateway("g1", older)
    await live.put_gateway("g2", older)
    assert await live.gateways() == {"g1": newer, "g2": older}
    await live.put_gateway("g1", {**newer, "leaving": True})
    assert await live.gateways() == {"g1": {**newer, "leaving": True}, "g2": older}
    async with aioredis.Redis.from_url(url) as client:
        await client.flushall()
    assert await live.gateways() == {}
    await live.put_gateway("g1", older)
    assert await live.gateways() == {"g1": older}  # after it was gone nothing is known of it


async def test_of_the_history_the_last_samples_stay(
    live: LiveState, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_state, "MOST_SAMPLES", 3)
    assert await live.history() == []
    for slot in range(5):
        await live.put_history({"slot": slot, "tasks": {}})
    assert [sample["slot"] for sample in await live.history()] == [2, 3, 4]
    async with aioredis.Redis.from_url(url) as client:
        assert 0 < await client.ttl("modelless:history") <= HISTORY_TTL_S


async def test_what_is_being_replaced_expires(live: LiveState, url: str) -> None:
    assert await live.replacing() == frozenset()
    await live.put_replacing(["cpu-1", "gateways"])
    assert await live.replacing() == {"cpu-1", "gateways"}
    async with aioredis.Redis.from_url(url) as client:
        assert 0 < await client.ttl("modelless:replacing") <= REPLACING_TTL_S
    await live.end_replacing()
    assert await live.replacing() == frozenset()


async def test_operations_expire_after_a_day(live: LiveState, url: str) -> None:
    await live.put_operation("o1", {"state": "running"})
    assert await live.operation("o1") == {"state": "running"}
    await live.put_operation("o2", {"state": "failed"})
    assert await live.all_operations() == {"o1": {"state": "running"}, "o2": {"state": "failed"}}
    async with aioredis.Redis.from_url(url) as client:
        assert 0 < await client.ttl("modelless:operation:o1") <= OPERATION_TTL_S


async def test_whoever_waits_hears_of_changes(live: LiveState) -> None:
    heard: list[str] = []
    changes = live.changes()

    async def listen() -> None:
        async for what in changes:
            heard.append(what)

    listening = asyncio.create_task(listen())
    while not heard:
        await live.notify("catalog")
        await asyncio.sleep(0.01)
    heard.clear()
    await live.put_workers(1, [W1])
    await live.put_workers(1, [W1])  # nothing new: no listener is woken
    await live.put_workers(1, [W2])
    await live.notify("plan")
    await eventually(lambda: "plan" in heard)
    assert [what for what in heard if what != "catalog"] == ["workers", "workers", "plan"]
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_gateways_ask_each_other_and_answers_go_to_who_asked(
    live: LiveState, url: str
) -> None:
    assert await live.ask("nobody-hears", {}) == 0

    async def listen(name: str) -> None:
        async for token, question in live.questions():
            await live.answer(token, {name: question["n"]})

    listening = [asyncio.create_task(listen(name)) for name in ("a", "b")]
    while await live.ask("first", {"n": 1}) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert await live.ask("second", {"n": 2}) == 2
    told = [await live.answers("second", 1.0) for _ in range(2)]
    assert sorted(told, key=str) == [{"a": 2}, {"b": 2}]
    assert await live.answers("second", 0.01) is None
    async with aioredis.Redis.from_url(url) as client:
        assert 0 < await client.ttl("modelless:answers:first") <= ANSWERS_TTL_S
    for one in listening:
        one.cancel()
    await asyncio.gather(*listening, return_exceptions=True)


@pytest.mark.parametrize("value", [b"{", b"[]", b"7"])
async def test_what_somebody_else_wrote_is_refused(live: LiveState, url: str, value: bytes) -> None:
    async with aioredis.Redis.from_url(url) as client:
        await client.set("modelless:workers", value)
    with pytest.raises(StateUnavailable):
        await live.workers()
    assert await live.put_workers(1, [W1])
    assert await live.workers() == {"epoch": 1, "workers": [W1]}


async def call_each(live: LiveState) -> list[str]:
    """What every method raises; empty where it raised nothing."""
    calls = (
        live.ping(),
        live.put_workers(1, []),
        live.workers(),
        live.put_gateway("g1", {}),
        live.gateways(),
        live.put_operation("o1", {}),
        live.operation("o1"),
        live.all_operations(),
        live.notify("plan"),
        anext(live.changes()),
    )
    results = await asyncio.gather(*calls, return_exceptions=True)
    return [type(result).__name__ for result in results if isinstance(result, Exception)]


async def test_a_killed_server_is_told_at_once_and_used_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    server = EmbeddedValkey(tmp_path)
    server.start()
    live = LiveState(server.url, timeout_s=TIMEOUT_S)
    await live.put_workers(1, [W1])
    listening = asyncio.ensure_future(anext(live.changes()))
    await asyncio.sleep(0.05)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(StateUnavailable):
        await asyncio.wait_for(listening, TIMEOUT_S)
    began_s = monotonic()
    assert await call_each(live) == ["StateUnavailable"] * 10
    assert monotonic() - began_s < TIMEOUT_S

    server.start()
    assert await live.workers() is None
    assert await live.put_workers(1, [W1])
    listening = asyncio.ensure_future(anext(live.changes()))
    while not listening.done():
        await live.notify("plan")
        await asyncio.sleep(0.01)
    assert await listening == "plan"
    await live.close()
    server.stop()


async def test_a_server_that_hangs_is_given_up_in_bounded_time(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path)
    server.start()
    live = LiveState(server.url, timeout_s=0.3)

    async def answers() -> bool:
        try:
            await live.ping()
        except StateUnavailable:
            return False
        return True

    await eventually(answers)
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        assert await asyncio.wait_for(call_each(live), TIMEOUT_S) == ["StateUnavailable"] * 10
        await asyncio.sleep(ASKED_AGAIN_S)
        waiting = asyncio.ensure_future(live.ping())  # one caller waits for it
        await asyncio.sleep(0)
        refused = await asyncio.gather(*(live.workers() for _ in range(9)), return_exceptions=True)
        assert not waiting.done()
        assert {str(one) for one in refused} == {
            "the live state (Redis or Valkey) does not answer: no reply within 0.3 s"
        }
        with pytest.raises(StateUnavailable):
            await waiting
    finally:
        os.kill(server.pid, signal.SIGCONT)
    await eventually(answers)
    await live.close()
    server.stop()


def test_while_a_server_is_silent_one_caller_at_a_time_asks_it() -> None:
    silence = Silence()
    assert [silence.asks(0.0), silence.asks(0.0)] == [True, True]
    silence.waited(2.0)
    silence.waited(2.0)
    again_s = 2.0 + ASKED_AGAIN_S
    assert [silence.asks(2.0), silence.asks(again_s), silence.asks(again_s)] == [False, True, False]
    silence.left()  # its client hung up
    assert [silence.asks(again_s), silence.asks(again_s)] == [True, False]
    silence.waited(5.0)
    assert silence.asks(5.0) is False
    silence.replied()
    assert [silence.asks(5.0), silence.asks(5.0)] == [True, True]


async def test_a_connection_that_is_not_made_in_time_is_silence_too() -> None:
    """As where the machine of the server is gone."""
    live = LiveState("redis://127.0.0.1:1")

    async def connect() -> None:
        raise RedisTimeoutError("Timeout connecting to server")

    with pytest.raises(StateUnavailable, match="Timeout connecting to server"):
        await live._call(connect())
    with pytest.raises(StateUnavailable, match="no reply within 2 s"):
        await live.ping()
    await asyncio.sleep(ASKED_AGAIN_S)
    with pytest.raises(StateUnavailable, match="Connect"):  # refused: that is said at once
        await live.ping()
    with pytest.raises(StateUnavailable, match="Connect"):
        await live.ping()
    await live.close()
