"""The client against a real gateway with real workers."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from traceback import format_exception
from typing import Any

import numpy as np
import psutil
import pytest

from controlplane.client import (
    AsyncClient,
    Client,
    DeadlineExceeded,
    InvalidInput,
    ModellessError,
    NotFound,
    Reply,
    SloInfeasible,
    TaskNotFound,
    Unauthenticated,
    Unreachable,
)
from tests.controlplane.client.asking.asked import TOKEN, refusal, using
from tests.controlplane.serving import FAST, LATE, SLOW, Served
from tests.ports import free_port


async def test_a_query_is_answered_with_what_was_used(served: Served) -> None:
    reply = await using(
        served, lambda client: client.query("letters", [[1, 2, 3, 4]], accuracy=0.9)
    )
    assert reply == Reply(
        outputs=[[1, 2, 3, 4]],
        labels=("d",),
        scores=(4.0,),
        variant=FAST,
        model_version="fast-v1",
        worker="w1",
        batch_size=1,
        queue_ms=reply.queue_ms,
        run_ms=reply.run_ms,
        accuracy=0.9,
        cost_usd_per_1k=reply.cost_usd_per_1k,
        slo_met=True,
        choice_reason="cheapest_that_fits",
        request_id=reply.request_id,
    )


async def test_clients_say_which_classes_were_right(served: Served) -> None:
    async def ask_and_tell(client: Any) -> Any:
        reply = await client.query("letters", [[1, 2, 3, 4]], accuracy=0.9)
        return await client.feedback(reply, "d"), await client.feedback(reply.request_id, ["d"])

    url = f"http://127.0.0.1:{served.port}"
    async with AsyncClient(url, token=TOKEN) as client:
        first, again = await ask_and_tell(client)
    told = {"task": "letters", "variant": FAST, "right": 1, "wrong": 0}
    assert {name: first[name] for name in told} == told
    assert (first["anew"], again["anew"]) == (True, False)
    assert first["request_id"] == again["request_id"]
    reply = await using(served, lambda client: client.query("letters", [[1, 2, 3, 4]]))
    found = await using(served, lambda client: client.feedback(reply, "a"))
    assert found["wrong"] == 1
    with pytest.raises(NotFound):
        await using(served, lambda client: client.feedback("nobody", "a"))


async def test_what_would_become_of_a_query_is_explained(served: Served) -> None:
    found = await using(served, lambda client: client.explain("letters", accuracy=0.9, rows=2))
    assert (found["outcome"], found["rows"], found["accuracy"]) == ("answered", 2, 0.9)
    assert found["answer"]["variant"] == FAST
    assert {each["variant"]: each["verdict"] for each in found["variants"]}[FAST] == "chosen"


async def test_what_would_be_refused_is_explained_and_raises_nothing(served: Served) -> None:
    url = f"http://127.0.0.1:{served.port}"
    async with AsyncClient(url, token=TOKEN) as client:
        found = await client.explain("letters", accuracy=1.0, latency_ms=5)
    assert found["outcome"] == "refused"
    assert found["refusal"]["code"] == "SLO_INFEASIBLE"
    assert {each["verdict"] for each in found["variants"]} == {"stopped"}


async def test_the_length_of_rows_can_be_said_where_they_differ_in_it(served: Served) -> None:
    said = "rows of task 'letters' have one length: leave 'length' out"
    with pytest.raises(InvalidInput, match=said):
        await using(served, lambda client: client.explain("letters", length=16))
    async with AsyncClient(f"http://127.0.0.1:{served.port}", token=TOKEN) as client:
        with pytest.raises(InvalidInput, match=said):
            await client.explain("letters", length=16)


async def test_an_explanation_of_an_unknown_task_is_an_error(served: Served) -> None:
    with pytest.raises(TaskNotFound):
        await using(served, lambda client: client.explain("nothing"))


async def test_what_is_asked_decides_what_answers(served: Served) -> None:
    def ask(client: Client) -> list[str]:
        row = [[0, 0, 0, 0]]
        return [
            client.query("letters", row, prefer="cost").variant,
            client.query("letters", row, accuracy=0.98).variant,
            client.query("letters", row, prefer="accuracy", latency_ms=500).variant,
            client.query("letters", row, variant=LATE).variant,
        ]

    assert await using(served, ask) == [FAST, SLOW, SLOW, LATE]


async def test_the_nearest_answers_when_nothing_fits_and_that_will_do(served: Served) -> None:
    def ask(client: Client) -> Reply:
        return client.query("letters", [[0] * 4], accuracy=0.999, best_effort=True)

    assert (await using(served, ask)).slo_met is False


async def test_one_connection_is_kept(served: Served) -> None:
    def ask(client: Client) -> set[int]:
        ours: set[int] = set()
        for _ in range(3):
            client.query("letters", [[0] * 4])
            for connection in psutil.Process().net_connections("tcp"):
                match connection.raddr, connection.laddr:
                    case (_, served.port), (_, port):
                        ours.add(port)
        return ours

    assert len(await using(served, ask)) == 1


async def test_each_thread_keeps_its_connection(served: Served) -> None:
    threads = 40

    def ask(client: Client) -> tuple[set[int], set[int]]:
        def query(_: int) -> None:
            together.wait()
            client.query("letters", [[0] * 4], variant=SLOW)

        def ours() -> set[int]:
            assert len(list(pool.map(query, range(threads)))) == threads
            found: set[int] = set()
            for one in psutil.Process().net_connections("tcp"):
                match one.raddr, one.laddr, one.status:
                    case (_, served.port), (_, port), psutil.CONN_ESTABLISHED:
                        found.add(port)
            return found

        together = Barrier(threads)
        with ThreadPoolExecutor(threads) as pool:
            return ours(), ours()

    first, second = await using(served, ask)
    assert len(first) > 20
    assert first <= second


@pytest.mark.parametrize(
    ("changes", "kind", "sentence"),
    [
        ({"task": "nothing"}, TaskNotFound, "nothing"),
        ({"inputs": [[1, 2]]}, InvalidInput, "4"),
        ({"inputs": {"x": object()}}, InvalidInput, "the query cannot be sent: Type is not JSON"),
        ({"inputs": [b"a text"]}, InvalidInput, "sent: texts are str, and not bytes: decode them"),
        ({"inputs": np.array([b"a"])}, InvalidInput, "sent: texts are str, and not bytes"),
        ({"accuracy": 2}, InvalidInput, "slo.accuracy"),
        ({"latency_ms": 1e300}, InvalidInput, "slo.latency_ms must be above 0 and at most"),
        ({"latency_ms": 10**400}, InvalidInput, "the query cannot be sent: Integer exceeds"),
        ({"inputs": np.zeros((1, 4)), "truncate": True}, InvalidInput, "'truncate' is for texts"),
        (
            {"inputs": np.zeros((1, 4)), "truncate": True, "arrays": True},
            InvalidInput,
            "'truncate' is for texts",
        ),
        ({"prefer": "speed"}, InvalidInput, "slo.prefer"),
        ({"token": "wrong"}, Unauthenticated, "not known here"),
        ({"variant": LATE, "latency_ms": 20}, DeadlineExceeded, "20 ms"),
    ],
)
async def test_a_refusal_is_an_error_of_its_kind(
    served: Served, changes: dict[str, Any], kind: type[ModellessError], sentence: str
) -> None:
    error = await refusal(served, **changes)
    assert type(error) is kind
    assert sentence in error.message
    assert error.retryable is (kind is DeadlineExceeded)
    assert error.retry_after_s is None


async def test_an_infeasible_slo_names_what_comes_closest(served: Served) -> None:
    error = await refusal(served, accuracy=0.999)
    assert isinstance(error, SloInfeasible)
    assert error.alternatives[0].variant == SLOW
    assert error.alternatives[0].accuracy == 0.99


async def test_nobody_listens() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with Client(url) as client, pytest.raises(Unreachable) as refused:
        client.query("letters", [[0]])
    assert (refused.value.code, refused.value.retryable) == ("UNREACHABLE", True)
    said = f"no gateway answers at {url}: connection refused; is it running?"
    assert str(refused.value) == said
    shown = "".join(format_exception(refused.value))
    assert "httpx" not in shown  # what each layer below it made of the same
    async with AsyncClient(url) as other:
        with pytest.raises(Unreachable) as refused:
            await other.query("letters", [[0]])
    assert str(refused.value) == said
