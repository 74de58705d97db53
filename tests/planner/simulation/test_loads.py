"""Memory and loads, worked out by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from planner.eviction.registry import RULES
from planner.simulation.fleet import Fleet
from planner.simulation.policy import Policy
from planner.simulation.results import Report
from planner.types import Choice, Query, Refusal, RefusalCode
from tests.planner.simulation.builders import (
    Asked,
    Model,
    load,
    play,
    resident,
    setting,
    unload,
)
from tests.planner.simulation.watching import Watched
from variants.types import WorkerId


def test_memory_is_taken_from_the_start_of_a_load() -> None:
    # At 0.5 s the first still loads and cannot leave, so there is no room for the second.
    report = play(
        setting(Model("a", memory_mib=600), Model("b", memory_mib=600)),
        Asked(0.5, 2_000, task="b"),
        acts={0.0: [load("a")]},
    )

    assert (report.rejected, report.loads, report.evictions) == (1, 1, 0)


def test_what_is_not_in_use_makes_room() -> None:
    report = play(
        setting(Model("a", memory_mib=600), Model("b", memory_mib=600)),
        Asked(6.5, 2_000, task="b"),
        acts={0.0: [load("a")]},
    )

    assert (report.in_time, report.loads, report.evictions) == (1, 2, 1)


def test_what_is_in_use_stays() -> None:
    # The first runs from 6.5 to 6.7 s.
    report = play(
        setting(Model("a", memory_mib=600, latency_ms=200), Model("b", memory_mib=600)),
        Asked(6.5, 500, task="a"),
        Asked(6.6, 2_000, task="b"),
        Asked(6.8, 2_000, task="b"),
        acts={0.0: [load("a")]},
    )

    assert (report.in_time, report.rejected) == (2, 1)
    assert (report.loads, report.evictions) == (2, 1)


def test_what_is_larger_than_a_device_is_not_loaded() -> None:
    report = play(setting(Model("a", memory_mib=1_001)), Asked(0.5, 2_000))

    assert (report.rejected, report.loads) == (1, 0)


def test_loads_run_beside_each_other_and_beside_serving() -> None:
    # Both are ready at 2 s; the device serves meanwhile.
    report = play(
        replace(setting(Model("a"), Model("b"), Model("c")), loads_in_turn=False),
        Asked(1.0, 2_000, task="b"),
        Asked(1.0, 2_000, task="c"),
        Asked(1.5, 10, task="a"),
        acts={0.0: [load("a")]},
    )

    assert report.in_time == 3
    assert report.cost_usd == pytest.approx(0.002020)


def test_an_unload_that_comes_first_makes_room_for_a_load() -> None:
    report = play(
        setting(Model("a", memory_mib=600), Model("b", memory_mib=600)),
        Asked(11.0, 10, task="b"),
        acts={0.0: [load("a")], 10.0: [unload("a"), load("b")]},
    )

    assert (report.in_time, report.loads, report.evictions) == (1, 2, 1)


def test_loading_again_what_is_there_does_nothing() -> None:
    report = play(setting(), Asked(11.0), acts={0.0: [load()], 10.0: [load()]})

    assert (report.in_time, report.loads, report.load_s_total) == (1, 1, 1.0)


@dataclass
class Seen:
    """What was loaded when each query came."""

    loaded: list[tuple[str, ...]] = field(default_factory=list)


# Room for two of three. `a` is asked for three times and then `b` once; `c` needs a place.
ROOM_FOR_TWO = (
    Model("a", memory_mib=400, load_s=1),
    Model("b", memory_mib=400, load_s=8),
    Model("c", memory_mib=400),
    Model("d", memory_mib=100),
)


@pytest.mark.parametrize(
    ("rule", "leaves"),
    [
        pytest.param("lru", "a", id="lru: asked for longest ago"),
        pytest.param("lfu", "b", id="lfu: asked for least"),
        pytest.param("gdsf", "a", id="gdsf: 3 x 1 s is less than 1 x 8 s"),
        pytest.param("modelless", "a", id="modelless: 3 x 1 s is less than 1 x 8 s"),
    ],
)
@pytest.mark.parametrize("instant", [False, True])
def test_each_rule_has_its_own_victim(rule: str, leaves: str, instant: bool) -> None:
    seen = Seen()
    report = play(
        setting(*ROOM_FOR_TWO, eviction=rule, instant=instant),
        *[Asked(10.0 + t, 1e5, task="a") for t in (0, 1, 2)],
        Asked(13.0, 1e5, task="b"),
        Asked(30.0, 1e5, task="c"),
        Asked(40.0, 1e5, task="d"),
        watch=lambda policy, fleet: _Looking(policy, fleet, seen),
    )

    stays = {"a": "b", "b": "a"}[leaves]
    assert (report.loads, report.evictions) == (4, 1)
    assert sorted(seen.loaded[-1]) == sorted([stays, "c"])


@pytest.mark.parametrize("rule", sorted(RULES))
def test_instantly_nothing_takes_time_and_loads_add_up(rule: str) -> None:
    # Room for one: each of the three changes loads again, and no query waits.
    report = play(
        setting(Model("a", memory_mib=600), Model("b", memory_mib=600, load_s=3.0),
                eviction=rule, instant=True),
        *[Asked(t, 0.001, task=task) for t, task in enumerate("aabba")],
    )  # fmt: skip

    assert (report.in_time, report.late, report.rejected) == (5, 0, 0)
    assert (report.loads, report.evictions, report.load_s_total) == (3, 2, 5.0)
    assert report.busy_ratio == 0.0


class _Looking(Watched):
    """Notes what is loaded when a query comes."""

    def __init__(self, policy: Policy, fleet: Fleet, seen: Seen) -> None:
        super().__init__(policy, fleet)
        self._seen = seen

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        worker = self.fleet.workers[WorkerId("gpu-1")]
        names: Sequence[str] = [task for task, _ in resident(worker)]
        self._seen.loaded.append(tuple(names))
        return super().choose(query, now_ms)


def test_in_turn_a_device_loads_one_after_the_other() -> None:
    both = [Model(name, memory_mib=400, load_s=5.0) for name in "ab"]
    asked = [Asked(6.0, 500, task="b"), Asked(11.0, 500, task="b")]
    acts = {0.0: [load("a"), load("b")]}

    beside = play(replace(setting(*both), loads_in_turn=False), *asked, acts=acts)
    in_turn = play(setting(*both), *asked, acts=acts)

    assert (beside.in_time, beside.rejected) == (2, 0)
    assert (in_turn.in_time, in_turn.rejected) == (1, 1)


def test_in_turn_nothing_leaves_for_a_load_that_has_to_wait() -> None:
    three = [Model(name, memory_mib=400, load_s=5.0) for name in "abc"]
    asked = [Asked(6.0, 8_000, task="c"), Asked(6.5, 500, task="a")]
    acts = {0.0: [load("a"), load("b")]}  # the second one ends at 10 s

    report = play(setting(*three), *asked, acts=acts)

    assert (report.in_time, report.rejected, report.evictions) == (1, 1, 0)


def test_in_turn_what_a_query_waits_for_comes_before_what_nobody_has_asked_for() -> None:
    four = [Model(name, memory_mib=200, load_s=5.0) for name in "abcd"]
    # One is under way, to 5 s; then comes what waits, to 10 s; then the others, to 20 s.
    asked = [Asked(1.0, 10_000, task="d"), Asked(14.0, 2_000, task="b"), Asked(14.0, 2_000, "c")]
    acts = {0.0: [load("a"), load("b"), load("c"), load("d")]}

    report = play(setting(*four), *asked, acts=acts)

    assert (report.in_time, report.rejected, report.loads) == (2, 1, 4)


def test_in_turn_a_load_for_queries_to_come_waits_for_a_turn_that_comes_soon() -> None:
    times_s = {"a": 1.0, "b": 5.0, "c": 1.0}
    three = [Model(name, memory_mib=400, load_s=times_s[name]) for name in times_s]
    # `b` is being loaded until 6 s; `c` would have to replace `a`, and its query cannot wait.
    acts = {0.0: [load("a"), load("b")]}

    def played(first_s: float) -> Report:
        asked = [Asked(first_s, 300, task="c"), Asked(9.0, 300, task="c")]
        return play(setting(*three), *asked, acts=acts, watch=_RefusedWhileCold)

    early, late = played(4.0), played(5.5)

    assert (early.in_time, early.rejected) == (0, 2)
    assert (late.in_time, late.rejected, late.loads) == (1, 1, 3)


@pytest.mark.parametrize(("rule", "in_time"), [("modelless", 1), ("lru", 0)])
def test_in_turn_the_next_load_is_of_what_is_asked_for_most(rule: str, in_time: int) -> None:
    """Under published rules it is of what was asked for first."""
    times_s = {"a": 1.0, "b": 5.0, "c": 1.0, "d": 1.0}
    four = [Model(name, memory_mib=400, load_s=times_s[name]) for name in times_s]
    # `b` is being loaded until 6 s; either `c` or `d` replaces `a` then.
    acts = {0.0: [load("a"), load("b")]}
    asked = [Asked(5.2, 300, "c"), *[Asked(5.3, 300, "d")] * 3, Asked(8.0, 300, "d")]

    report = play(setting(*four, eviction=rule), *asked, acts=acts, watch=_RefusedWhileCold)

    assert (report.in_time, report.rejected) == (in_time, len(asked) - in_time)


class _RefusedWhileCold(Watched):
    """Refuses what would have to wait for a load, and has it loaded for those to come."""

    weighs_loads = True

    def choose(self, query: Query, now_ms: float) -> Choice | Refusal:
        found = super().choose(query, now_ms)
        assert isinstance(found, Choice)
        candidate, worker = found.candidate, self.fleet.workers[found.worker.id]
        if (candidate.task, candidate.variant) in worker.ready:
            return found
        load = (candidate, worker.view)
        return Refusal(code=RefusalCode.COLD, message="not loaded", load=load)
