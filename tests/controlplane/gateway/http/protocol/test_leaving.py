"""Clients that go, and servers that stop."""

import asyncio

import pytest

from controlplane.gateway.http.http_protocol import Front
from tests.controlplane.gateway.http.protocol.asked import slow
from tests.controlplane.serving import LATE, Served, post, query, request, until


async def test_a_client_that_goes_while_it_sends_leaves_nothing(served: Served) -> None:
    client = await served.client()
    client.send(post(query(1))[:-5])
    await asyncio.sleep(0.02)
    client.close()
    server = served.gateway.servers.http
    assert server is not None
    await until(lambda: not server.server_state.connections)
    assert served.in_flight == 0


async def test_a_client_that_goes_while_it_waits_leaves_nothing(served: Served) -> None:
    client = await served.client()
    client.send(slow(1))
    await until(lambda: served.in_flight == 1)
    client.close()
    await until(lambda: served.in_flight == 0)
    assert (await served.ask(query(1))).status == 200


async def test_what_a_client_asked_that_has_gone_does_not_run(served: Served) -> None:
    """Clients that wait for less than their SLO allows, and ask again, would fill all queues with
    what nobody takes. The one that runs when its client goes runs to its end."""
    clients = [await served.client() for _ in range(12)]
    for number, client in enumerate(clients):
        client.send(slow(number))
        await until(lambda many=number: served.in_flight == many + 1)  # type: ignore[misc]
    for client in clients:
        client.close()
    await until(lambda: served.in_flight == 0)
    answer = await served.ask(query(1, variant=LATE))
    assert answer.status == 200
    counted = served.gateway.path.counters.task(served.task.name)
    assert counted.errors == {"CLIENT_GONE": 12}
    assert sum(variant.met + variant.missed for variant in counted.variants.values()) == 1


async def test_a_connection_has_no_timer(served: Served) -> None:
    """One sweep looks after all of them: tests/controlplane/gateway/http/test_slow_clients.py."""
    client = await served.client()
    for _ in range(20):
        client.send(request("GET", "/v2/health/live", None))
        await client.answer()
        await client.ask(query(1))
    server = served.gateway.servers.http
    assert server is not None
    (front,) = server.server_state.connections
    assert isinstance(front, Front)
    assert front.timeout_keep_alive_task is None


async def test_stopping_answers_what_is_in_flight(served: Served) -> None:
    """On the short way, on the ordinary one, and what waits behind it; then it ends."""
    short, both, idle = [await served.client() for _ in range(3)]
    await idle.ask(query(0))
    short.send(slow(1))
    both.send(slow(2) + slow(3))
    await until(lambda: served.in_flight == 2)
    stopping = asyncio.create_task(served.gateway.stop())
    answer = await short.answer()
    assert (answer.json["outputs"][0][0], answer.headers["connection"]) == (1, "close")
    assert (await both.answer()).json["outputs"][0][0] == 2
    answer = await both.answer()
    assert (answer.json["outputs"][0][0], answer.headers["connection"]) == (3, "close")
    for client in (short, both, idle):
        assert await client.ended() == b""
    await stopping
    with pytest.raises(ConnectionError):
        await served.client()
