"""How far away a worker is: what load adds is not believed, a longer way soon is."""

import asyncio
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import sleep

import pytest

from tests.workers.builders import config, connect, running, until
from tests.workers.channel.detour import Detour
from workers import host
from workers.channel.round_trip import REMEMBERED, LoopLag, RoundTrip


def after(*took_ms: float) -> float:
    trip = RoundTrip()
    for each in took_ms:
        trip.saw(each)
    return trip.ms


@pytest.mark.parametrize(
    ("took_ms", "is_ms"),
    [
        ((0.4, 0.3, 25.0, 0.5), 0.0),
        ((20.0, 21.0, 90.0, 300.0), 20.0),
        ((90.0, 20.0, 20.5, 21.0), 20.0),
        ((25.0, 18.0, 30.0), 0.0),  # both sides have just started
        ((3.0, 3.5, 3.0, 3.2), 0.0),
    ],
)
def test_what_counts_is_the_least_of_several(took_ms: tuple[float, ...], is_ms: float) -> None:
    assert after(*took_ms) == is_ms


def test_a_way_that_becomes_longer_is_believed_when_the_short_ones_are_forgotten() -> None:
    assert after(*[20.0] * 4, *[60.0] * (REMEMBERED - 1)) == 20.0
    assert after(*[20.0] * 4, *[60.0] * REMEMBERED) == 60.0


def test_a_way_that_becomes_shorter_is_believed_at_once() -> None:
    assert after(*[60.0] * REMEMBERED, 5.0) == 5.0
    assert after(*[60.0] * REMEMBERED, 0.5) == 0.0


def test_a_way_on_the_edge_of_what_counts_does_not_come_and_go() -> None:
    trip = RoundTrip()
    seen = []
    for each_ms in [4.1, 3.8] * (2 * REMEMBERED):
        trip.saw(each_ms)
        seen.append(trip.ms)
    assert set(seen) == {0.0}
    for each_ms in [5.0] * REMEMBERED + [3.0, 5.0] * REMEMBERED:
        trip.saw(each_ms)
        seen.append(trip.ms)
    assert sum(one != other for one, other in pairwise(seen)) == 2


def test_what_this_side_is_always_late_by_is_taken_off() -> None:
    lag = LoopLag()
    trip = RoundTrip(lag)
    for late_ms in [4.0, 9.0, 5.0] * 3:
        lag.saw(late_ms)
        trip.saw(30.0 + late_ms)
    assert trip.ms == 31.0
    near = RoundTrip(lag)
    for took_ms in [4.5, 5.0, 8.0, 6.0]:
        near.saw(took_ms)
    assert near.ms == 0.0


def test_nothing_is_taken_off_before_there_are_some_nor_for_a_moment() -> None:
    lag = LoopLag()
    for late_ms in (20.0, 30.0, 25.0):
        lag.saw(late_ms)
    assert lag.ms == 0.0
    for late_ms in (0.4, 40.0):
        lag.saw(late_ms)
    assert lag.ms == 0.0


async def test_a_loop_that_is_busy_in_turns_is_late_by_a_turn() -> None:
    lag, loop = LoopLag(), asyncio.get_running_loop()
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        sleep(0.005)
        if not lag.known:
            loop.call_soon(turn)

    turn()
    lag.measure()
    await until(lambda: lag.known)
    assert turns >= REMEMBERED / 2
    assert lag.ms >= 3.9  # a turn comes before what is due, and takes at least so long


@pytest.mark.slow
@pytest.mark.parametrize("one_clock", [True, False], ids=["one clock", "another clock"])
async def test_a_connection_measures_its_way_and_keeps_back_what_it_takes(
    tmp_path: Path, one_clock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not one_clock:
        monkeypatch.setattr(host, "clock_name", lambda: "of another machine")
    worker = config(tmp_path)
    async with running(worker) as (made, near), Detour(50.0) as way:
        far = await connect(way.to(near.address), worker)
        assert far.round_trip.ms == 0.0  # the handshake tells nothing: both sides start
        far.measure()
        await until(lambda: far.round_trip.known)  # several times, at once
        assert far.round_trip.ms >= 50.0
        assert far.return_ms == far.round_trip.ms * (0.5 if one_clock else 1.0)

        way.one_way_s = 0.0
        for _ in range(REMEMBERED):
            far.measure()
            measured = far._measured
            far.measure()  # one at a time
            assert far._measured is measured is not None
            await until(lambda: far._measured is None)
        assert far.round_trip.ms < 50.0
        far.close()

        near.measure()
        assert near._measured is None  # on one machine nothing is asked
        assert (near.round_trip.ms, near.return_ms) == (0.0, 0.0)
        assert made.status().zone == ""


async def test_a_worker_says_its_zone(tmp_path: Path) -> None:
    async with running(replace(config(tmp_path), zone="edge")) as (_, connection):
        assert connection.status.zone == "edge"
