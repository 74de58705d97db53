"""What classes of the demand need, once more where there is room."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import inf, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.reconcile.placing.copies import (
    SPREADING,
    STAYS,
    STAYS_SPREAD,
    VARIANCE_S,
    _Needed,
    with_new,
)
from planner.reconcile.worker_memory import WorkerMemory
from planner.types import Candidate
from tests.planner.builders import catalog, demand, key, profile, report, snapshot, variant
from variants.types import VariantKey, VariantName

NAMES = "abcdef"
rates = st.sampled_from(
    (0.1, 1.0, *(1.0 + by * sqrt(1.0 * VARIANCE_S) for by in (STAYS, STAYS_SPREAD)), 2.0, 30.0)
)


FULL, EMPTY = (report("w", memory_mib=mib) for mib in (0.0, inf))
"""Workers without room, and with room for all."""


def known(*names: str) -> dict[str, Candidate]:
    views = snapshot(catalog([variant(name) for name in names], list(map(profile, names)))).tasks
    return {str(c.variant): c for view in views.values() for c in view.by_cost}


def entries(wanted: list[tuple[str, float]]) -> list[tuple[VariantKey, Candidate, float]]:
    candidates = known(*NAMES)
    return [(key(name), candidates[name], qps) for name, qps in wanted]


@given(
    wanted=st.lists(st.tuples(st.sampled_from(NAMES), rates), max_size=12),
    there=st.sets(st.sampled_from([*NAMES, "of another task"])),
    memory_mib=st.sampled_from((0.0, inf)),
)
@pytest.mark.parametrize(("copies", "deviations"), [(None, STAYS), (lambda _: 0, STAYS_SPREAD)])
def test_the_most_wanted_comes_first_and_what_is_here_some_standard_deviations_sooner(
    wanted: list[tuple[str, float]],
    there: set[str],
    memory_mib: float,
    copies: Callable[[VariantKey], int] | None,
    deviations: float,
) -> None:
    wanted.sort(key=lambda entry: -entry[1])
    needed = _Needed(entries(wanted), copies)

    def counted(entry: tuple[str, float]) -> float:
        name, qps = entry
        return -(qps + deviations * sqrt(qps * VARIANCE_S) if name in there else qps)

    held = {key(name) for name in there}
    ranked = needed.ranked(WorkerMemory.of(report("w", memory_mib=memory_mib)))
    found = [entry for _, _, here, _, entry in ranked if (entry[0] in held) is here]
    expected = sorted(wanted, key=counted)  # of equals, the one that is more wanted
    assert [(each.variant, qps) for _, each, qps in found] == expected


def absent(needed: _Needed) -> list[str]:
    """What would be taken first by a worker without room that holds nothing."""
    ranked = needed.ranked(WorkerMemory.of(FULL))
    return [str(entry[1].variant) for _, _, here, _, entry in ranked if not here]


def test_of_those_that_are_asked_for_alike_the_one_with_the_fewest_copies_comes_first() -> None:
    copies = {key("a"): 3, key("b"): 0, key("c"): 1, key("d"): 40}
    needed = _Needed(entries([("d", 2.0), ("a", 1.0), ("b", 1.0), ("c", 1.0)]), copies.__getitem__)
    assert absent(needed) == ["d", "b", "c", "a"]  # what is asked for more comes first all the same
    ranked = needed.ranked(WorkerMemory.of(EMPTY))
    assert [str(e[1].variant) for _, _, here, _, e in ranked if not here] == ["d", "a", "b", "c"]


def test_where_they_are_not_spread_copies_do_not_count() -> None:
    needed = _Needed(entries([("d", 2.0), ("a", 1.0), ("b", 1.0)]), None)
    assert absent(needed) == ["d", "a", "b"]
    needed.moved(key("a"))
    assert absent(needed) == ["d", "a", "b"]


def test_twice_as_many_copies_weigh_as_much_as_some_fewer_queries() -> None:
    copies = {key("a"): 1, key("b"): 3}
    for qps, first in ((2.0**SPREADING * 0.99, "a"), (2.0**SPREADING * 1.01, "b")):
        needed = _Needed(entries([("b", qps), ("a", 1.0)]), copies.__getitem__)
        assert absent(needed)[0] == first


@given(
    wanted=st.lists(st.tuples(st.sampled_from(NAMES), rates), min_size=1, max_size=12),
    there=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 5)),
    more=st.lists(st.sampled_from(NAMES), max_size=8),
)
def test_with_each_copy_more_the_order_is_that_of_counting_anew(
    wanted: list[tuple[str, float]], there: dict[str, int], more: list[str]
) -> None:
    wanted.sort(key=lambda entry: -entry[1])
    copies = Counter({key(name): count for name, count in there.items()})
    needed, full = _Needed(entries(wanted), copies.__getitem__), WorkerMemory.of(FULL)
    for name in more:
        needed.ranked(full)
        if key(name) in {entry[0] for entry in entries(wanted)}:
            copies[key(name)] += 1
            needed.moved(key(name))
        anew = _Needed(entries(wanted), copies.__getitem__)
        assert needed.ranked(full) == anew.ranked(full)


def test_what_takes_least_says_when_nothing_has_room_any_more() -> None:
    of_two = catalog(
        [variant("a"), variant("b")], [profile("a", memory_mib=30.0), profile("b", memory_mib=20.0)]
    )
    candidates = [c for view in snapshot(of_two).tasks.values() for c in view.by_cost]
    needed = [(key(each.variant), each, 1.0) for each in candidates]
    assert _Needed(needed, lambda _: 0).least_mib == 20.0
    assert _Needed([], lambda _: 0).least_mib == inf


def test_a_class_that_is_too_new_to_be_expected_counts_as_it_comes() -> None:
    expected = [demand(qps=3.0), demand(qps=1.0, accuracy=0.9)]
    assert with_new(expected, [demand(qps=7.0)]) is expected
    pinned = replace(demand(qps=2.0), variant=VariantName("a"))
    new = [demand(qps=5.0, latency_ms=7.0), pinned]
    assert list(with_new(expected, [demand(qps=9.0), *new])) == [*expected, *new]
