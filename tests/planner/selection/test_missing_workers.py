"""Refusals while a worker is missing: none is wanted, wanted ones start, or it is unknown."""

from collections.abc import Mapping
from dataclasses import replace

from planner.selection.missing_workers import may_change
from planner.selection.refusal import load_wait_ms
from planner.selection.select import select
from planner.selection.snapshot import build_snapshot
from planner.types import Choice, Query, Refusal, RefusalCode, Snapshot, WorkerView
from planner.worker_starts import Start, Wanted
from tests.planner.builders import NOW_MS, catalog, key, kind, profile, query, variant, worker
from variants.types import DeviceKindName

CPU, GPU = DeviceKindName("cpu-1"), DeviceKindName("gpu")

NONE_WANTED = "no worker is running and none is wanted: every device kind is scaled to 0 workers"


def fleet(wanted: Wanted, *workers: WorkerView, loaded: bool = True) -> Snapshot:
    """One variant, which takes 50 ms on a CPU and 5 on a GPU, on those workers."""
    known = catalog(
        [variant("a", 0.9)],
        [profile("a", 50.0, load_s=2.0), profile("a", 5.0, kind="gpu", load_s=2.0)],
        kinds=[kind(), kind("gpu")],
    )
    holding = [(view, [key("a")] if loaded else []) for view in workers]
    return build_snapshot(known, holding, transport_ms=0.0, wanted=wanted)


def want(counts: Mapping[DeviceKindName, int], *starting: DeviceKindName) -> Wanted:
    """Of the kinds that are starting, workers have been absent for 2 of the usual 6 seconds."""
    starts = {kind: Start(since_ms=NOW_MS - 2_000.0, usual_ms=6_000.0) for kind in starting}
    return Wanted(counts=counts, starting=starts)


def refused(snapshot: Snapshot, asked: Query) -> tuple[RefusalCode, str, float | None]:
    answer = select(snapshot, asked, NOW_MS)
    assert isinstance(answer, Refusal)
    return answer.code, answer.message, answer.retry_after_s


def test_none_is_wanted_so_there_is_no_time_to_ask_again() -> None:
    assert refused(fleet(want({CPU: 0})), query()) == (RefusalCode.NO_WORKERS, NONE_WANTED, None)
    assert refused(fleet(want({})), query()) == (RefusalCode.NO_WORKERS, NONE_WANTED, None)


def test_wanted_ones_are_starting() -> None:
    assert refused(fleet(want({CPU: 2, GPU: 0}, CPU)), query()) == (
        RefusalCode.NO_WORKERS,
        "no worker that could answer is running: 2 of cpu-1 are wanted and being started; the "
        "first is expected in 4.0 s",
        4.0,
    )


def test_a_start_that_is_overdue_does_not_send_clients_away_for_as_long() -> None:
    """It may be there at any moment: they come back after a usual start, as at its beginning."""
    for overdue_s, said in ((0.5, "expected in 1.0 s"), (30.0, "overdue by 30 s")):
        start = Start(since_ms=NOW_MS - 6_000.0 - 1_000.0 * overdue_s, usual_ms=6_000.0)
        _, message, again_s = refused(
            fleet(Wanted(counts={CPU: 1}, starting={CPU: start})), query()
        )
        assert message.endswith(f"being started; the first is {said}")
        assert again_s == min(6.0, max(1.0, overdue_s))


def test_who_has_more_time_than_a_start_takes_may_wait_for_it() -> None:
    def awaited(wanted: Wanted, latency_ms: float) -> bool:
        answer = select(fleet(wanted), query(latency_ms), NOW_MS)
        assert isinstance(answer, Refusal)
        return answer.awaited

    starting = want({CPU: 1}, CPU)
    told = select(fleet(starting), query(60_000.0), NOW_MS)
    assert isinstance(told, Refusal)
    assert told.message.endswith("expected in 4.0 s, and the query has the time to wait for it")
    assert [awaited(starting, ms) for ms in (3_999.0, 4_001.0, 60_000.0)] == [False, True, True]
    assert not awaited(want({CPU: 0}), 60_000.0)
    assert not awaited(Wanted(counts={CPU: 1}, listed=False), 60_000.0)
    # Nothing says that a worker of this kind could answer.
    assert not awaited(want({DeviceKindName("cpu-8"): 1}), 60_000.0)


def test_a_worker_that_leaves_is_none() -> None:
    leaving = worker("w1", draining=True)
    assert refused(fleet(want({CPU: 0}), leaving), query())[1] == NONE_WANTED


def test_wanted_kinds_that_no_variant_was_measured_on_are_waited_for_as_well() -> None:
    other = DeviceKindName("cpu-8")
    code, message, _ = refused(fleet(want({other: 1}, other)), query())
    assert (code, "1 of cpu-8 is wanted" in message) == (RefusalCode.NO_WORKERS, True)


def test_it_is_not_known_where_the_workers_are() -> None:
    silent = Wanted(counts={CPU: 1}, listed=False)
    assert refused(fleet(silent), query()) == (
        RefusalCode.NO_WORKERS,
        "no worker is known: the live state, which lists them, does not answer",
        1.0,
    )
    assert refused(fleet(Wanted()), query()) == (
        RefusalCode.NO_WORKERS,
        "no worker is running, and it is not known whether one is wanted",
        1.0,
    )


def test_while_everything_is_stopped_none_is_said_to_start() -> None:
    ending = Wanted(counts={CPU: 1, GPU: 1}, ending=True)
    told = (
        RefusalCode.NO_WORKERS,
        "no worker is running any more: this installation is being stopped",
        None,
    )
    assert refused(fleet(ending), query()) == told
    assert refused(fleet(ending, worker("w1", draining=True)), query()) == told
    assert refused(fleet(ending, worker()), query(20.0)) == told
    assert isinstance(select(fleet(ending, worker()), query(), NOW_MS), Choice)


def test_what_no_worker_could_help_is_infeasible_all_the_same() -> None:
    for wanted in (want({CPU: 0}), want({CPU: 1}, CPU), Wanted()):
        assert refused(fleet(wanted), query(accuracy=0.99))[0] is RefusalCode.SLO_INFEASIBLE
        assert refused(fleet(wanted), query(rows=100))[0] is RefusalCode.SLO_INFEASIBLE


def test_what_only_a_missing_kind_can_meet_waits_for_it_when_it_is_wanted() -> None:
    tight = query(20.0)
    assert refused(fleet(want({CPU: 1, GPU: 1}, GPU), worker()), tight) == (
        RefusalCode.NO_WORKERS,
        "no worker that could answer is running: 1 of gpu is wanted and being started; the first "
        "is expected in 4.0 s",
        4.0,
    )
    for counts in ({CPU: 1}, {CPU: 1, GPU: 0}):
        assert refused(fleet(want(counts), worker()), tight)[0] is RefusalCode.SLO_INFEASIBLE
    # Too tight for the missing one as well.
    infeasible = fleet(want({CPU: 1, GPU: 1}, GPU), worker())
    assert refused(infeasible, query(2.0))[0] is RefusalCode.SLO_INFEASIBLE


def test_a_choice_does_not_wait_for_missing_kinds() -> None:
    assert isinstance(select(fleet(want({CPU: 1, GPU: 1}, GPU), worker()), query(), NOW_MS), Choice)


def test_more_workers_may_change_what_is_cold_crowded_or_without_any() -> None:
    ready = select(fleet(Wanted(), worker()), query(), NOW_MS)
    loaded_first = select(fleet(Wanted(), worker(), loaded=False), query(5_000.0), NOW_MS)
    cold = select(fleet(Wanted(), worker(), loaded=False), query(), NOW_MS)
    crowded = select(fleet(Wanted(), worker(busy_ms=1_000.0)), query(), NOW_MS)
    unmet = select(fleet(Wanted()), query(), NOW_MS)
    infeasible = select(fleet(Wanted(), worker()), query(1.0), NOW_MS)
    unknown = select(fleet(Wanted(), worker()), query(task="else"), NOW_MS)
    assert [may_change(f) for f in (loaded_first, cold, crowded, unmet)] == [True] * 4
    assert [may_change(f) for f in (ready, infeasible, unknown)] == [False] * 3


def test_a_load_waits_for_those_in_line_before_it() -> None:
    host = worker()
    snapshot = fleet(Wanted(), host, loaded=False)
    (cpu,) = (c for c in snapshot.tasks[query().task].by_cost if c.device_kind == CPU)
    assert load_wait_ms(snapshot, cpu, host) == 2_000.0
    host.loading, host.loading_asked = (key("a"), key("gone")), 2
    # It is in line itself: what comes after it does not count, nor what the catalog lacks.
    assert load_wait_ms(snapshot, cpu, host) == 2_000.0
    assert refused(snapshot, query())[2] == 2.0


def test_of_loads_that_nobody_asks_for_only_the_one_under_way_comes_before() -> None:
    known = catalog(
        [variant(name) for name in "abcd"],
        [profile(name, load_s=2.0 + at) for at, name in enumerate("abcd")],
    )
    host = worker()
    host.loading, host.loading_asked = (key("b"), key("c"), key("d")), 1
    snapshot = build_snapshot(known, [(host, ())], transport_ms=0.0)
    found = snapshot.tasks[query().task].by_cost
    waits = {one.variant: load_wait_ms(snapshot, one, host) for one in found}
    # `b` is asked for; `c` or `d` may be under way, and which of them is not known.
    assert waits == {"a": 10_000.0, "b": 8_000.0, "c": 12_000.0, "d": 12_000.0}


def test_what_queries_ask_for_is_told_from_what_else_a_worker_loads() -> None:
    host = worker()
    assert host.will_load(key("a"), asked=False)
    assert host.will_load(key("b"), asked=True)
    assert host.will_load(key("c"), asked=False)
    assert (host.loading, host.loading_asked) == ((key("b"), key("a"), key("c")), 1)
    assert not host.will_load(key("c"), asked=True)
    assert not host.will_load(key("c"), asked=True)
    assert (host.loading, host.loading_asked) == ((key("b"), key("c"), key("a")), 2)
    host.loads_no_more(key("a"))
    host.loads_no_more(key("b"))
    assert (host.loading, host.loading_asked) == ((key("c"),), 1)


def test_what_another_task_loads_there_counts() -> None:
    known = catalog(
        [variant("a"), variant("b", task="other")],
        [profile("a", load_s=2.0), profile("b", task="other", load_s=3.0)],
    )
    host = worker()
    host.loading, host.loading_asked = (key("b", "other"),), 1
    snapshot = build_snapshot(known, [(host, ())], transport_ms=0.0)
    code, _, retry_s = refused(snapshot, query())
    assert (code, retry_s) == (RefusalCode.COLD, 5.0)


def test_nobody_waits_for_workers_that_cannot_be_started() -> None:
    """Such a query was told so at its deadline."""
    starting = replace(want({CPU: 2}, CPU), failed=frozenset({CPU}))
    answer = select(fleet(starting), query(60_000.0), NOW_MS)

    assert isinstance(answer, Refusal)
    assert not answer.awaited
    assert (answer.code, answer.message, answer.retry_after_s) == (
        RefusalCode.NO_WORKERS,
        "no worker that could answer is running: 2 of cpu-1 are wanted and cannot be started, "
        "which is tried again and again",
        None,
    )
    both = select(fleet(replace(want({CPU: 1, GPU: 1}, CPU, GPU), failed=frozenset({CPU}))),
                  query(60_000.0), NOW_MS)  # fmt: skip
    assert isinstance(both, Refusal)
    assert both.awaited


def test_who_takes_any_answer_is_told_of_the_worker_that_is_missing() -> None:
    """Whatever else stands in its way: with a worker it would be answered."""
    asked = query(accuracy=0.99, best_effort=True)
    starting = fleet(want({CPU: 1}, CPU))
    assert refused(starting, asked)[0] is RefusalCode.NO_WORKERS
    assert refused(starting, query(accuracy=0.99))[0] is RefusalCode.SLO_INFEASIBLE
    assert refused(fleet(want({CPU: 0})), asked) == (RefusalCode.NO_WORKERS, NONE_WANTED, None)

    cold = select(fleet(want({CPU: 1}), worker(free_mib=500), loaded=False), asked, NOW_MS)
    assert isinstance(cold, Refusal)
    assert (cold.code, cold.retry_after_s) == (RefusalCode.COLD, 2.0)
    assert cold.load is not None
    assert cold.message == (
        "nothing that could answer is loaded; variant 'a' could once it is loaded on w1, which"
        " takes 2.0 s"
    )
    answered = select(fleet(want({CPU: 1}), worker()), asked, NOW_MS)
    assert isinstance(answered, Choice)
