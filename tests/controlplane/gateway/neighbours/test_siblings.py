"""Gateways that share a port count as one, whichever of them is asked."""

import asyncio
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from controlplane.gateway.counting.client_counters import OldKeyUse
from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.counting.task_counters import GONE, CacheCounters
from controlplane.gateway.neighbours import siblings
from controlplane.gateway.neighbours.siblings import Siblings
from tests.controlplane.fleet import eventually, fleet, gateway
from tests.controlplane.gateway.reports.test_metrics import asked, scraped
from tests.controlplane.gateway.test_gateway import ROW, A, ready
from tests.ports import free_port


def everything() -> Counters:
    """At least one of each thing that is counted."""
    counters = asked()
    counters.task("digits").cache = CacheCounters(answers=2, size_bytes=300, evicted=1)
    counters.task("digits").cache_missed("mlp", 0.5)
    counters.task("digits").blocked = 1
    counters.connections.open["http"] = lambda: 3
    counters.connections.refused("http", "OVERLOADED")
    counters.connections.ended("close")
    counters.busy["a"] = 0.25
    counters.client("shop").old_keys.uses["0" * 64] = OldKeyUse(100.0, 200.0, 7)
    counters.old_tokens.uses["1" * 64] = OldKeyUse(100.0, 300.0, 3)
    return counters


def through_json(counters: Counters, *, gone: bool = False) -> dict[str, object]:
    text = orjson.dumps(counters.plain(gone=gone), option=orjson.OPT_NON_STR_KEYS)
    return dict(orjson.loads(text))


def test_what_is_told_is_all_that_is_counted() -> None:
    told = Counters()
    told.add(through_json(everything()))

    assert scraped(told) == scraped(everything())
    assert told.plain() == everything().plain()


def test_what_two_have_counted_is_added_up() -> None:
    both = Counters()
    both.add(through_json(everything()))
    both.add(through_json(everything()))

    names, samples = scraped(everything())
    assert scraped(both)[0] == names
    of_one = {
        "modelless_event_loop_busy_ratio", "modelless_catalog_revision", "modelless_build_info"
    }  # fmt: skip
    for key, value in scraped(both)[1].items():
        assert value == (samples[key] if key[0] in of_one else 2 * samples[key]), key


def test_of_one_that_is_gone_only_what_was_counted_stays() -> None:
    left = Counters()
    left.add(through_json(everything(), gone=True))

    assert (left.in_flight, left.busy, left.connections.open) == (0, {}, {})
    assert left.task("digits").cache == CacheCounters(evicted=1)
    assert left.task("digits").errors == {"OVERLOADED": 1}


async def test_each_of_them_tells_the_sum_and_who_stops_leaves_its_part(tmp_path: Path) -> None:
    first, second = (Siblings(tmp_path, name, everything()) for name in ("one", "two"))
    await first.start()
    assert (await first.total()).in_flight == 7
    await second.start()

    assert (await first.total()).in_flight == (await second.total()).in_flight == 14

    await second.stop()
    total = await first.total()
    assert total.in_flight == 7
    assert total.task("digits").errors == {"OVERLOADED": 2}
    third = Siblings(tmp_path, "three", Counters())
    assert (await third.total()).task("digits").errors == {"OVERLOADED": 2}
    await first.stop()


async def other_gateway(folder: Path, name: str) -> asyncio.subprocess.Process:
    """Another process that has counted one error and has one query in flight."""
    script = f"""
import asyncio, pathlib
from controlplane.gateway.counting.counters import Counters
from controlplane.gateway.neighbours.siblings import Siblings
async def main():
    counters = Counters()
    counters.task("digits").failed("OVERLOADED")
    counters.in_flight = 1
    await Siblings(pathlib.Path({str(folder)!r}), {name!r}, counters).start()
    print("there", flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    await other.stdout.readline()
    return other


async def test_of_one_that_was_killed_or_stands_still_stays_what_it_has_told(
    tmp_path: Path,
) -> None:
    other = await other_gateway(tmp_path, "two")
    own = Siblings(tmp_path, "one", everything())

    async def told() -> tuple[int, int]:
        total = await own.total()
        return total.in_flight, total.task("digits").errors["OVERLOADED"]

    try:
        assert await told() == (8, 2)
        os.kill(other.pid, signal.SIGSTOP)
        assert await told() == (7, 2)
    finally:
        other.kill()
        await other.wait()
    assert await told() == (7, 2)


def left_in(folder: Path, pattern: str = "*.json") -> list[Path]:
    return list(folder.glob(pattern))


@pytest.mark.parametrize("asked", [True, False])
async def test_who_stops_takes_over_what_a_killed_one_has_left_with_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    monkeypatch.setattr(siblings, "YOUNG_S", 0.0)
    other = await other_gateway(tmp_path, "two")
    own = Siblings(tmp_path, "one", everything())
    await own.start()
    await own.total()
    other.kill()
    await other.wait()

    if asked:
        assert (await own.total()).task("digits").errors == {"OVERLOADED": 2}
    await own.stop()

    assert [path.stem for path in left_in(tmp_path, "*")] == [own._socket.stem]
    anew = Siblings(tmp_path, "three", Counters())
    assert (await anew.total()).task("digits").errors == {"OVERLOADED": 2}


class Observed(Counters):
    """Counters that know in which threads all of them were taken."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[threading.Thread] = []

    def plain(self, *, gone: bool = False) -> dict[str, Any]:
        self.threads.append(threading.current_thread())
        return super().plain(gone=gone)


async def test_queries_do_not_wait_for_sums_and_all_is_taken_once_for_each(tmp_path: Path) -> None:
    first, second = Observed(), Observed()
    own, other = Siblings(tmp_path, "one", first), Siblings(tmp_path, "two", second)
    await own.start()
    await other.start()
    await own.total()
    for counters in (first, second):
        [thread] = counters.threads
        assert thread is not threading.main_thread()
    await own.stop()
    await other.stop()


async def test_what_is_left_is_merged_once_by_two_that_stop_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, first, second, stays = (Siblings(tmp_path, name, everything()) for name in "abcd")
    for one in (gone, first, second, stays):
        await one.start()
    await gone.stop()
    add = siblings._add
    stopped: list[Siblings] = []

    def add_while_another_stops(total: Counters, text: bytes) -> None:
        if not stopped:
            stopped.append(second)
            with pytest.raises(StopIteration):
                second.stop().send(None)
        add(total, text)

    monkeypatch.setattr(siblings, "_add", add_while_another_stops)
    await first.stop()
    assert stopped
    assert (await stays.total()).task("digits").errors == {"OVERLOADED": 4}
    await stays.stop()


async def test_who_is_asked_while_it_stops_does_not_lose_what_it_has_merged(tmp_path: Path) -> None:
    for turns in range(12):
        folder = tmp_path / f"{turns}"
        folder.mkdir()
        gone, leaves, stays = (Siblings(folder, name, everything()) for name in "abc")
        for one in (gone, leaves, stays):
            await one.start()
        await gone.stop()
        asked = asyncio.create_task(stays.total())
        for _ in range(turns):
            await asyncio.sleep(0)
        await leaves.stop()
        await asked
        await leaves.total()
        assert (await stays.total()).task("digits").errors == {"OVERLOADED": 3}, turns
        await stays.stop()


async def test_no_more_is_read_than_counters_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (Siblings(tmp_path, name, everything()) for name in ("one", "two"))
    await second.start()
    assert (await first.total()).in_flight == 14
    monkeypatch.setattr(siblings, "MOST_BYTES", 100)
    for _ in range(2):
        total = await first.total()
        assert (total.in_flight, total.task("digits").errors) == (7, {"OVERLOADED": 1})
    assert [record.getMessage() for record in caplog.records] == [
        f"what {second._socket.stem} counts is not added up: it is too long"
    ]
    await second.stop()
    assert (await first.total()).task("digits").errors == {"OVERLOADED": 1}
    await first.start()
    await first.stop()
    [left] = left_in(tmp_path)
    assert orjson.loads(left.read_bytes()) == through_json(everything(), gone=True)


async def test_what_is_left_is_merged_by_the_next_that_stops(tmp_path: Path) -> None:
    all_of_them = [Siblings(tmp_path, f"{at}", everything()) for at in range(4)]
    for one in all_of_them:
        await one.start()
    for one in all_of_them[1:]:
        await one.stop()

    assert len(left_in(tmp_path)) == 1
    assert (await all_of_them[0].total()).task("digits").errors == {"OVERLOADED": 4}
    await all_of_them[0].stop()


async def test_who_stops_leaves_no_more_of_others_than_is_asked_for(tmp_path: Path) -> None:
    """Else what was removed would be handed on for as long as gateways follow one another."""

    def forget(total: Counters) -> None:
        total.task("digits").forget_variants(())

    gone = Siblings(tmp_path, "a", everything())
    stops, stays = (Siblings(tmp_path, name, Counters(), forget) for name in "bc")
    for one in (gone, stops, stays):
        await one.start()
    await gone.stop()
    await stops.stop()
    assert (await stays.total()).task("digits").variants.keys() == {GONE}
    await stays.stop()


async def test_what_another_version_left_is_no_error(tmp_path: Path) -> None:
    first, second = (Siblings(tmp_path, name, everything()) for name in ("one", "two"))
    await second.start()
    await second.stop()
    [left] = left_in(tmp_path)
    for text in ('{"tasks": {"digits": {"variants": {}}}}', "[1]", '{"tasks"'):
        left.write_text(text)
        assert (await first.total()).task("digits").errors == {"OVERLOADED": 1}


async def test_without_its_folder_it_counts_for_itself(tmp_path: Path) -> None:
    own = Siblings(tmp_path / "missing", "one", everything())
    await own.start()

    assert (await own.total()).in_flight == 7

    await own.stop()


@pytest.mark.slow
async def test_two_gateways_on_one_port_answer_metrics_and_statistics_as_one(
    tmp_path: Path,
) -> None:
    asked_for = 40
    async with (
        fleet(tmp_path, port=free_port()) as it,
        gateway(it) as (first, _),
        gateway(it) as (second, _),
    ):
        it.register("a")
        it.control()
        await eventually(lambda: ready(first) == ready(second) == {"w1": [A]})
        url = f"http://127.0.0.1:{it.settings.port}"
        # A connection for each request: the kernel picks who answers.
        none_kept = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(base_url=url, limits=none_kept, timeout=60) as client:
            for _ in range(asked_for):
                assert (await client.post("/v1/query", json=ROW)).status_code == 200
            each = [of.path.counters.task("digits").variants for of in (first, second)]
            assert all(one.get(A) for one in each), "one of them was never asked"
            for _ in range(10):
                text = (await client.get("/metrics")).text
                rows = f'modelless_rows_total{{task="digits",variant="{A}"}} {asked_for}.0'
                assert rows in text
                [told] = (await client.get("/v2/models/digits/stats")).json()["model_stats"]
                assert told["inference_count"] == asked_for
