"""Extents: what is taken overlaps with nothing, and comes back."""

from hypothesis import given
from hypothesis import strategies as st

from workers.channel.extents import GRANULE, Extents

SIZE = 16 * GRANULE


@given(st.lists(st.tuples(st.booleans(), st.integers(1, SIZE + 1), st.integers(0, 20))))
def test_taken_extents_never_overlap_and_all_come_back(
    steps: list[tuple[bool, int, int]],
) -> None:
    extents = Extents(SIZE)
    taken: list[tuple[int, int]] = []
    for gives_back, size, which in steps:
        if gives_back and taken:
            extents.give_back(*taken.pop(which % len(taken)))
        else:
            begin = extents.take(size)
            if begin is not None:
                taken.append((begin, size))
        ends = 0
        for begin, length in sorted(taken):
            assert begin >= ends
            ends = begin + length
        assert ends <= SIZE
        assert extents.taken == sum(size + -size % GRANULE for _, size in taken)
    for one in taken:
        extents.give_back(*one)
    assert extents.take(SIZE) == 0


def test_the_first_hole_is_used_again_and_none_is_no_room() -> None:
    extents = Extents(3 * GRANULE)
    assert [extents.take(1), extents.take(GRANULE), extents.take(GRANULE)] == [
        0, GRANULE, 2 * GRANULE,
    ]  # fmt: skip
    assert extents.take(1) is None
    extents.give_back(GRANULE, GRANULE)
    extents.give_back(0, 1)
    assert extents.take(GRANULE + 1) == 0
