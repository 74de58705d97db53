"""A worker's memory while a placement is made."""

from hypothesis import given
from hypothesis import strategies as st

from planner.reconcile.worker_memory import WorkerMemory
from planner.types import Candidate
from tests.planner.builders import catalog, key, profile, replica, report, snapshot, variant
from variants.types import ReplicaState, VariantKey

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
