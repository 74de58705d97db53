"""A worker's memory while a placement is made."""

from hypothesis import example, given
from hypothesis import strategies as st

from planner.reconcile.placing.orders import by_worth
from planner.reconcile.worker_memory import PlannedWork, WorkerMemory
from planner.types import Candidate
from tests.planner.builders import catalog, key, profile, replica, report, snapshot, variant
from variants.types import DeviceKindName, ReplicaState, VariantKey

NAMES = "abcdef"
sizes = st.sampled_from((10.0, 30.0, 50.0, 70.0))


@given(
    offered=st.lists(sizes, min_size=len(NAMES), max_size=len(NAMES)),
    there=st.dictionaries(
        st.sampled_from(NAMES), st.tuples(sizes, st.sampled_from(list(ReplicaState)))
    ),
    first=st.lists(st.sampled_from(NAMES), max_size=2),
    memory_mib=st.sampled_from((60.0, 120.0, 400.0)),
)
def test_taking_several_is_taking_one_after_the_other(
    offered: list[float],
    there: dict[str, tuple[float, ReplicaState]],
    first: list[str],
    memory_mib: float,
) -> None:
    known = catalog(
        [variant(name) for name in NAMES],
        [profile(n, memory_mib=mib) for n, mib in zip(NAMES, offered, strict=True)],
    )
    offers: dict[VariantKey, Candidate] = {
        key(candidate.variant): candidate
        for view in snapshot(known).tasks.values()
        for candidate in view.by_cost
    }
    replicas = [replica(name, state=state, memory_mib=mib) for name, (mib, state) in there.items()]
    seen = WorkerMemory.of(report("w1", *replicas, memory_mib=memory_mib))
    one, other, third = seen.emptied(set()), seen.emptied(set()), seen.emptied(set())
    for memory in (one, other, third):
        for name in first:
            memory.take(key(name), offers[key(name)])
    for offered_key, candidate in offers.items():
        one.take(offered_key, candidate)
    other.take_each(offers, offers)
    third.take_each([key("of another kind"), *offers], offers, min(offered))
    assert list(one.held) == list(other.held) == list(third.held)
    assert (one.together, one.left_mib) == (other.together, other.left_mib)
    assert (one.together, one.left_mib) == (third.together, third.left_mib)


@given(
    there=st.dictionaries(
        st.sampled_from(NAMES),
        st.tuples(sizes, st.booleans(), st.sampled_from((0.0, 1.0, 5.0)), st.booleans()),
    ),
    planned=st.sets(st.sampled_from([*NAMES, "of another kind"]), max_size=3),
    beside=st.dictionaries(st.sampled_from(NAMES), st.sampled_from((0.0, 0.5, 3.0))),
    memory_mib=st.sampled_from((60.0, 150.0, 400.0)),
)
@example(  # what is planned and what is asked for fill it by their profiles, not by the report
    there={"b": (10.0, False, 0.0, True), "c": (10.0, True, 1.0, True)},
    planned={"b"},
    beside={"c": 0.5},
    memory_mib=60.0,
)
def test_what_all_has_room_is_held_as_if_taken_by_its_worth(
    there: dict[str, tuple[float, bool, float, bool]],
    planned: set[str],
    beside: dict[str, float],
    memory_mib: float,
) -> None:
    known = catalog([variant(name) for name in NAMES], [profile(n, memory_mib=30) for n in NAMES])
    offers: dict[VariantKey, Candidate] = {
        key(candidate.variant): candidate
        for view in snapshot(known).tasks.values()
        for candidate in view.by_cost
    }
    replicas = [
        replica(
            name, memory_mib=mib, asked=asked, rate_qps=qps,
            state=ReplicaState.READY if ready else ReplicaState.FAILED,
        )
        for name, (mib, asked, qps, ready) in there.items()
    ]  # fmt: skip
    work = {key(name): PlannedWork(0.1, 2.0) for name in planned}

    def beside_qps(_: DeviceKindName, asked: VariantKey) -> float:
        return beside.get(str(asked[1]), 0.0)

    def memory() -> WorkerMemory:
        return WorkerMemory.of(report("w1", *replicas, memory_mib=memory_mib))

    def ranked(of: WorkerMemory) -> list[VariantKey]:
        return by_worth(offers, of, work, beside_qps, lambda *_: False)

    one, other = memory(), memory()
    one.take_each(ranked(one), offers)
    wanted = {key(name) for name, qps in beside.items() if qps > 0.0}
    if other.take_all_of_worth(offers, work, wanted, lambda: ranked(other)):
        assert one.together == other.together == set(other.held)
        for memory_of in (one, other):
            memory_of.take_each(offers, offers)
        other.put_in_order()
        assert list(one.held) == list(other.held)
        assert one.left_mib == other.left_mib
    else:
        assert not other.held
        needed_mib = sum(one.size_mib(each, offers[each]) for each in ranked(memory()))
        assert work.keys() - other.there or needed_mib >= memory_mib
