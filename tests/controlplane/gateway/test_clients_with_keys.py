"""Clients with keys: what a key opens, how it is counted, and that a modest client is answered."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from controlplane.access import client_keys
from controlplane.access.client_keys import ClientKey, KeysOfHead, Role, read, told
from controlplane.access.key_changes import add, end_rotation, remove, rotate, rotate_token
from controlplane.gateway.counting.client_counters import OldKeyUse
from controlplane.gateway.http.access import Access
from controlplane.gateway.http.asgi import everywhere
from controlplane.gateway.http.followed_keys import ASK_S, FollowedKeys
from tests.controlplane.gateway.grpc.calls import connected, request
from tests.controlplane.serving import FAST, Client, Known, Served, post, query, serving, until
from tests.ports import free_port
from variants.errors import InvalidInput, StateUnavailable

TOKEN = "sixteen characters"
PATIENT = "patient-v1-echo-fp32"
"""A batch takes 200 ms."""


def bearer(key: str) -> list[tuple[str, str]]:
    return [("Authorization", f"Bearer {key}")]


async def asked(client: Client, key: str) -> int:
    client.send(post(query(1), headers=bearer(key)))
    return (await client.answer()).status


async def rows(served: Served) -> list[dict[str, Any]]:
    """What ``/v1/clients`` says."""
    answer = await served.get("/v1/clients", headers=bearer(TOKEN))
    found: list[dict[str, Any]] = answer.json["clients"]
    return found


@pytest.fixture
async def guarded(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    """A gateway with a token, and gRPC."""
    async with serving(short_folder, live_url, grpc_port=free_port(), api_token=TOKEN) as running:
        await running.worker("w1", FAST)
        yield running


async def test_a_key_of_the_metrics_opens_them_and_nothing_else(guarded: Served) -> None:
    key = add(guarded.gateway.settings.client_keys_path, "prometheus", role=Role.METRICS)
    client = await guarded.client()

    async def status(path: str) -> int:
        return (await guarded.get(path, headers=bearer(key))).status

    for _ in range(1_000):  # until the file has been read
        if await status("/metrics") == 200:
            break
        await asyncio.sleep(0.05)
    for path in ("/v1/tasks", "/v1/clients", "/v2/models/letters", "/openapi.json"):
        assert await status(path) == 403, path
    assert await status("/v2/health/ready") == 200
    posted = await guarded.ask(b"", path="/metrics", headers=bearer(key))
    assert posted.error[1:] == ("FORBIDDEN", "this key opens /metrics and nothing else")
    for _ in range(2):
        assert await asked(client, key) == 403
        client = await guarded.client()
    assert not guarded.gateway.path.counts_clients
    assert await rows(guarded) == []
    async with connected(guarded.gateway.settings.grpc_port) as stubs:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stubs.infer(request(model_version=FAST), (("authorization", f"Bearer {key}"),))
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_key_opens_queries_and_nothing_else(guarded: Served) -> None:
    file = guarded.gateway.settings.client_keys_path
    key = add(file, "shop")
    client = await guarded.client()
    await until(lambda: guarded.gateway.path.counts_clients)
    for number in range(3):  # the third by a head that is known
        assert await asked(client, key) == 200, number
    for path, status in (
        ("/v2/models/letters", 200),
        ("/v2/health/ready", 200),
        ("/v1/models", 200),
        ("/v1/models/letters/fast", 403),
        ("/v1/tasks", 403),
        ("/v1/clients", 403),
        ("/metrics", 403),
    ):
        assert (await guarded.get(path, headers=bearer(key))).status == status, path
    load = await guarded.ask(b"", path="/v2/repository/models/letters/load", headers=bearer(key))
    assert load.error[1:] == ("FORBIDDEN", "a client's key opens queries and nothing else")
    for wrong in ("mk-no", key + "x", ""):
        assert (await guarded.ask(query(1), headers=bearer(wrong))).status == 401
    assert (await guarded.ask(query(1))).status == 401
    assert (await guarded.ask(query(1), headers=bearer(TOKEN))).status == 200
    assert await rows(guarded) == [
        {
            "name": "",
            "weight": 1.0,
            "asked": 1,
            "answered": 1,
            "refused": 0,
            "old_key": None,
        },
        {
            "name": "shop",
            "weight": 1.0,
            "asked": 3,
            "answered": 3,
            "refused": 0,
            "old_key": None,
        },
    ]
    metrics = (await guarded.get("/metrics", headers=bearer(TOKEN))).body.decode()
    assert 'modelless_client_queries_total{client="shop",outcome="answered"} 3.0' in metrics
    assert key not in metrics
    add(file, "batch", 2.0)
    remove(file, "shop")
    batch = {
        "name": "batch", "weight": 2.0, "asked": 0, "answered": 0, "refused": 0, "old_key": None,
    }  # fmt: skip
    await until(lambda: "batch" in guarded.gateway.path.counters.clients)
    assert (await rows(guarded))[1:] == [batch]
    metrics = (await guarded.get("/metrics", headers=bearer(TOKEN))).body.decode()
    assert 'modelless_client_queries_total{client="shop",outcome="answered"} 3.0' in metrics
    remove(file, "batch")
    await until(lambda: not guarded.gateway.path.counts_clients)
    assert await asked(client, key) == 401
    assert await rows(guarded) == []


async def test_a_file_that_is_wrong_changes_nothing(
    guarded: Served, caplog: pytest.LogCaptureFixture
) -> None:
    file = guarded.gateway.settings.client_keys_path
    key = add(file, "shop")
    await until(lambda: guarded.gateway.path.counts_clients)
    file.write_text("shop\n")
    await until(lambda: "the keys of clients stay as they were" in caplog.text)
    assert (await guarded.ask(query(1), headers=bearer(key))).status == 200
    told = (await guarded.get("/v1/plan", headers=bearer(TOKEN))).json["client_keys"]
    assert told["level"] == "keys_wrong"
    assert "this gateway goes on with the keys that it has" in told["sentence"]
    assert "line 1" in told["sentence"]
    file.write_text("")
    while (await guarded.get("/v1/plan", headers=bearer(TOKEN))).json["client_keys"]["sentence"]:
        pass


async def test_a_key_is_changed_without_a_query_lost(guarded: Served) -> None:
    """Both keys are the same client's until the old one is taken back."""
    file = guarded.gateway.settings.client_keys_path
    old = add(file, "shop")
    await until(lambda: guarded.gateway.path.counts_clients)
    client = await guarded.client()
    assert await asked(client, old) == 200
    new = rotate(file, "shop")
    while (await guarded.get("/v2/models/letters", headers=bearer(new))).status != 200:
        pass
    assert [await asked(client, key) for key in (old, new, old, new)] == [200] * 4
    assert guarded.gateway.path.counters.client("shop").answered == 5
    end_rotation(file, "shop")
    while (await guarded.get("/v2/models/letters", headers=bearer(old))).status == 200:
        pass
    assert [await asked(client, key) for key in (new, old)] == [200, 401]


async def test_the_operator_s_token_is_changed_while_queries_are_answered(guarded: Served) -> None:
    file, client = guarded.gateway.settings.client_keys_path, await guarded.client()
    assert await asked(client, TOKEN) == 200
    new = rotate_token(file, TOKEN)

    async def opens(token: str) -> bool:
        listed = await guarded.get("/v1/tasks", headers=bearer(token))
        return listed.status == 200

    while not await opens(new):
        pass
    assert [await asked(client, token) for token in (TOKEN, new, TOKEN, new)] == [200] * 4
    assert not guarded.gateway.path.counts_clients
    assert await rows(guarded) == []
    end_rotation(file, client_keys.TOKEN)
    while await opens(TOKEN):
        pass
    assert [await asked(client, token) for token in (new, TOKEN)] == [200, 401]
    assert (await guarded.ask(query(1))).status == 401
    async with connected(guarded.gateway.settings.grpc_port) as stubs:
        await stubs.infer(request(model_version=FAST), (("authorization", f"Bearer {new}"),))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stubs.infer(request(model_version=FAST), (("authorization", f"Bearer {TOKEN}"),))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    remove(file, client_keys.TOKEN)
    while not await opens(TOKEN):
        pass
    assert not await opens(new)


async def test_whether_the_old_key_is_still_used_is_told(guarded: Served) -> None:
    """By who has it: so it is known when to take it back. One that was old before counts anew."""
    file = guarded.gateway.settings.client_keys_path
    first = add(file, "shop")
    await until(lambda: guarded.gateway.path.counts_clients)
    client = await guarded.client()

    async def changed() -> str:
        new = rotate(file, "shop")
        while (await guarded.get("/v2/models/letters", headers=bearer(new))).status != 200:
            pass
        return new

    async def old_key() -> Any:
        [row] = [row for row in await rows(guarded) if row["name"] == "shop"]
        return row["old_key"]

    assert await asked(client, first) == 200
    assert await old_key() is None
    second = await changed()
    assert await asked(client, second) == 200
    assert (await old_key())["used_at"] is None
    assert await asked(client, first) == 200
    assert (await old_key())["used_at"] >= (await old_key())["watched_since"]
    end_rotation(file, "shop")
    while await asked(client, first) == 200:
        pass
    assert await old_key() is None
    await changed()
    assert (await old_key())["used_at"] is None


async def test_whether_the_operator_s_old_token_is_still_used_is_told(
    short_folder: Path, live_url: str
) -> None:
    """By how many requests, and when last: queries over one connection, and others."""
    port, token = free_port(), "a token that no other test has"
    async with serving(short_folder, live_url, grpc_port=port, api_token=token) as running:
        await running.worker("w1", FAST)
        await uses_of_the_old_token(running, token)


async def uses_of_the_old_token(guarded: Served, old: str) -> None:
    file, client = guarded.gateway.settings.client_keys_path, await guarded.client()

    async def told(token: str) -> Any:
        answer = await guarded.get("/v1/clients", headers=bearer(token))
        return answer.json["old_token"]

    assert await asked(client, old) == 200
    assert await told(old) is None
    new = rotate_token(file, old)
    while (await guarded.get("/v1/tasks", headers=bearer(new))).status != 200:
        pass
    assert (await told(new))["used_at"] is None
    for _ in range(5):  # a head that is known is permitted without a look at its token
        assert await asked(client, old) == 200
        assert await asked(client, new) == 200
    first = await told(new)
    assert (first["requests"], first["used_at"] >= first["watched_since"]) == (5, True)
    assert (await guarded.get("/v1/tasks", headers=bearer(old))).status == 200
    async with connected(guarded.gateway.settings.grpc_port) as stubs:
        await stubs.infer(request(model_version=FAST), (("authorization", f"Bearer {old}"),))
    assert (await told(new))["requests"] == 7
    metrics = (await guarded.get("/metrics", headers=bearer(new))).body.decode()
    assert 'modelless_old_key_used_timestamp_seconds{client="api-token"} 1' in metrics

    digest, counts = read(file)[0].digest.hex(), [0]
    while counts != [7]:  # what gateways of other machines read
        reports = (await guarded.gateway.live.gateways()).values()
        counts = [use[2] for one in reports if (use := one.get("old_keys", {}).get(digest))]
    end_rotation(file, client_keys.TOKEN)
    while await told(new) is not None:
        pass


def test_gateways_of_other_machines_say_whether_an_old_key_is_used() -> None:
    here = OldKeyUse(100.0, 0.0, 0)
    own, other = {"old": [100.0, 0.0, 0]}, {"old": [90.0, 200.0, 3], "another": [1.0, 2.0, 3]}
    assert everywhere("old", here, [own, other]) == OldKeyUse(90.0, 200.0, 3)
    assert everywhere("old", None, [other]) == OldKeyUse(90.0, 200.0, 3)
    assert everywhere("old", here, []) == here
    assert everywhere("new", None, [own, other]) is None
    # Two gateways of this machine, which are in both.
    both = OldKeyUse(90.0, 150.0, 5)
    pair = [{"old": [100.0, 150.0, 3]}, {"old": [90.0, 120.0, 2]}]
    assert everywhere("old", both, pair) == both


async def test_a_file_that_could_not_be_read_is_read_again(
    guarded: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where nobody changes it again, as when too many files were open for a moment."""
    settings = guarded.gateway.settings
    key, access = add(settings.client_keys_path, "shop"), Access(settings)
    failures = iter(["Too many open files"] * 2)

    def reads(file: Path) -> list[ClientKey]:
        for failure in failures:
            raise InvalidInput(f"{file} cannot be read: {failure}")
        return read(file)

    followed = FollowedKeys(settings.client_keys_path, access, guarded.gateway.path, reads)
    for known in (False, False, True):
        await followed.look()
        assert bool(access.clients) is known
        assert followed.status.sentence.count("has started without keys") == (not known)
    assert access.client_of(b"Bearer " + key.encode()).name == "shop"
    assert caplog.text.count("Too many open files") == 1


class Head:
    """A cluster's head, with a file of keys that a gateway elsewhere does not see."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "head" / "client-keys"
        self.away = False

    def ask(self) -> KeysOfHead:
        if self.away:
            raise StateUnavailable("the cluster's head does not answer")
        return told(self.file)


async def test_elsewhere_the_head_s_file_counts_and_what_is_taken_back_there_is_refused(
    guarded: Served, tmp_path: Path
) -> None:
    own = guarded.gateway.settings.client_keys_path
    access, head, now_s = Access(guarded.gateway.settings), Head(tmp_path), 0.0
    followed = FollowedKeys(own, access, guarded.gateway.path, head=head.ask, clock_s=lambda: now_s)

    async def known() -> set[str]:
        nonlocal now_s
        now_s += ASK_S
        await followed.look()
        return {one.name for one in access.clients}

    add(own, "own")
    assert await known() == {"own"}  # the head has none
    add(head.file, "shop")
    add(head.file, "team")
    assert await known() == {"shop", "team"}
    remove(head.file, "team")
    await followed.look()  # at most every few seconds
    assert len(list(access.clients)) == 2
    await followed.look_now()  # but at once where somebody has changed it
    assert {one.name for one in access.clients} == {"shop"}
    assert await known() == {"shop"}
    head.away = True
    add(own, "another")
    assert await known() == {"shop"}
    head.away = False
    text = head.file.read_text()
    head.file.write_text("nonsense")
    assert await known() == {"shop"}
    assert "line 1" in followed.status.sentence
    head.file.write_text(text)
    assert await known() == {"shop"}
    assert followed.status.sentence == ""
    head.file.unlink()
    assert await known() == {"own", "another"}


async def test_over_grpc_it_is_the_same(guarded: Served) -> None:
    key = add(guarded.gateway.settings.client_keys_path, "shop")
    await until(lambda: guarded.gateway.path.counts_clients)
    shop = (("authorization", f"Bearer {key}"),)
    async with connected(guarded.gateway.settings.grpc_port) as stubs:
        assert (await stubs.infer(request(model_version=FAST), shop)).model_name == "letters"
        assert (await stubs.call("ModelReady", shop, name="letters")).ready
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stubs.call("RepositoryModelLoad", shop, model_name="letters")
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert guarded.gateway.path.counters.client("shop").answered == 1


async def test_a_key_that_is_removed_ends_an_open_stream_with_its_next_query(
    guarded: Served,
) -> None:
    file = guarded.gateway.settings.client_keys_path
    key = add(file, "shop")
    await until(lambda: guarded.gateway.path.counts_clients)
    async with connected(guarded.gateway.settings.grpc_port) as stubs:
        stream = stubs.open_stream((("authorization", f"Bearer {key}"),))
        await stream.write(request(model_version=FAST))
        assert not (await stream.read()).error_message
        add(file, "other")
        await until(lambda: "other" in guarded.gateway.path.counters.clients)
        await stream.write(request(model_version=FAST))
        assert not (await stream.read()).error_message
        remove(file, "shop")
        while (await guarded.get("/v2/models/letters", headers=bearer(key))).status == 200:
            pass
        await stream.write(request(model_version=FAST))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stream.read()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert guarded.gateway.path.counters.client("shop").answered == 2


async def test_a_file_that_vanishes_takes_its_keys_with_it_and_is_told(
    guarded: Served, caplog: pytest.LogCaptureFixture
) -> None:
    file = guarded.gateway.settings.client_keys_path
    add(file, "shop")
    await until(lambda: guarded.gateway.path.counts_clients)
    file.unlink()
    await until(lambda: not guarded.gateway.path.counts_clients)
    assert "the file of clients' keys is gone" in caplog.text


async def test_of_two_authorization_headers_the_one_that_permits_says_who_asks(
    guarded: Served,
) -> None:
    file = guarded.gateway.settings.client_keys_path
    keys = {name: add(file, name) for name in ("first", "last")}
    await until(lambda: len(guarded.gateway.path.counters.clients) >= 2)
    both = [*bearer(keys["first"]), *bearer(keys["last"])]
    assert (await guarded.ask(query(1), headers=both)).status == 200
    client = await guarded.client()
    pipelined = post(query(1), headers=both)
    client.send(pipelined + pipelined)  # the second goes the ordinary way
    assert [(await client.answer()).status for _ in range(2)] == [200, 200]
    counted = {name: one.answered for name, one in guarded.gateway.path.counters.clients.items()}
    assert (counted["first"], counted["last"]) == (0, 3)


async def test_a_body_that_cannot_be_read_counts_for_its_client(guarded: Served) -> None:
    key = add(guarded.gateway.settings.client_keys_path, "shop")
    await until(lambda: guarded.gateway.path.counts_clients)
    client = await guarded.client()
    bad = post(b"no gzip", headers=[*bearer(key), ("Content-Encoding", "gzip")])
    client.send(bad + bad)  # the second goes the ordinary way
    assert [(await client.answer()).status for _ in range(2)] == [400, 400]
    assert guarded.gateway.path.counters.client("shop").refused == 2


async def test_without_a_token_who_has_no_key_is_anybody(short_folder: Path, live_url: str) -> None:
    file = short_folder / "keys"
    key = add(file, "shop")
    async with serving(short_folder, live_url, client_keys=str(file)) as served:
        await served.worker("w1", FAST)
        assert (await served.ask(query(1))).status == 200
        assert (await served.ask(query(1), headers=bearer(key))).status == 200
        assert (await served.ask(query(1), headers=bearer("mk-no"))).status == 401
        counters = served.gateway.path.counters.clients
        assert {name: one.answered for name, one in counters.items()} == {"": 1, "shop": 1}


async def test_a_modest_client_is_answered_beside_one_that_asks_ten_times_as_much(
    short_folder: Path,
    live_url: str,
) -> None:
    """About 40 queries a second can be answered; 200 are asked by one key and 20 by the other."""
    known = [Known(name=PATIENT, accuracy=0.9, p95_ms=200.0, options={"latency_ms": "200"})]
    file = short_folder / "keys"
    keys = {name: add(file, name) for name in ("heavy", "modest")}
    async with serving(short_folder, live_url, known=known, client_keys=str(file)) as served:
        await served.worker("w1", PATIENT)
        answers: Counter[tuple[str, int]] = Counter()

        async def ask(name: str) -> None:
            body = query(1, variant=None, slo={"latency_ms": 2_000})
            answers[name, (await served.ask(body, headers=bearer(keys[name]))).status] += 1

        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                for name in ("heavy",) * 10 + ("modest",):
                    group.create_task(ask(name))
                await asyncio.sleep(0.05)
        counters = served.gateway.path.counters.clients
        assert counters["modest"].answered == answers["modest", 200] > 60
        late = answers["heavy", 504]  # a worker may be slow for a moment
        assert counters["heavy"].refused == answers["heavy", 503] + late
        assert answers["heavy", 503] > 500
        assert answers["heavy", 200] > 50
