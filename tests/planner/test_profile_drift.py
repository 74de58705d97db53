from hypothesis import given
from hypothesis import strategies as st

from planner.profile_drift import (
    BATCHES,
    PATIENCE_S,
    Drifted,
    DriftWatch,
    Live,
    LiveRatio,
    drift_words,
)


def followed(*ratios: float) -> LiveRatio:
    live = LiveRatio()
    for ratio in ratios:
        live.seen(ratio * 3.0, 3.0)
    return live


@given(st.floats(0.1, 10.0), st.integers(0, 30))
def test_it_finds_the_median_whatever_the_stalls(ratio: float, stalls: int) -> None:
    live = followed(*([ratio] * 200), *([1_000.0] * stalls), *([ratio] * (stalls + 5)))
    assert 0.95 * ratio <= live.ratio <= 1.05 * ratio


def test_a_stall_moves_it_by_one_step() -> None:
    assert followed(*[1.0] * 50, 1_000.0).ratio < 1.03


def test_what_a_clock_cannot_resolve_is_not_counted() -> None:
    live = LiveRatio()
    live.seen(0.0, 1.0)
    live.seen(1.0, 0.0)
    assert (live.ratio, live.batches) == (1.0, 0)


def test_another_profile_begins_again() -> None:
    live = followed(*[3.0] * 100)
    live.forget()
    assert (live.ratio, live.batches) == (1.0, 0)


SLOW, RIGHT = Live(ratio=2.0, batches=BATCHES), Live(ratio=1.1, batches=BATCHES)


def test_what_stays_slow_is_told_once() -> None:
    watch: DriftWatch[str] = DriftWatch()
    assert watch.look(0.0, [("a", "monday", SLOW)]) == []
    assert watch.look(PATIENCE_S, [("a", "monday", SLOW)]) == [Drifted("a", 2.0, PATIENCE_S)]
    assert watch.look(PATIENCE_S + 1, [("a", "monday", SLOW)]) == []


def test_a_new_profile_may_drift_again() -> None:
    watch: DriftWatch[str] = DriftWatch()
    watch.look(0.0, [("a", "monday", SLOW)])
    watch.look(PATIENCE_S, [("a", "monday", SLOW)])
    watch.look(PATIENCE_S + 1, [("a", "tuesday", RIGHT)])
    watch.look(PATIENCE_S + 2, [("a", "tuesday", SLOW)])
    (told,) = watch.look(2 * PATIENCE_S + 2, [("a", "tuesday", SLOW)])
    assert told.key == "a"


def test_a_moment_of_rest_starts_the_patience_again() -> None:
    watch: DriftWatch[str] = DriftWatch()
    watch.look(0.0, [("a", "", SLOW)])
    watch.look(PATIENCE_S - 1, [("a", "", RIGHT)])
    assert watch.look(PATIENCE_S + 1, [("a", "", SLOW)]) == []


def test_one_slow_replica_among_several_is_that_worker_s_affair() -> None:
    watch: DriftWatch[str] = DriftWatch()
    both = [("a", "", SLOW), ("a", "", RIGHT)]
    watch.look(0.0, both)
    assert watch.look(PATIENCE_S, both) == []


def test_of_several_slow_replicas_the_least_slow_is_told() -> None:
    watch: DriftWatch[str] = DriftWatch()
    both = [("a", "", Live(ratio=3.0, batches=BATCHES)), ("a", "", SLOW)]
    watch.look(0.0, both)
    assert watch.look(PATIENCE_S, both) == [Drifted("a", 2.0, PATIENCE_S)]


def test_few_batches_say_nothing() -> None:
    assert not Live(ratio=9.0, batches=BATCHES - 1).away
    assert Live(ratio=0.5, batches=BATCHES).away


def test_it_is_said_in_words() -> None:
    assert drift_words(2.14) == "runs 2.1 times as long as its profile says"
    assert drift_words(0.4) == "runs in 40 % of the time that its profile says"
