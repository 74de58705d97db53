"""Caps on connections: the counting, and both protocols on real sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from controlplane.gateway.http.client_limits import ClientLimits
from controlplane.gateway.protection.connections import (
    PER_ADDRESS,
    ConnectionCaps,
    connections_within,
    files_allowed,
    is_loopback,
    network_of,
)
from controlplane.settings import load_settings
from tests.controlplane.gateway.grpc.calls import connected
from tests.controlplane.serving import FAST, Served, post, query, request, serving, until
from tests.ports import free_port
from variants.errors import Overloaded, RateLimited


def test_one_address_has_a_cap_and_others_have_theirs() -> None:
    caps = ConnectionCaps(5, 2)
    assert caps.enter("10.0.0.1") is None
    assert caps.enter("10.0.0.1") is None
    refused = caps.enter("10.0.0.1")
    assert isinstance(refused, RateLimited)
    assert refused.message == "2 connections from this address are open, which is all it may have"
    assert refused.retry_after_s == 1.0
    assert caps.enter("10.0.0.2") is None
    caps.leave("10.0.0.1")
    assert caps.enter("10.0.0.1") is None
    assert caps.open == 3


def test_all_together_have_a_cap() -> None:
    caps = ConnectionCaps(2, None)
    assert [caps.enter(f"10.0.0.{n}") for n in range(2)] == [None, None]
    refused = caps.enter("10.0.0.9")
    assert isinstance(refused, Overloaded)
    caps.leave("10.0.0.0")
    assert caps.enter("10.0.0.9") is None


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3::4", "2001:0db8:0001:0002"),
        ("2001:db8:1:2:ffff::9", "2001:0db8:0001:0002"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80:0000:0000:0000"),
        ("", ""),
    ],
)
def test_what_an_address_is_counted_by(address: str, network: str) -> None:
    assert network_of(address) == network


def test_whether_some_more_may_come_at_once() -> None:
    caps = ConnectionCaps(5, 2)
    assert caps.enter("203.0.113.7") is None
    assert caps.have_room(["203.0.113.7", "203.0.113.8", "203.0.113.8"])
    assert not caps.have_room(["203.0.113.7"] * 2)
    assert caps.have_room(["2001:db8::1", "2001:db8::2"])
    assert not caps.have_room(["2001:db8::1", "2001:db8::2", "2001:db8::3"])  # one client's /64
    assert caps.have_room([f"203.0.113.{at}" for at in range(8, 12)])
    assert not caps.have_room([f"203.0.113.{at}" for at in range(8, 13)])
    assert caps.open == 1


def test_loopback_is_known_in_all_its_forms() -> None:
    own = ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "")
    assert [is_loopback(address) for address in own] == [True] * 5
    assert [is_loopback(a) for a in ("10.0.0.1", "::2", "::ffff:10.0.0.1")] == [False] * 3


def test_by_default_loopback_and_proxies_are_only_counted_in_all(tmp_path: Path) -> None:
    caps = ConnectionCaps.of(load_settings(state_dir=tmp_path))
    assert (caps.limit_of("127.0.0.1"), caps.limit_of("10.0.0.1")) == (None, PER_ADDRESS)
    proxied = ConnectionCaps.of(load_settings(state_dir=tmp_path, behind_tls_proxy=True))
    assert proxied.limit_of("10.0.0.1") is None
    given = ConnectionCaps.of(load_settings(state_dir=tmp_path, max_connections_per_address=7))
    assert (given.limit_of("127.0.0.1"), given.limit_of("10.0.0.1")) == (7, 7)


def test_each_protocol_has_the_same_limits_and_counts_for_itself() -> None:
    http = ConnectionCaps(2, 1, spare_loopback=True)
    assert http.enter("192.0.2.1") is None
    grpc = http.alike()
    assert (grpc.most, grpc.most_per_address, grpc.spare_loopback) == (2, 1, True)
    assert (http.open, grpc.open) == (1, 0)


def test_the_limit_on_open_files_is_raised_or_kept_to() -> None:
    raised: list[tuple[int, int]] = []

    def set_limit(soft: int, hard: int) -> None:
        raised.append((soft, hard))

    assert files_allowed(1_000, lambda: (1_024, 100_000), set_limit) == 1_000
    assert raised == [(2_512, 100_000)]
    assert files_allowed(16_384, lambda: (1_024, 20_000), set_limit) == 9_744
    assert raised[1:] == [(20_000, 20_000)]
    assert files_allowed(1_000, lambda: (-1, -1), set_limit) == 1_000

    def refuse(soft: int, hard: int) -> None:
        raise ValueError

    assert files_allowed(1_000, lambda: (1_024, 100_000), refuse) == 256


@pytest.mark.parametrize(
    ("files", "connections"), [(256, 64), (1_024, 256), (2_512, 1_000), (2, 1)]
)
def test_of_few_files_connections_have_half(files: int, connections: int) -> None:
    """With 256 files a gateway took one connection."""
    assert connections_within(files, 1_000) == connections


# -- on real sockets ------------------------------------------------------------------------------

QUICK = ClientLimits(sweep_s=0.1)


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    port = free_port()
    async with serving(
        short_folder, live_url, limits=QUICK, grpc_port=port,
        max_connections=6, max_connections_per_address=3,
    ) as running:  # fmt: skip
        await running.worker("w1", FAST)
        yield running


@pytest.mark.slow
async def test_a_connection_too_many_is_told_so(served: Served) -> None:
    held = [await served.client() for _ in range(3)]
    for client in held:
        assert (await client.ask(query())).status == 200
    fourth = await served.client()
    fourth.send(post(query()))
    answer = await fourth.answer()
    assert answer.error == (
        429, "RATE_LIMITED", "3 connections from this address are open, which is all it may have"
    )  # fmt: skip
    assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
    assert await fourth.ended() == b""
    held[0].close()
    caps = served.gateway.path.counters.connections.open["http"]
    await until(lambda: caps() == 2)
    text = (await served.get("/metrics")).body.decode()
    assert 'modelless_connections{protocol="http"} 3.0' in text
    refused = 'modelless_connections_refused_total{code="RATE_LIMITED",protocol="http"} 1.0'
    assert refused in text
    held[1].close()
    await until(lambda: caps() == 2)
    told = json.loads((await served.get("/v1/slo")).body)
    assert told["turned_away"] == {"CONNECTIONS": 1}
    assert " 1 was turned away because as many conn" in told["standing"]["sentence"]


@pytest.mark.slow
async def test_one_that_says_nothing_is_closed(served: Served) -> None:
    held = [await served.client() for _ in range(3)]
    await asyncio.sleep(0)
    silent = await served.client()
    with pytest.raises((ConnectionResetError, AssertionError)):
        assert await silent.ended() != b""
    assert (await held[0].ask(query())).status == 200


@pytest.mark.slow
async def test_grpc_connections_too_many_are_told_so_and_closed(served: Served) -> None:
    port = served.gateway.settings.grpc_port
    options = {"grpc.use_local_subchannel_pool": 1, "grpc.enable_retries": 0}
    async with (
        connected(port, **options) as one, connected(port, **options) as two,
        connected(port, **options) as three,
    ):  # fmt: skip
        for stubs in (one, two, three):
            assert (await stubs.call("ServerLive")).live
        assert served.gateway.servers.grpc is not None
        connections = served.gateway.servers.grpc.connections
        await until(lambda: connections.open == 3)  # so the others are newer
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in idle:
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
        for reader, _ in idle:  # those that came last go
            async with asyncio.timeout(60):
                while True:
                    try:
                        if not await reader.read(1_000):
                            break
                    except ConnectionResetError:
                        break
        for stubs in (one, two, three):
            assert (await stubs.call("ServerLive")).live
        for _, writer in idle:
            writer.close()
    refusals = served.gateway.path.counters.connections.refusals
    assert refusals == {("grpc", "RATE_LIMITED"): 3}


@pytest.mark.slow
async def test_a_call_on_a_connection_too_many_is_refused_with_a_sentence(served: Served) -> None:
    port = served.gateway.settings.grpc_port
    assert served.gateway.servers.grpc is not None
    connections = served.gateway.servers.grpc.connections
    async with connected(port) as stubs:
        assert (await stubs.call("ServerLive")).live
        connections.look()
        connections._judge = lambda sockets: None  # type: ignore[method-assign]
        connections.marked = dict.fromkeys(connections._since, 3)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stubs.call("ServerLive")
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "3 connections from this address are open" in (caught.value.details() or "")


@pytest.mark.slow
async def test_trailers_are_refused(served: Served) -> None:
    for path in ("/v1/query", "/v1/models"):
        client = await served.client()
        client.send(request("POST", path, None, headers=[("Transfer-Encoding", "chunked")]))
        client.send(b"1\r\n{\r\n0\r\nX-More: 1\r\nAuthorization: Bearer x\r\n\r\n")
        sentence = "the HTTP request is malformed: trailers are not taken"
        assert (await client.answer()).error == (400, "INVALID_INPUT", sentence)
        assert await client.ended() == b""
