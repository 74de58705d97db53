"""The difference between plan and workers, and that following it arrives."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.reconcile.diff import FILLS_S, MemoryMib, Pace, diff, free
from planner.types import Action, Load, ReplicaReport, Unload, WorkerReport
from tests.planner.builders import DIGITS, key, placement, replica, report
from variants.types import DeviceKindName, Placement, ReplicaState, VariantName, WorkerId

CPU = DeviceKindName("cpu-1")


def sizes(**mib: float) -> MemoryMib:
    return {(CPU, *key(name)): size for name, size in mib.items()}


def load(variant: str, worker: str = "w1") -> Load:
    return Load(
        worker=WorkerId(worker), task=DIGITS, variant=VariantName(variant), why="in the plan"
    )


def unload(variant: str, worker: str = "w1") -> Unload:
    return Unload(
        worker=WorkerId(worker),
        task=DIGITS,
        variant=VariantName(variant),
        why="not in the plan",
        seen=(0, False),
    )


def test_nothing_to_do() -> None:
    assert diff([placement("a")], [report("w1", replica("a"))], sizes(a=100)) == ()


def test_what_is_missing_is_loaded_in_the_order_of_the_plan() -> None:
    plan = [placement("b"), placement("a")]
    assert diff(plan, [report()], sizes(a=100, b=100)) == (load("b"), load("a"))


def test_unloads_come_before_loads() -> None:
    workers = [report("w1"), report("w2", replica("b"))]
    assert diff([placement("a")], workers, sizes(a=100)) == (unload("b", "w2"), load("a"))


def test_a_load_takes_the_room_that_an_idle_replica_leaves() -> None:
    full = report("w1", replica("b", memory_mib=600))
    assert diff([placement("a")], [full], sizes(a=600)) == (unload("b"), load("a"))


def test_a_load_waits_for_room_that_was_given_up_before() -> None:
    plan, mib = [placement("a")], sizes(a=600)
    leaving = report("w1", replica("b", memory_mib=600, state=ReplicaState.UNLOADING))
    assert diff(plan, [leaving], mib) == ()
    assert diff(plan, [report()], mib) == (load("a"),)


def test_a_replica_in_use_is_not_unloaded() -> None:
    used = report("w1", replica("b", memory_mib=600, in_flight=1))
    assert diff([placement("a")], [used], sizes(a=600)) == ()


def test_what_is_loading_or_quarantined_is_left_alone() -> None:
    busy = report(
        "w1",
        replica("a", state=ReplicaState.LOADING),
        replica("b", state=ReplicaState.QUARANTINED),
        replica("c", state=ReplicaState.LOADING),
    )
    assert diff([placement("a"), placement("b")], [busy], sizes(a=100, b=100)) == ()


def test_memory_reserved_by_something_unseen_counts() -> None:
    hidden = replace(report("w1"), reserved_mib=950.0)
    assert diff([placement("a")], [hidden], sizes(a=100)) == ()


def test_draining_missing_and_unsized_are_left_out() -> None:
    plan = [placement("a", "w1"), placement("a", "gone"), placement("b", "w2")]
    workers = [report("w1", draining=True), report("w2")]
    assert diff(plan, workers, sizes(a=100)) == ()


# -- following it ---------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d", "e")


def applied(workers: list[WorkerReport], actions: tuple[Action, ...]) -> list[WorkerReport]:
    """The workers right after they took the actions: unloads are under way, and loads that find
    no room before they are over wait, or are refused."""
    by_id = {worker.id: worker for worker in workers}
    for action in actions:
        assert isinstance(action, Load | Unload)
        worker = by_id[action.worker]
        if isinstance(action, Unload):
            found = next(r for r in worker.replicas if r.variant == action.variant)
            assert found.in_flight == 0
            assert found.state is ReplicaState.READY
            others = tuple(r for r in worker.replicas if r is not found)
            now = (*others, found._replace(state=ReplicaState.UNLOADING))
        else:
            assert all(r.variant != action.variant for r in worker.replicas)
            if MIB[action.variant] > free(worker):
                leaving = [r for r in worker.replicas if r.state is ReplicaState.UNLOADING]
                assert MIB[action.variant] <= free(worker) + sum(r.memory_mib for r in leaving)
                continue
            started = replica(
                action.variant, state=ReplicaState.LOADING, memory_mib=MIB[action.variant]
            )
            now = (*worker.replicas, started)
        by_id[action.worker] = with_replicas(worker, now)
    return list(by_id.values())


def settled(workers: list[WorkerReport], lazy: bool) -> list[WorkerReport]:
    """The workers a while later. ``lazy`` ones have finished loads but not unloads."""
    later = []
    for worker in workers:
        now: tuple[ReplicaReport, ...] = ()
        for r in worker.replicas:
            if r.state is ReplicaState.UNLOADING and not lazy:
                continue
            state = ReplicaState.READY if r.state is ReplicaState.LOADING else r.state
            now = (*now, r._replace(state=state, in_flight=0))
        later.append(with_replicas(worker, now))
    return later


def with_replicas(worker: WorkerReport, replicas: tuple[ReplicaReport, ...]) -> WorkerReport:
    reserved_mib = sum(r.memory_mib for r in replicas)
    return replace(worker, replicas=replicas, reserved_mib=reserved_mib)


MIB: dict[str, float] = {"a": 100, "b": 200, "c": 300, "d": 400, "e": 500}


@st.composite
def subsets(draw: st.DrawFn) -> list[str]:
    """Variants that fit on a worker of 1,000 MiB together."""
    chosen: list[str] = []
    for name in draw(st.permutations(NAMES)):
        if draw(st.booleans()) and sum(MIB[n] for n in chosen) + MIB[name] <= 1_000:
            chosen.append(name)
    return chosen


@given(
    plans=st.lists(subsets(), min_size=2, max_size=2),
    loaded=st.lists(subsets(), min_size=2, max_size=2),
    in_use=st.sets(st.sampled_from(NAMES)),
    lazy=st.lists(st.booleans(), max_size=3),
)
@settings(max_examples=100)
def test_following_the_diff_reaches_the_plan_within_memory(
    plans: list[list[str]], loaded: list[list[str]], in_use: set[str], lazy: list[bool]
) -> None:
    plan: list[Placement] = [
        placement(name, f"w{index}") for index, names in enumerate(plans) for name in names
    ]
    workers = [
        report(
            f"w{index}",
            *(replica(n, memory_mib=MIB[n], in_flight=int(n in in_use)) for n in names),
        )
        for index, names in enumerate(loaded)
    ]
    for slow in (*lazy, False, False, False, False):
        workers = applied(workers, diff(plan, workers, sizes(**MIB)))
        assert all(free(worker) >= 0 for worker in workers)
        workers = settled(workers, slow)
    assert diff(plan, workers, sizes(**MIB)) == ()
    reached = {(w.id, r.variant) for w in workers for r in w.replicas}
    assert reached == {(p.worker, p.variant) for p in plan}


# -- in turn ---------------------------------------------------------------------------------------


def paced(swaps_s: float, forbidden: str = "", fills_s: float = FILLS_S, **load_s: float) -> Pace:
    return Pace(
        swaps_s=swaps_s,
        fills_s=fills_s,
        load_s=lambda key, kind: load_s.get(key[1], 0.0),
        forbidden=lambda key, kind: key[1] == forbidden,
    )


def test_what_is_there_serves_until_its_successor_s_turn() -> None:
    plan, mib = [placement("a"), placement("b")], sizes(a=300, b=300, c=300, d=300)
    full = report("w1", replica("c", memory_mib=300), replica("d", memory_mib=300, rate_qps=9.0))
    full = replace(full, memory_mib=600.0)
    slow = paced(1.0, a=4.0, b=4.0, c=4.0, d=4.0)

    # The one that is asked for least leaves for the first load; the second is held back.
    assert diff(plan, [full], mib, pace=slow) == (unload("c"), load("a"))
    assert set(diff(plan, [full], mib)) == {unload("c"), unload("d"), load("a"), load("b")}


def test_nothing_leaves_while_others_are_loaded() -> None:
    plan, mib = [placement("a"), placement("b")], sizes(a=300, b=300, d=300)
    loads = replica("a", memory_mib=300, state=ReplicaState.LOADING)
    busy = replace(report("w1", loads, replica("d", memory_mib=300)), memory_mib=600.0)

    assert diff(plan, [busy], mib, pace=paced(1.0, a=4.0, b=4.0, d=4.0)) == ()
    assert diff(plan, [busy], mib, pace=paced(1.0, a=0.5, b=4.0, d=4.0)) == (
        unload("d"), load("b"),
    )  # fmt: skip


def test_quick_loads_all_begin_at_once() -> None:
    plan, mib = [placement("a"), placement("b")], sizes(a=300, b=300, c=300, d=300)
    full = report("w1", replica("c", memory_mib=300), replica("d", memory_mib=300))
    full = replace(full, memory_mib=600.0)

    assert diff(plan, [full], mib, pace=paced(1.0, a=0.1, b=0.1)) == diff(plan, [full], mib)


def test_free_memory_is_filled_by_loads_of_some_seconds_at_a_time() -> None:
    plan, mib = [placement("a"), placement("b"), placement("c")], sizes(a=300, b=300, c=300)
    slow = paced(1.0, a=4.0, b=4.0, c=4.0)

    assert diff(plan, [report()], mib, pace=slow) == (load("a"), load("b"))
    begun = [replica(name, memory_mib=300, state=ReplicaState.LOADING) for name in "ab"]
    assert diff(plan, [report("w1", *begun)], mib, pace=slow) == ()
    assert diff(plan, [report("w1", begun[0])], mib, pace=slow) == (load("b"),)
    ready = replica("a", memory_mib=300)
    assert diff(plan, [report("w1", ready, begun[1])], mib, pace=slow) == (load("c"),)


def test_loads_of_less_than_some_seconds_all_begin_in_free_memory() -> None:
    plan, mib = [placement("a"), placement("b")], sizes(a=300, b=300)

    assert diff(plan, [report()], mib, pace=paced(1.0, a=4.0, b=9.0)) == (load("a"), load("b"))


def test_a_pinned_variant_is_begun_in_free_memory_whatever_else_is() -> None:
    plan, mib = [placement("a"), placement("b")], sizes(a=300, b=300, c=300)
    loads = replica("c", memory_mib=300, state=ReplicaState.LOADING)
    slow = paced(1.0, a=4.0, b=4.0, c=9.0)

    assert diff(plan, [report("w1", loads)], mib, {(WorkerId("w1"), *key("b"))}, slow) == (
        load("b"),
    )


def test_what_is_forbidden_or_unknown_leaves_at_once() -> None:
    plan, mib = [placement("a"), placement("e")], sizes(a=300, b=300, c=300, d=300, e=600)
    loads = replica("c", memory_mib=300, state=ReplicaState.LOADING)
    held = report("w1", loads, *(replica(name, memory_mib=300) for name in "bdx"))
    held = replace(held, memory_mib=1_200.0)
    slow = paced(1.0, "b", a=4.0, b=4.0, c=4.0, d=4.0, e=4.0)

    assert diff(plan, [held], mib, pace=slow) == (unload("b"), unload("x"), load("a"))


def test_pinned_variants_do_not_wait_for_their_turn() -> None:
    plan, mib = [placement("a")], sizes(a=300, b=300, c=300)
    loads = replica("c", memory_mib=300, state=ReplicaState.LOADING)
    held = replace(report("w1", loads, replica("b", memory_mib=300)), memory_mib=600.0)
    slow = paced(1.0, a=4.0, b=4.0, c=4.0)

    assert diff(plan, [held], mib, pace=slow) == ()
    pinned = {(WorkerId("w1"), *key("a"))}
    assert diff(plan, [held], mib, pinned, slow) == (unload("b"), load("a"))
