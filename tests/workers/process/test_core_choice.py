"""Which cores a slice takes: of one node, whole physical cores first, the same ones again."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from workers.process.core_choice import Topology, chosen, topology, why_not

PLAIN = Topology({}, {})
TWO_NODES = Topology({core: core // 4 for core in range(8)}, {})
THREADS = Topology({}, {core: core % 4 for core in range(8)})
"""Cores 0 and 4 are threads of one physical core, 1 and 5, 2 and 6, 3 and 7."""


def test_all_of_one_node() -> None:
    assert chosen(4, range(8), TWO_NODES) == (0, 1, 2, 3)
    assert chosen(3, [2, 3, 4, 5, 6, 7], TWO_NODES) == (4, 5, 6)


def test_the_node_with_the_fewest_left_over() -> None:
    assert chosen(2, [0, 1, 2, 3, 6, 7], TWO_NODES) == (6, 7)


def test_over_two_nodes_where_none_has_enough() -> None:
    assert chosen(5, range(8), TWO_NODES) == (0, 1, 2, 3, 4)
    assert chosen(4, [0, 5, 6, 7], TWO_NODES) == (0, 5, 6, 7)


def test_whole_physical_cores() -> None:
    assert chosen(2, range(8), THREADS) == (0, 4)
    assert chosen(2, [0, 1, 2, 5, 6], THREADS) == (1, 5)


def test_what_is_left_is_of_a_physical_core_that_is_shared_already() -> None:
    assert chosen(1, [4, 1, 5], THREADS) == (4,)
    assert chosen(3, [0, 4, 3, 1, 5], THREADS) == (0, 3, 4)


def test_none_where_too_few_are_free() -> None:
    assert chosen(3, [0, 1], PLAIN) == ()


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from([PLAIN, TWO_NODES, THREADS]),
    st.integers(0, 3),
)
def test_sets_are_disjoint_and_of_the_size_that_was_asked_for(
    counts: list[int], machine: Topology, first: int
) -> None:
    free = set(range(8))
    taken: list[tuple[int, ...]] = []
    for count in counts:
        own = chosen(count, free, machine)
        assert len(own) == (count if count <= len(free) else 0)
        assert set(own) <= free
        free -= set(own)
        taken.append(own)
    if len(set(counts)) == 1 and taken[first % len(taken)] and not free:
        gone = taken[first % len(taken)]
        assert chosen(len(gone), gone, machine) == gone  # its replacement has what is free


def test_what_the_kernel_says(tmp_path: Path) -> None:
    for node, cores in enumerate(("0-1,4-5", "2-3,6-7")):
        (tmp_path / "node" / f"node{node}").mkdir(parents=True)
        (tmp_path / "node" / f"node{node}" / "cpulist").write_text(cores + "\n")
    for core in range(8):
        folder = tmp_path / "cpu" / f"cpu{core}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{core % 4},{core % 4 + 4}\n")
    found = topology(tmp_path)
    assert found.node_of == {0: 0, 1: 0, 4: 0, 5: 0, 2: 1, 3: 1, 6: 1, 7: 1}
    assert found.physical_of == {core: core % 4 for core in range(8)}
    assert topology(tmp_path / "nothing") == PLAIN


def test_a_quota_of_fewer_cores_says_that_they_are_shared() -> None:
    assert "quota" in why_not(range(4), 2.5)
    assert why_not(range(2), 2) == why_not(range(4), None) == ""
