"""Clients that go, and servers that stop."""

import asyncio
import json
from typing import Any

import pytest

from controlplane.gateway.http.http_protocol import Front
from controlplane.gateway.protection.compression import Inflater
from controlplane.gateway.query.in_flight import InFlight
from tests.controlplane.gateway.http.protocol.asked import slow
from tests.controlplane.serving import LATE, Served, post, query, request, until

EXPECT = [("Expect", "100-continue")]
"""By this the request goes the ordinary way."""


def connections(served: Served) -> Any:
    server = served.gateway.servers.http
    assert server is not None
    return server.server_state.connections


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
    ran = sum(variant.met + variant.missed for variant in counted.variants.values())
    assert counted.errors == {"CLIENT_GONE": 13 - ran}
    assert ran in (1, 2)  # on a machine that is late the first may have ended before all have gone


async def test_what_it_asked_the_ordinary_way_does_not_run_either(served: Served) -> None:
    clients = [await served.client() for _ in range(12)]
    for number, client in enumerate(clients):
        client.send(post(query(number, variant=LATE), headers=[("Expect", "100-continue")]))
        assert (await client.answer()).status == 100
        await until(lambda many=number: served.in_flight == many + 1)  # type: ignore[misc]
    for client in clients:
        client.close()
    await until(lambda: served.in_flight == 0)
    counted = served.gateway.path.counters.task(served.task.name)
    gone = counted.errors["CLIENT_GONE"]
    assert gone + sum(variant.met for variant in counted.variants.values()) == 12
    assert gone >= 8  # the first of them may have been answered meanwhile


async def test_what_it_asked_behind_another_query_does_not_run_either(served: Served) -> None:
    """The answer that was due was told to nobody: more had come behind it."""
    client = await served.client()
    others = [await served.client() for _ in range(20)]
    client.send(post(query(1)) + slow(2) + slow(3) + slow(4))
    assert (await client.answer()).status == 200
    for other in others:
        other.send(slow(1))
    await until(lambda: served.in_flight > 15)
    client.close()
    counted = served.gateway.path.counters.task(served.task.name)
    for other in others:
        assert (await other.answer()).status == 200
    await until(lambda: served.in_flight == 0)
    # The first, perhaps the second, which was sent before the others, and these.
    assert sum(one.met + one.missed for one in counted.variants.values()) <= 22
    await until(lambda: not any(front.pipeline for front in connections(served)))


@pytest.mark.parametrize("ordinary", [False, True], ids=["", "the ordinary way"])
async def test_who_sends_nothing_more_still_gets_the_answer(served: Served, ordinary: bool) -> None:
    """``nc -N`` and scripts shut down their sending side once they have asked."""
    client = await served.client()
    client.send(post(query(7, variant=LATE), headers=EXPECT if ordinary else []))
    if ordinary:
        assert (await client.answer()).status == 100
        await until(lambda: served.in_flight == 1)
    client.writer.write_eof()
    answer = await client.answer()
    while answer.status == 100:  # it is seen by this whether the client is still there
        answer = await client.answer()
    assert (answer.status, answer.json["outputs"][0][0]) == (200, 7)
    assert answer.headers["connection"] == "close"
    assert await client.ended() == b""
    await until(lambda: not connections(served))


async def test_who_sends_nothing_more_gets_all_answers_in_their_order(served: Served) -> None:
    client = await served.client()
    client.send(slow(1) + post(query(2)) + request("GET", "/v2/health/live", None) + slow(3))
    client.writer.write_eof()
    answers = list[Any]()
    while len(answers) < 4:
        answer = await client.answer()
        if answer.status != 100:
            answers.append(answer.json)
    assert [one["outputs"][0][0] for one in answers if "outputs" in one] == [1, 2, 3]
    assert answers[2] == {"live": True}
    assert await client.ended() == b""


async def test_a_client_of_http_1_0_that_sends_nothing_more_gets_its_answer(
    served: Served,
) -> None:
    """It would take an interim answer for the answer, so it is not looked whether it is there."""
    client = await served.client()
    client.send(slow(7).replace(b"HTTP/1.1", b"HTTP/1.0"))
    client.writer.write_eof()
    answer = await client.answer()
    assert (answer.status, answer.json["outputs"][0][0]) == (200, 7)
    assert await client.ended() == b""


async def test_who_sends_nothing_more_and_goes_later_is_seen_to_go(served: Served) -> None:
    others = [await served.client() for _ in range(80)]
    client = await served.client()
    for other in (*others, client):
        other.send(slow(1))
        await asyncio.sleep(0)
    await until(lambda: served.in_flight > 60)
    client.writer.write_eof()
    await asyncio.sleep(0.02)
    client.close()
    counted = served.gateway.path.counters.task(served.task.name)
    await until(lambda: counted.errors == {"CLIENT_GONE": 1})
    for other in others:
        assert (await other.answer()).status == 200
    assert sum(variant.met + variant.missed for variant in counted.variants.values()) == 80


async def test_half_a_query_is_none_where_nothing_more_is_sent(served: Served) -> None:
    client = await served.client()
    client.send(post(query(1))[:-5])
    client.writer.write_eof()
    assert await client.ended() == b""
    await until(lambda: not connections(served))


async def test_a_client_that_goes_while_its_body_is_unpacked_asks_for_nothing(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[Any] = []
    monkeypatch.setattr(Inflater, "inflate", lambda *given: held.append(given))
    client = await served.client()
    client.send(post(b"packed", headers=[("Content-Encoding", "gzip")]))
    await until(lambda: held)
    client.close()
    server = served.gateway.servers.http
    assert server is not None
    await until(lambda: not server.server_state.connections)
    *_, unpacked = held[0]
    unpacked(json.dumps(query(1)).encode())
    assert served.in_flight == 0
    counters = served.gateway.path.counters
    assert counters.task("").errors == {"CLIENT_GONE": 1}
    assert served.task.name not in counters.tasks


async def test_a_query_is_withdrawn_over_the_connection_that_it_was_sent_over(
    served: Served,
) -> None:
    """Another connection to the same worker, after that one, has its number for another query."""
    path = served.gateway.path
    client, staying = await served.client(), await served.client()
    client.send(slow(1))
    await until(lambda: served.in_flight == 1)
    [flight] = path.guard
    assert isinstance(flight, InFlight)
    assert flight.worker is not None
    newer = Newer()
    path.connections = {flight.worker.id: newer}  # type: ignore[dict-item]
    client.close()
    await until(lambda: served.in_flight == 0)
    assert newer.withdrawn == []
    path.connections = served.gateway.known.workers.connections
    assert (await staying.ask(query(1))).status == 200


class Newer:
    """A connection that says what is withdrawn over it."""

    def __init__(self) -> None:
        self.withdrawn: list[int] = []

    def withdraw(self, request_id: int) -> bool:
        self.withdrawn.append(request_id)
        return True

    def catch_up(self) -> None:
        pass


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
