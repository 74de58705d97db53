"""What classes of the demand need, once more where there is room."""

from math import sqrt

from hypothesis import given
from hypothesis import strategies as st

from planner.reconcile.placing.copies import VARIANCE_S, _Needed
from tests.planner.builders import catalog, key, profile, snapshot, variant

NAMES = "abcdef"
rates = st.sampled_from((0.1, 1.0, 1.0 + sqrt(1.0 * VARIANCE_S), 2.0, 30.0))


@given(
    wanted=st.lists(st.tuples(st.sampled_from(NAMES), rates), max_size=12),
    there=st.sets(st.sampled_from([*NAMES, "of another task"])),
)
def test_the_most_wanted_comes_first_and_what_is_here_a_standard_deviation_sooner(
    wanted: list[tuple[str, float]], there: set[str]
) -> None:
    known = catalog([variant(name) for name in NAMES], [profile(name) for name in NAMES])
    candidates = {
        str(c.variant): c for view in snapshot(known).tasks.values() for c in view.by_cost
    }
    wanted.sort(key=lambda entry: -entry[1])
    needed = [(key(name), candidates[name], qps) for name, qps in wanted]

    def counted(entry: tuple[str, float]) -> float:
        name, qps = entry
        return -(qps + sqrt(qps * VARIANCE_S) if name in there else qps)

    held = {key(name) for name in there}
    found = [entry for _, here, entry in _Needed(needed).ranked if (entry[0] in held) is here]
    expected = sorted(wanted, key=counted)  # of equals, the one that is more wanted
    assert [(each.variant, qps) for _, each, qps in found] == expected


def test_what_takes_least_says_when_nothing_has_room_any_more() -> None:
    known = catalog(
        [variant("a"), variant("b")], [profile("a", memory_mib=30.0), profile("b", memory_mib=20.0)]
    )
    candidates = [c for view in snapshot(known).tasks.values() for c in view.by_cost]
    needed = [(key(each.variant), each, 1.0) for each in candidates]
    assert _Needed(needed).least_mib == 20.0
    assert _Needed([]).least_mib == float("inf")
