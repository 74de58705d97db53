"""The gateway over real workers, a real control loop and a real Valkey."""

import asyncio
import gc
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from time import monotonic
from typing import Any

import grpc
import httpx
import pytest

from controlplane.gateway.background import AGAIN_S
from controlplane.gateway.gateway import Gateway
from controlplane.gateway.listening import bind
from controlplane.live_state import LiveState
from controlplane.residency.standing import standings
from controlplane.settings import load_settings
from planner.types import Candidate
from tests.controlplane.fleet import (
    KIND,
    CountingCatalog,
    FailingCatalog,
    LocalCluster,
    eventually,
    fleet,
    gateway,
)
from tests.ports import free_port
from variants.catalog.memory import MemoryCatalog
from variants.errors import ReplicaLost, StateUnavailable, VariantNotLoadable
from variants.types import ModelName, Rule, RuleKind, Stage, TaskName, VariantName, WorkerId
from workers.channel.session import SILENCE_S
from workers.process.niceness import aside

pytestmark = pytest.mark.slow

A, B = "a-v1-echo-fp32", "b-v1-echo-fp32"
ROW = {"task": "digits", "inputs": [[0.0] * 64], "slo": {"latency_ms": 30_000}}
"""It is answered however busy the machine is."""
SILENT = 20


def ready(of: Gateway) -> dict[str, list[str]]:
    """Ready variants by worker, as the next query would be chosen from."""
    found: dict[str, list[str]] = {}
    for view in of.path.snapshot.tasks.values():
        for candidate in view.by_cost:
            for worker in candidate.ready:
                found.setdefault(worker.id, []).append(candidate.variant)
    return {worker: sorted(names) for worker, names in found.items()}


def candidate(of: Gateway, variant: str) -> Candidate:
    return of.path.snapshot.tasks[TaskName("digits")].by_variant[VariantName(variant)][0]


async def test_it_learns_of_workers_and_answers(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, client):
        it.register("a")
        it.control()
        await eventually(lambda: ready(of) == {"w1": [A]})
        reply = await client.post("/v1/query", json=ROW)
        assert (reply.status_code, reply.json()["variant"]) == (200, A)


async def test_one_that_was_prepared_in_another_thread_answers_over_both_protocols(
    tmp_path: Path, port: int
) -> None:
    async with fleet(tmp_path, port=port) as it:
        settings = it.settings.model_copy(update={"grpc_port": free_port()})

        def made() -> Gateway:
            of = Gateway(settings, it.catalog, it.store, it.secret)
            of.prepare()
            return of

        of = aside(made)
        await of.start()
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                assert (await client.get("/v2/health/ready")).json() == {"ready": True}
                assert (await client.post("/v1/query", json=ROW)).json()["code"] == "TASK_NOT_FOUND"
            async with grpc.aio.insecure_channel(f"127.0.0.1:{settings.grpc_port}") as channel:
                await asyncio.wait_for(channel.channel_ready(), SILENT)
        finally:
            await of.stop()


async def test_it_is_ready_with_an_empty_catalog_and_each_task_when_it_is_loaded(
    tmp_path: Path, port: int
) -> None:
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, client):

        async def asked(path: str) -> tuple[int, dict[str, Any]]:
            answer = await client.get(path)
            return answer.status_code, answer.json()

        assert await asked("/v2/health/ready") == (200, {"ready": True})
        assert (await asked("/v2/models/digits/ready"))[0] == 404
        it.register("a")
        await eventually(lambda: "digits" in of.path.tasks)
        assert await asked("/v2/models/digits/ready") == (503, {"name": "digits", "ready": False})
        it.control()
        await eventually(lambda: ready(of) == {"w1": [A]})
        assert await asked("/v2/models/digits/ready") == (200, {"name": "digits", "ready": True})
        assert await asked("/v2/health/ready") == (200, {"ready": True})


async def test_a_canary_alone_does_not_make_its_task_ready(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, client):
        it.register("a")
        it.catalog.set_stage([TaskName("digits")], ModelName("a"), 1, Stage.CANARY)
        it.control()
        await eventually(
            lambda: (
                of.known.workers[WorkerId("w1")].ready == {("digits", A)}
                if of.known.workers
                else False
            )
        )
        assert (await client.get("/v2/models/digits/ready")).status_code == 503
        pinned = await client.get(f"/v2/models/digits/versions/{A}/ready")
        assert pinned.status_code == 200


async def test_a_gateway_that_stops_is_not_ready(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it:
        async with gateway(it) as (of, _):
            assert of.ready()
        assert not of.ready()


async def test_a_lost_worker_is_not_chosen_any_more(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, workers=2, port=port) as it, gateway(it) as (of, client):
        it.register("a")
        controller = it.control()
        await eventually(lambda: ready(of) == {"w1": [A], "w2": [A]})
        await controller.stop()
        it.cluster.kill("w1")
        await eventually(lambda: ready(of) == {"w2": [A]}, timeout_s=SILENCE_S)
        assert of.path.connections.keys() == {"w2"}
        assert (await client.post("/v1/query", json=ROW)).status_code == 200


async def test_a_worker_that_comes_back_somewhere_else_is_met_there(
    tmp_path: Path, port: int
) -> None:
    async with fleet(tmp_path, workers=2, port=port) as it, gateway(it) as (of, _):
        found = await started(it.cluster, 2)
        entry = {"id": "w", "device_kind": KIND}
        await it.live.put_workers(1, [{**entry, "address": found["w1"]}])
        await eventually(lambda: [s.worker for s in of.statuses()] == ["w1"])
        await it.live.put_workers(1, [{**entry, "address": found["w2"]}])
        await eventually(lambda: [s.worker for s in of.statuses()] == ["w2"])
        assert of.known.workers.keys() == of.path.connections.keys() == {"w"}


async def started(cluster: LocalCluster, count: int) -> dict[str, str]:
    """Addresses of this many workers, by worker."""

    async def all_there() -> bool:
        return len(await cluster.workers([KIND])) == count

    await eventually(all_there)
    return {worker.id: worker.address for worker in await cluster.workers([KIND])}


async def test_addresses_that_do_not_answer_hold_nobody_up(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, _):
        found = await started(it.cluster, 1)
        silent = socket.socket(socket.AF_UNIX)
        silent.bind(str(it.settings.run_dir / "silent.sock"))
        silent.listen()
        dead = [
            {"id": f"a{n}", "address": f"unix:{path}", "device_kind": KIND}
            for n, path in enumerate([it.settings.run_dir / "silent.sock"] * SILENT + [tmp_path])
        ]
        alive = {"id": "w1", "address": found["w1"], "device_kind": KIND}
        began_s = monotonic()
        await it.live.put_workers(1, [*dead, alive])
        await eventually(lambda: of.known.workers.keys() == {"w1"})
        # Each of the silent ones is waited for two seconds, but not one after the other.
        assert monotonic() - began_s < SILENT * 2
        silent.close()


async def test_a_new_catalog_revision_is_learned(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, client):
        it.register("a")
        await eventually(lambda: of.known.catalog.revision == 1)
        assert list(of.path.snapshot.tasks) == ["digits"]
        assert (await client.get("/v2/models/digits")).status_code == 200


async def test_an_idle_gateway_asks_the_catalog_one_thing_at_each_look(
    tmp_path: Path, port: int
) -> None:
    catalog = CountingCatalog(MemoryCatalog())
    async with fleet(tmp_path, port=port, catalog=catalog) as it, gateway(it):
        await eventually(lambda: catalog.calls["marks"] >= 2)
        catalog.calls.clear()
        await eventually(lambda: catalog.calls["marks"] >= 3)
        assert catalog.calls.keys() - {"add_event"} == {"marks"}  # that it started


async def test_an_idle_gateway_asks_the_live_state_one_thing_at_each_look_and_report(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[str] = Counter()
    async with fleet(tmp_path, port=port) as it:
        await it.live.put_controller({"turned_s": 1.0})
        for name in ("_call", "workers", "put_gateway", "put_history"):
            monkeypatch.setattr(LiveState, name, _counted(getattr(LiveState, name), asked))
        async with gateway(it) as (of, _):
            await eventually(lambda: asked["put_gateway"] >= 3)
            assert of._loop.told == {"turned_s": 1.0}
            # One that was begun may not have asked yet.
            assert asked["_call"] in (asked.total() - asked["_call"] - n for n in range(3))


def _counted(method: Callable[..., Any], calls: Counter[str]) -> Callable[..., Any]:
    @wraps(method)
    async def call(*arguments: Any) -> Any:
        calls[method.__name__] += 1
        return await method(*arguments)

    return call


async def test_an_announcement_is_heard_before_the_poll(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.gateway.gateway.POLL_S", 3_600.0)
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, _):
        it.register("a")

        async def heard() -> bool:
            """Again and again: the gateway may not listen yet."""
            await it.live.notify("catalog")
            return of.known.catalog.revision == 1

        await eventually(heard)


async def test_without_live_state_and_database_queries_go_on(
    tmp_path: Path, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = FailingCatalog(MemoryCatalog())
    async with fleet(tmp_path, port=port, catalog=catalog) as it, gateway(it) as (of, client):
        it.register("a")
        controller = it.control()
        await eventually(lambda: ready(of) == {"w1": [A]})
        await controller.stop()
        caplog.clear()
        assert it.valkey.pid is not None
        os.kill(it.valkey.pid, signal.SIGKILL)
        catalog.away = True

        def said() -> list[str]:
            return [
                record.getMessage()
                for record in caplog.records
                if (record.name, record.levelname) == ("controlplane.gateway.background", "WARNING")
            ]

        # One for each that is away, however many follow something there.
        await eventually(lambda: len(said()) >= 2)
        assert (await client.post("/v1/query", json=ROW)).status_code == 200
        assert (await client.get("/v1/tasks")).status_code == 503
        await asyncio.sleep(2 * AGAIN_S)  # each is tried again and says no more
        assert len(said()) == 2, said()
        assert ["the catalog is away" in one for one in sorted(said())] == [True, False]

        it.valkey.start()
        catalog.away = False
        it.register("b")
        it.control()
        await eventually(lambda: ready(of) == {"w1": [A, B]})


async def test_what_was_asked_reaches_the_control_loop(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, client):
        it.register("a")
        it.control()
        await eventually(lambda: ready(of) == {"w1": [A]})
        for latency_ms in (60, 70, 80):
            await client.post("/v1/query", json={**ROW, "slo": {"latency_ms": latency_ms}})

        async def reported() -> bool:
            report = (await it.live.gateways()).get(of.id, {})
            return report.get("demand") == {"digits|50.0|": 3}

        await eventually(reported)


async def test_queries_that_nothing_could_serve_are_told_and_say_nothing_against_what_runs(
    tmp_path: Path, port: int
) -> None:
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, client):
        it.register("a")
        it.control()
        await eventually(lambda: ready(of) == {"w1": [A]})
        assert (await client.post("/v1/query", json=ROW)).status_code == 200
        impossible = ROW | {"slo": {"latency_ms": 0.001}}
        assert (await client.post("/v1/query", json=impossible)).status_code == 422
        foreign = {"Origin": "http://evil.example"}
        assert (await client.post("/v1/query", json=ROW, headers=foreign)).status_code == 403

        async def told() -> dict[str, Any]:
            found: dict[str, Any] = (await client.get("/v1/slo")).json()
            return found

        report = await told()  # at once, without waiting for what is told once a second
        [row] = report["tasks"]
        assert (row["lately"]["met"], row["lately"]["refusals"]) == (1, {"SLO_INFEASIBLE": 1})
        assert 0 < report["window_s"] < (await told())["window_s"]
        assert report["standing"]["level"] == "met"
        assert "1 other asked" in report["standing"]["sentence"]
        assert report["turned_away"] == {"FORBIDDEN": 1}
        assert " 1 was turned away because " in report["standing"]["sentence"]


async def test_naming_a_variant_that_is_not_there_or_retired_is_the_clients_error(
    tmp_path: Path, port: int
) -> None:
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, client):
        it.register("a")
        it.register("b")
        it.catalog.set_stage([TaskName("digits")], ModelName("b"), 1, Stage.RETIRED)
        it.control()
        await eventually(lambda: ready(of) == {"w1": [A]})
        assert (await client.post("/v1/query", json=ROW)).status_code == 200
        for variant in (B, "c-v1-echo-fp32"):
            pinned = await client.post("/v1/query", json=ROW | {"variant": variant})
            assert pinned.status_code == 404

        async def counted() -> tuple[int, ...]:
            [row] = (await client.get("/v1/slo")).json()["tasks"] or [{}]
            return tuple(row.get(name, 0) for name in ("requests", "refused", "client_errors"))

        async def told() -> bool:
            return await counted() == (1, 0, 2)

        await eventually(told)


async def test_loads_on_demand_are_joined_and_a_broken_one_is_not_repeated(
    tmp_path: Path, port: int
) -> None:
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, _):
        it.register("a", load_s="0.2")
        it.register("broken", latency_ms="never")
        found = await started(it.cluster, 1)
        entry = {"id": "w1", "address": found["w1"], "device_kind": KIND}
        await it.live.put_workers(1, [entry])
        await eventually(
            lambda: of.known.workers.keys() == {"w1"} and of.known.catalog.revision == 2
        )
        w1 = WorkerId("w1")
        first, second = (of.load(candidate(of, A), w1, 0.0) for _ in range(2))
        assert first is second
        await first
        await eventually(lambda: ready(of) == {"w1": [A]})

        broken = candidate(of, "broken-v1-echo-fp32")
        for _ in range(2):  # the second time at once: the worker knows
            with pytest.raises(VariantNotLoadable, match=r"cannot be loaded: .* wrong option"):
                await of.load(broken, w1, 0.0)
            [known] = of.path.snapshot.tasks[broken.task].by_variant[broken.variant]
            assert (known.hosts, "wrong option" in known.unloadable) == ((), True)
        with pytest.raises(ReplicaLost, match="w9 is gone"):
            await of.load(broken, WorkerId("w9"), 0.0)


async def test_a_worker_lost_during_a_load_ends_the_load(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, _):
        it.register("a", load_s="60")
        found = await started(it.cluster, 1)
        entry = {"id": "w1", "address": found["w1"], "device_kind": KIND}
        await it.live.put_workers(1, [entry])
        await eventually(
            lambda: of.known.workers.keys() == {"w1"} and of.known.catalog.revision == 1
        )
        load = of.load(candidate(of, A), WorkerId("w1"), 0.0)
        await eventually(lambda: of.statuses()[0].replicas != ())
        it.cluster.kill("w1")
        with pytest.raises(ReplicaLost):
            await asyncio.wait_for(load, SILENCE_S)
        await eventually(lambda: of.known.workers == {})


async def test_it_takes_connections_once_its_memory_is_in_order(tmp_path: Path, port: int) -> None:
    """Collecting what its start has left stops everything for a while."""
    taken: list[bool] = []

    def collects(phase: str, of: Mapping[str, int]) -> None:
        if phase == "start" and of["generation"] == 2:
            with socket.socket() as probe:
                taken.append(probe.connect_ex(("127.0.0.1", port)) == 0)

    async with fleet(tmp_path, port=port) as it:
        gc.disable()  # no other collection than that
        gc.callbacks.append(collects)
        try:
            async with gateway(it) as (_, client):
                await client.get("/v2/health/live")
        finally:
            gc.callbacks.remove(collects)
            gc.enable()
    assert set(taken) == {False}


async def test_stopping_leaves_no_task_and_frees_the_port(tmp_path: Path, port: int) -> None:
    async with fleet(tmp_path, port=port) as it:
        before = asyncio.all_tasks()
        async with gateway(it) as (of, client):
            it.register("a", load_s="60")
            found = await started(it.cluster, 1)
            silent = {"id": "x", "address": "tcp:192.0.2.1:9", "device_kind": KIND}
            entry = {"id": "w1", "address": found["w1"], "device_kind": KIND}
            await it.live.put_workers(1, [entry, silent])
            await eventually(
                lambda: of.known.workers.keys() == {"w1"} and of.known.catalog.revision == 1
            )
            of.load(candidate(of, A), WorkerId("w1"), 0.0)
            await client.get("/v2/health/live")
            before |= {t for t in asyncio.all_tasks() if "LocalCluster" in repr(t)}
        left = asyncio.all_tasks() - before
        assert left == set()
        with pytest.raises(RuntimeError):
            of.check()
        bind(it.settings, alone=True).close()


async def test_one_that_was_stopped_before_it_starts_reads_nothing_and_does_not_listen(
    tmp_path: Path, port: int
) -> None:
    catalog = FailingCatalog(MemoryCatalog())
    catalog.away = True
    async with fleet(tmp_path, port=port, catalog=catalog) as it:
        made = Gateway(it.settings, it.catalog, it.store, it.secret)
        await made.stop()
        await made.start()
        bind(it.settings, alone=True).close()


async def test_a_catalog_that_cannot_be_read_frees_the_port(tmp_path: Path, port: int) -> None:
    catalog = FailingCatalog(MemoryCatalog())
    catalog.away = True
    settings = load_settings(state_dir=tmp_path, host="127.0.0.1", port=port)
    async with fleet(tmp_path, port=port, catalog=catalog) as it:
        made = Gateway(it.settings, it.catalog, it.store, it.secret)
        with pytest.raises(StateUnavailable, match="the catalog is away"):
            await made.start()
        bind(settings, alone=True).close()
        await made.stop()


async def test_by_default_answers_are_given_as_planned_once_demand_is_known(
    tmp_path: Path, port: int
) -> None:
    """Control loop, worker and gateway with the settings of a new installation."""
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, client):
        it.register("a")
        it.control()
        await eventually(lambda: ready(of) == {"w1": [A]})

        async def planned() -> bool:
            answer = await client.post("/v1/query", json=ROW)
            return bool(answer.headers.get("x-choice-reason") == "planned")

        await eventually(planned, timeout_s=60)
        scraped = (await client.get("/metrics")).text
        assert 'modelless_choices_total{reason="planned",task="digits"}' in scraped


async def test_metrics_are_given_while_a_rule_is_made(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog becomes another one while another thread looks at the rules that there were."""
    async with fleet(tmp_path, port=port) as it, gateway(it) as (of, client):
        rule = Rule(
            kind=RuleKind.PIN, task=TaskName("digits"), variant=VariantName(A), at_s=0.0, id=7
        )

        def judged(*known: Any) -> Any:
            found = standings(*known)
            of.known.catalog = replace(of.known.catalog, rules=(rule,))
            return found

        monkeypatch.setattr("controlplane.gateway.reports.control_loop.standings", judged)
        scraped = await client.get("/metrics")
        assert scraped.status_code == 200
        assert "modelless_rules_not_kept 0.0" in scraped.text
