"""What a control loop learned is there for the next one, and what is damaged does no harm."""

import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from controlplane.controller.events.journal import Journal
from controlplane.controller.learned_state import NAME, LearnedState, decoded, encoded
from controlplane.controller.peak_calendar import PeakCalendar
from controlplane.settings import load_settings
from planner.forecasting.demand import SloClass
from planner.forecasting.demand_estimator import DemandEstimator
from tests.controlplane.builders import DIGITS, worker
from tests.controlplane.fleet import eventually, fleet, gateway
from tests.ports import free_port
from variants.catalog.memory import MemoryCatalog
from variants.types import DeviceKindName, Peak, TaskName

NOW_S = 1_800_000_000.0
CPU_4 = DeviceKindName("cpu-4")
CLASS: tuple[TaskName, SloClass] = (DIGITS.name, (50.0, None))

values = st.none() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=5)
memories = st.recursive(
    values
    | st.lists(values, max_size=3)
    | arrays.arrays(np.float64, arrays.array_shapes(max_dims=3, max_side=4, min_side=0))
    | arrays.arrays(np.float32, 3)
    | arrays.arrays(np.int64, 2),
    lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=True)
    return bool(one == other)


@given(st.dictionaries(st.text(max_size=5), memories, max_size=4))
def test_a_memory_is_read_as_it_was_written(memory: dict[str, Any]) -> None:
    assert same(decoded(encoded(memory)), memory)


@given(st.binary(max_size=200), st.integers(0, 10_000), st.integers(0, 255))
def test_what_is_no_memory_is_refused(noise: bytes, place: int, byte: int) -> None:
    body = encoded({"a": np.arange(5.0), "b": {"c": [1, "x"]}})
    raw = bytearray(zlib.decompress(body))
    raw[place % len(raw)] = byte
    for bad in (noise, zlib.compress(noise), body[: place % len(body)], zlib.compress(raw)):
        with suppress(ValueError):
            decoded(bad)


def test_no_more_is_unpacked_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    body = encoded({"a": np.zeros(100_000)})
    monkeypatch.setattr("controlplane.controller.learned_state.MOST_BYTES", 1_000)
    with pytest.raises(ValueError, match="larger than"):
        decoded(body)


class Controller:
    """The parts of a control loop that learn, on a clock that began when it started."""

    def __init__(self, catalog: MemoryCatalog, folder: Path, wall_s: float) -> None:
        self.now_s = 0.0
        self.wall_s = wall_s
        self.journal = Journal(catalog)
        self.settings = load_settings(state_dir=folder)
        self.calendar = PeakCalendar(self.journal, lambda: self.wall_s)
        self.learned = LearnedState(catalog, self.journal, lambda: self.now_s, lambda: self.wall_s)
        self.epoch = catalog.acquire_leadership("test")
        self.estimator = DemandEstimator(self.settings.planning.objective)

    async def lead(self) -> "Controller":
        self.estimator, _ = await self.learned.recall(self.settings, self.calendar)
        return self

    def turn(self, seconds: int, qps: float = 100.0) -> None:
        for _ in range(seconds):
            self.now_s, self.wall_s = self.now_s + 1.0, self.wall_s + 1.0
            self.estimator.observe(self.now_s, {CLASS: qps}, {CLASS: 60.0}, 1.0)


async def kinds(it: Controller, catalog: MemoryCatalog) -> list[str]:
    await it.journal.store_events()
    return [event.kind for event in reversed(catalog.events(100))]


async def test_a_successor_goes_on_with_all_that_was_learned(tmp_path: Path) -> None:
    catalog = MemoryCatalog()
    first = await Controller(catalog, tmp_path, NOW_S).lead()
    first.turn(400)
    peak = catalog.add_peak(Peak(start_s=NOW_S + 410.0, end_s=NOW_S + 900.0, factor=3.0))
    first.calendar.know((peak,), catalog.snapshot())
    first.calendar.see({CPU_4: 1}, [worker("a")], 1.0)
    first.calendar.see({CPU_4: 2}, [worker("a")], 2.0)
    first.calendar.see({CPU_4: 2}, [worker("a"), worker("b")], 27.0)
    raised = first.calendar.foresee(first.estimator.expected, (), [CPU_4], 1.0).expected
    await first.learned.close(first.epoch, first.estimator, first.calendar)

    # Half a minute later, on another clock, in the middle of the peak and knowing nothing else.
    second = await Controller(catalog, tmp_path, NOW_S + 430.0).lead()
    assert await kinds(second, catalog) == ["forecast_recalled"]
    assert second.estimator.watched == first.estimator.watched > 0.0
    assert second.calendar.orders.usual_s == {CPU_4: 25.0}
    second.turn(1, qps=300.0)
    first.now_s += 30.0
    first.turn(1, qps=300.0)
    for ours, theirs in zip(second.estimator.expected, first.estimator.expected, strict=True):
        assert ours.qps == pytest.approx(theirs.qps, rel=1e-3)
        assert ours.slo_ms == theirs.slo_ms
    second.calendar.know((peak,), catalog.snapshot())
    [demand] = second.calendar.foresee((), (), [CPU_4], 1.0).expected
    assert demand == raised[0]


BEYOND = encoded({"at_s": 10**400, "estimator": {}, "calendar": {}})
"""A number that no float holds."""


@pytest.mark.parametrize(
    "body", [b"nothing of this kind", encoded({}), BEYOND], ids=["noise", "empty", "beyond"]
)
async def test_what_is_damaged_is_learned_anew(tmp_path: Path, body: bytes) -> None:
    catalog = MemoryCatalog()
    it = Controller(catalog, tmp_path, NOW_S)
    catalog.put_learned(NAME, NOW_S, body, epoch=it.epoch)
    await it.lead()
    assert await kinds(it, catalog) == ["forecast_forgotten"]
    it.turn(3)
    assert it.estimator.expected


async def test_a_loop_that_ends_before_it_has_recalled_keeps_what_there_was(tmp_path: Path) -> None:
    catalog = MemoryCatalog()
    first = await Controller(catalog, tmp_path, NOW_S).lead()
    first.turn(30)
    await first.learned.close(first.epoch, first.estimator, first.calendar)
    kept = catalog.learned(NAME)
    second = Controller(catalog, tmp_path, NOW_S + 60.0)
    await second.learned.close(second.epoch, second.estimator, second.calendar)
    assert catalog.learned(NAME) == kept is not None


async def test_another_forecaster_learns_anew(tmp_path: Path) -> None:
    catalog = MemoryCatalog()
    first = await Controller(catalog, tmp_path, NOW_S).lead()
    first.settings = load_settings(state_dir=tmp_path, forecast="learned")
    await first.lead()
    first.turn(30)
    await first.learned.close(first.epoch, first.estimator, first.calendar)
    second = Controller(catalog, tmp_path, NOW_S)
    second.settings = load_settings(state_dir=tmp_path, forecast="adaptive")
    await second.lead()
    assert await kinds(second, catalog) == ["forecast_forgotten"]


async def test_it_is_kept_once_a_minute_and_never_by_an_older_leader(tmp_path: Path) -> None:
    catalog = MemoryCatalog()
    it = await Controller(catalog, tmp_path, NOW_S).lead()
    it.turn(59)
    it.learned.keep_on(it.epoch, it.estimator, it.calendar)
    assert not it.learned._keeping.is_under_way
    it.turn(1)
    it.learned.keep_on(it.epoch, it.estimator, it.calendar)
    await eventually(lambda: catalog.learned(NAME) is not None)
    kept = catalog.learned(NAME)
    assert kept is not None
    assert kept[0] == NOW_S + 60.0
    catalog.acquire_leadership("another")
    it.turn(60)
    await it.learned.close(it.epoch, it.estimator, it.calendar)
    assert catalog.learned(NAME) == kept


async def test_what_cannot_be_written_down_is_told(tmp_path: Path) -> None:
    it = await Controller(MemoryCatalog(), tmp_path, NOW_S).lead()
    it.turn(60)
    it.estimator.memory = lambda: {"what": object()}  # type: ignore[method-assign]
    it.learned.keep_on(it.epoch, it.estimator, it.calendar)

    await eventually(lambda: it.journal.troubled("writing down of what was learned"))


@pytest.mark.slow
async def test_a_control_loop_that_takes_over_knows_the_demand(tmp_path: Path) -> None:
    async with (
        fleet(tmp_path, port=free_port()) as it,
        gateway(it, timeout_s=60) as (_, client),
    ):
        name = it.register("a")
        first = it.control()
        await it.until_ready(w1=[name])

        async def known() -> bool:
            body = {"task": DIGITS.name, "inputs": [[0.0] * 64], "slo": {"latency_ms": 10_000}}
            reply = await client.post("/v1/query", json=body)
            assert reply.status_code == 200, reply.text
            return bool(first.loop._arrivals.estimator.expected)

        await eventually(known, "a forecast of what is asked")
        estimator = first.loop._arrivals.estimator
        await first.stop()
        second = it.control()
        await eventually(lambda: "forecast_recalled" in it.kinds_of_events())
        # It may have counted since, and the most that was expected lately only grows by that.
        known_before, known_now = (
            {(d.task, d.latency_ms, d.accuracy): d.qps for d in one.envelope}
            for one in (estimator, second.loop._arrivals.estimator)
        )
        assert known_before
        assert all(known_now.get(of, 0.0) >= qps for of, qps in known_before.items())
