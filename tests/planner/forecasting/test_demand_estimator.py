"""What is to be expected, its envelope, and the tightest SLOs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.forecasting.demand import SloClass
from planner.forecasting.demand_estimator import DemandEstimator, Least
from planner.types import WHOLE_ROOM, Objective
from tests.planner.builders import DIGITS, catalog, kind, profile, variant
from variants.types import CatalogSnapshot, TaskName

CLASS: tuple[TaskName, SloClass] = (DIGITS, (50.0, None))
OTHER: tuple[TaskName, SloClass] = (DIGITS, (100.0, None))

HEAVY: tuple[TaskName, SloClass] = (TaskName("heavy"), (50.0, None))


def light_and_heavy(usd_per_hour: float = 0.36, heavy_ms: float = 40.0) -> CatalogSnapshot:
    return catalog(
        [variant("a"), variant("b", task="heavy")],
        [profile("a", 10.0), profile("b", heavy_ms, task="heavy")],
        kinds=[kind(usd_per_hour=usd_per_hour)],
    )


def estimator(envelope_s: float = 60.0, settled_s: float = 30.0) -> DemandEstimator:
    """It forecasts by the second."""
    return DemandEstimator(
        Objective.COST, step_s=1.0, horizon_s=1.0, envelope_s=envelope_s, settled_s=settled_s
    )


def watch(it: DemandEstimator, begin_s: int, end_s: int, qps: float) -> None:
    """A steady rate of one class, second by second."""
    for second in range(begin_s, end_s):
        it.observe(float(second + 1), {CLASS: qps}, {}, 1.0)


def test_nothing_is_expected_before_anything_was_seen() -> None:
    it = estimator()
    assert (it.expected, it.envelope, it.watched) == ((), (), 0.0)


def test_each_class_is_expected_with_its_tightest_slo() -> None:
    it = estimator()
    it.observe(1.0, {CLASS: 10.0, OTHER: 10.0}, {CLASS: 70.0}, 1.0)
    it.observe(2.0, {CLASS: 10.0, OTHER: 10.0}, {CLASS: 80.0}, 1.0)
    assert [(d.latency_ms, d.slo_ms) for d in it.expected] == [(50.0, 70.0), (100.0, None)]


def test_the_tightest_slo_fades_within_two_minutes() -> None:
    it = estimator()
    it.observe(1.0, {CLASS: 10.0}, {CLASS: 51.0}, 1.0)
    for second in range(2, 122):
        it.observe(float(second), {CLASS: 10.0}, {CLASS: 90.0}, 1.0)
        if second == 61:
            assert [d.slo_ms for d in it.expected] == [51.0]
    assert [d.slo_ms for d in it.expected] == [51.0]
    it.observe(123.0, {CLASS: 10.0}, {CLASS: 90.0}, 1.0)
    assert [d.slo_ms for d in it.expected] == [90.0]


def test_the_envelope_has_room_for_what_came_again_and_again() -> None:
    it = estimator(envelope_s=60.0)
    for spell in range(20):
        watch(it, 40 * spell, 40 * spell + 30, qps=10.0)
        watch(it, 40 * spell + 30, 40 * spell + 40, qps=1_000.0)
    watch(it, 800, 825, qps=10.0)
    [now], [most] = it.expected, it.envelope
    assert now.qps < 100.0
    assert most.qps >= 1_000.0
    assert (most.task, most.latency_ms) == (now.task, now.latency_ms)


@pytest.mark.parametrize("idle_s", [300, 303, 308])
def test_after_idle_time_workers_are_there_for_what_comes_within_two_seconds(idle_s: int) -> None:
    it = DemandEstimator(Objective.COST, step_s=10.0, horizon_s=60.0)
    watch(it, 0, 200, 20.0)
    watch(it, 200, 200 + idle_s, 0.0)
    assert sum(d.qps for d in it.envelope) < 1.0
    found = []
    for second in range(200 + idle_s, 230 + idle_s):
        watch(it, second, second + 1, 100.0)
        found.append(sum(d.qps for d in it.envelope))
    assert min(found[1:]) > 95.0
    assert max(found) < 125.0


def test_the_envelope_of_a_steady_demand_is_hardly_more_than_comes() -> None:
    it = estimator(envelope_s=60.0)
    for second in range(600):
        it.observe(float(second + 1), {CLASS: 300.0, OTHER: 100.0}, {}, 1.0)
    assert sum(d.qps for d in it.envelope) < 1.05 * 400.0
    one, other = it.envelope
    assert one.qps == pytest.approx(3 * other.qps)


def taken_in_turns(it: DemandEstimator, seconds: int, heavy_rows: float = 25.0) -> None:
    """Light rows, a hundred a second, then as much work of heavy ones, every half minute."""
    for second in range(seconds):
        light = second // 30 % 2 == 0
        it.observe(second + 1.0, {CLASS: 100.0} if light else {HEAVY: heavy_rows}, {}, 1.0)


def test_tasks_that_take_turns_need_no_room_where_the_work_stays() -> None:
    plain, it = estimator(), estimator()
    it.know(light_and_heavy())
    for each in (plain, it):
        taken_in_turns(each, 345)
    [heavy] = [d for d in it.envelope if d.task == "heavy"]
    assert heavy.qps < 1.1 * 25.0
    [by_rows] = [d for d in plain.envelope if d.task == "heavy"]
    assert by_rows.qps > 2.0 * 25.0


def test_what_was_learned_is_kept_where_rows_cost_something_else() -> None:
    it = estimator()
    it.know(light_and_heavy())
    taken_in_turns(it, 345)
    before = it.envelope
    it.know(light_and_heavy(usd_per_hour=3.6))
    assert [d.qps for d in it.envelope] == pytest.approx([d.qps for d in before])
    again = estimator()
    again.recall(it.memory(), 0.0, 346.0)
    assert [d.qps for d in again.envelope] == pytest.approx([d.qps for d in before])
    again.know(light_and_heavy())
    assert [d.qps for d in again.envelope] == pytest.approx([d.qps for d in before])


def test_what_nobody_can_answer_is_expected_all_the_same() -> None:
    it = estimator()
    it.know(catalog([variant("a", task="other")], [profile("a", task="other")]))
    watch(it, 0, 60, qps=10.0)
    assert it.envelope == it.expected != ()


def test_nobody_is_waited_for_where_nothing_came_for_long() -> None:
    it = estimator(envelope_s=60.0)
    watch(it, 0, 60, qps=10.0)
    assert it.envelope
    watch(it, 60, 4_000, qps=0.0)
    assert it.envelope == ()


def test_the_fleet_may_go_bit_by_bit_as_demand_is_watched() -> None:
    it = estimator(settled_s=60.0)
    found = []
    for second in range(80):
        watch(it, second, second + 1, qps=10.0)
        found.append(it.watched)
    assert found[0] == 0.0
    assert found == sorted(found)
    assert (found[6], found[7]) == (0.45, 0.5)  # 60 s / sqrt(72) are 7.1 s
    assert (found[58], found[59]) == (0.95, 1.0)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50),
            st.dictionaries(st.sampled_from("abc"), st.integers(1, 100).map(float)),
        ),
        max_size=30,
    )
)
def test_the_least_of_a_window_is_never_forgotten_and_nothing_is_made_up(
    steps: list[tuple[int, dict[str, float]]],
) -> None:
    least: Least[str] = Least(100.0)
    now_s = 0.0
    seen: list[tuple[float, str, float]] = []
    for pause_s, values in steps:
        now_s += pause_s
        least.saw(now_s, values)
        seen += [(now_s, key, value) for key, value in values.items()]
        for key in "abc":
            of_key = [(at_s, value) for at_s, found, value in seen if found == key]
            window = [value for at_s, value in of_key if at_s >= now_s - 100.0]
            answer = least.get(key)
            if window:
                assert answer is not None
                assert answer <= min(window)
            assert answer is None or answer in {v for at_s, v in of_key if at_s >= now_s - 250.0}
            assert least.items().get(key) == answer


def judged(it: DemandEstimator, begin_s: int, end_s: int, lost: float) -> None:
    """A thousand queries a second, of which so many are lost."""
    for second in range(begin_s, end_s):
        it.came_to(1_000 - lost, lost)
        watch(it, second, second + 1, qps=1_000)


def test_the_room_for_chance_follows_what_queries_come_to() -> None:
    it = estimator()
    judged(it, 0, 3, lost=0)
    assert (it.room.part, it.room.lost) == (0.65, 0.0)
    assert it.room.asked == pytest.approx(3_000, rel=0.01)
    judged(it, 3, 4, lost=100)
    assert it.room.part == 1.0
    assert it.room.lost == pytest.approx(100)


def test_what_is_lost_while_an_installation_begins_says_nothing_of_the_room() -> None:
    it = estimator(settled_s=720.0)
    judged(it, 0, 9, lost=100)
    assert it.room == WHOLE_ROOM
    judged(it, 9, 12, lost=0)
    assert (it.room.part, it.room.lost) == (0.65, 0.0)


def test_what_nobody_has_judged_leaves_the_room_as_it_is() -> None:
    it = estimator()
    watch(it, 0, 60, qps=1_000)
    assert it.room == WHOLE_ROOM


@pytest.mark.parametrize("objective", [Objective.ACCURACY, Objective.ENERGY])
def test_only_cost_has_less_than_the_whole_room(objective: Objective) -> None:
    it = DemandEstimator(objective, step_s=1.0, horizon_s=1.0, settled_s=30.0)
    judged(it, 0, 10, lost=0)
    assert it.room == WHOLE_ROOM


def test_what_is_needed_is_known_sooner_where_what_comes_stays_as_it_is() -> None:
    one, moving = estimator(settled_s=720.0), estimator(settled_s=720.0)
    watch(one, 0, 9, qps=1_000)
    assert (one.watched, one.steady) == (0.0, 0.0), "no step was looked at"
    watch(one, 9, 12, qps=1_000)
    assert (one.watched, one.steady) == (0.0, 0.1)
    for second in range(0, 40, 2):
        watch(moving, second, second + 1, qps=1_000)
        watch(moving, second + 1, second + 2, qps=2_000)
    assert (moving.watched > 0.0, moving.steady) == (True, 0.0)


def test_nothing_goes_sooner_while_more_was_lost_than_may_be() -> None:
    it = estimator(settled_s=720.0)
    judged(it, 0, 20, lost=0)
    sooner = it.steady
    judged(it, 20, 21, lost=100)
    owing = it.steady
    judged(it, 21, 45, lost=0)
    assert (sooner > 0.0, owing, it.steady > sooner) == (True, 0.0, True)


@pytest.mark.parametrize("objective", [Objective.ACCURACY, Objective.ENERGY])
def test_only_under_cost_anything_goes_sooner(objective: Objective) -> None:
    it = DemandEstimator(objective, step_s=1.0, horizon_s=1.0, settled_s=720.0)
    judged(it, 0, 40, lost=0)
    assert it.steady == 0.0


def test_the_room_is_remembered_and_a_memory_from_before_it_was_followed_has_all_of_it() -> None:
    one, other, old = estimator(), estimator(), estimator()
    judged(one, 0, 10, lost=0)
    memory = one.memory()
    other.recall(memory, 0.0, 10.0)
    assert other.room == one.room
    old.recall({name: part for name, part in memory.items() if name != "room"}, 0.0, 10.0)
    assert old.room == WHOLE_ROOM


def test_of_a_task_that_has_left_the_catalog_nothing_is_kept() -> None:
    """What is learned of a class takes 17 KiB: they were kept for an hour after its last query."""
    both, alone = light_and_heavy(), catalog([variant("a")], [profile("a", 10.0)])
    it = estimator()
    it.know(both)
    for second in range(1, 20):
        it.observe(float(second), {CLASS: 10.0, HEAVY: 10.0}, {}, 1.0)
    kept = remembered(it)
    assert kept == {DIGITS, HEAVY[0]}

    it.know(alone)
    it.observe(20.0, {CLASS: 10.0}, {}, 1.0)

    assert remembered(it) == {DIGITS}
    assert [d.task for d in it.expected] == [DIGITS]


def remembered(it: DemandEstimator) -> set[TaskName]:
    """The tasks of which the forecasts, of totals and of classes, know anything."""
    forecast = it.memory()["forecast"]
    totals = {TaskName(key) for key in forecast["totals"]["buckets"]["keys"]}
    assert {TaskName(key[0]) for key in forecast["parts"]["buckets"]["keys"]} == totals
    return totals
