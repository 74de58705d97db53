"""What nodes are that join while an installation runs, by what is known of them."""

from collections.abc import Mapping, Set
from dataclasses import replace

import pytest

from controlplane.cluster.kinds.found_kinds import found_slices
from controlplane.cluster.kinds.joined_kinds import Joined, joined_kinds
from controlplane.cluster.kinds.node import NODE_LABEL, Node
from controlplane.gpus import GpuModel
from controlplane.slices import Slice, Source
from tests.controlplane.cluster.kinds.test_found_kinds import node

A, B = node("a"), node("b")
FAST = node("fast", instructions="avx512vnni")
LARGE = node("large", 8)
LABELLED = node("labelled", kind="cpu-4-rack")
GPU = node("gpu", 5, gpus=(GpuModel(name="NVIDIA L4", count=1, memory_mib=20_000),))
HOME = {"id-a": {"cpu-4"}}


def joining(
    *nodes: Node, began: tuple[Node, ...] = (A,), homes: Mapping[str, Set[str]] = HOME
) -> Joined:
    """What comes of these nodes where an installation began with others."""
    slices = found_slices(began).slices
    return joined_kinds(slices, slices, nodes, homes)


def told(slices: tuple[Slice, ...]) -> list[tuple[int, str, str]]:
    """Number, name and nodes of each kind."""
    return [(one.most, one.name, str(one.nodes or "")) for one in slices]


@pytest.mark.parametrize(
    ("joined", "kinds"),
    [
        ([], [(1, "cpu-4", "")]),
        ([B], [(2, "cpu-4", "")]),
        # The first one keeps its name and its profiles.
        ([FAST], [(1, "cpu-4", ""), (1, "cpu-4-avx512vnni", f"{NODE_LABEL}=id-fast")]),
        ([LARGE], [(1, "cpu-4", ""), (1, "cpu-8", "")]),
        ([LABELLED], [(1, "cpu-4", ""), (1, "cpu-4-rack", "modelless.io/kind=cpu-4-rack")]),
        ([GPU], [(2, "cpu-4", ""), (1, "nvidia-l4", "")]),
        # One that does not say what it is may be another kind.
        ([node("silent", instructions=None)], [(1, "cpu-4", "")]),
        # Each is a kind of its own where several come at once.
        (
            [LARGE, node("other", 8, "amx")],
            [
                (1, "cpu-4", ""),
                (1, "cpu-8-avx2", f"{NODE_LABEL}=id-large"),
                (1, "cpu-8-amx", f"{NODE_LABEL}=id-other"),
            ],
        ),
    ],
)
def test_a_node_that_joins_is_one_more_or_a_new_kind(
    joined: list[Node], kinds: list[tuple[int, str, str]]
) -> None:
    found = joining(A, *joined)

    assert told(found.slices) == kinds
    assert {one.source for one in found.slices} == {Source.FOUND}
    assert found.remarks == ()


def test_a_node_that_drains_has_no_room_but_keeps_its_kind() -> None:
    both = {"id-a": {"cpu-4"}, "id-b": {"cpu-4"}}
    began = found_slices([A]).slices
    slices = joined_kinds(began, began, [A, B], both).slices
    assert told(slices) == [(2, "cpu-4", "")]

    goes = replace(B, draining=True)
    found = joined_kinds(began, slices, [A, goes], both)
    assert (told(found.slices), found.nodes) == ([(1, "cpu-4", "")], {"cpu-4": {"id-a"}})

    other = joined_kinds(began, slices, [A, B, replace(LARGE, draining=True)], both)
    assert told(other.slices) == [(2, "cpu-4", "")]


def test_a_kind_of_which_all_nodes_drain_is_still_wanted() -> None:
    began = found_slices([A]).slices
    slices = joined_kinds(began, began, [A, LARGE], HOME).slices
    found = joined_kinds(began, slices, [A, replace(LARGE, draining=True)], HOME)
    assert told(found.slices) == [(1, "cpu-4", ""), (1, "cpu-8", "")]


def test_where_nodes_come_by_themselves_they_get_no_workers() -> None:
    began = found_slices([A]).slices
    found = joined_kinds(began, began, [A, B, LARGE], HOME, autoscaled=True)
    assert told(found.slices) == [(1, "cpu-4", "")]


def test_a_kind_that_came_later_goes_to_nothing_with_its_nodes_and_one_of_the_start_stays() -> None:
    began = found_slices([A]).slices
    slices = joined_kinds(began, began, [A, B, LARGE], HOME).slices

    left = joined_kinds(began, slices, [], {})

    assert told(left.slices) == [(1, "cpu-4", ""), (0, "cpu-8", "")]
    assert left.nodes == {"cpu-4": set(), "cpu-8": set()}


def test_a_binding_is_widened_for_a_node_that_would_have_no_worker() -> None:
    began = (A, LARGE)

    assert told(joining(*began, began=began).slices)[0] == (1, "cpu-4", f"{NODE_LABEL}=id-a")
    assert told(joining(*began, B, began=began).slices)[0] == (
        2,
        "cpu-4",
        f"{NODE_LABEL}=id-a|id-b",
    )


def test_a_node_is_of_the_kind_whose_workers_it_has() -> None:
    found = joining(A, LARGE, homes=HOME | {"id-large": {"cpu-4"}})

    assert told(found.slices) == [(3, "cpu-4", "")]
    assert found.nodes == {"cpu-4": {"id-a", "id-large"}}


def test_a_worker_that_may_run_anywhere_takes_no_node_from_a_kind_that_is_bound_to_it() -> None:
    began = found_slices([A]).slices
    slices = joined_kinds(began, began, [A, FAST], HOME).slices

    for home in ({"cpu-4"}, {"cpu-4", "cpu-4-avx512vnni"}):
        found = joined_kinds(began, slices, [A, FAST], HOME | {"id-fast": home})

        assert found.slices == slices
        assert found.nodes == {"cpu-4": {"id-a"}, "cpu-4-avx512vnni": {"id-fast"}}


def test_nor_from_one_that_an_operator_named() -> None:
    began = found_slices([A]).slices
    slices = joined_kinds(began, began, [A, LABELLED], HOME).slices

    found = joined_kinds(began, slices, [A, LABELLED], HOME | {"id-labelled": {"cpu-4"}})

    assert found.nodes == {"cpu-4": {"id-a"}, "cpu-4-rack": {"id-labelled"}}


def test_a_node_with_too_little_memory_has_no_worker_and_that_is_told() -> None:
    small = Node(
        id="s", name="s", cores=4, labels={NODE_LABEL: "s"}, instructions="avx2", memory_mib=2_000
    )

    found = joining(A, small)

    assert told(found.slices) == [(1, "cpu-4", "")]
    assert found.remarks == (
        "no worker of cpu-4 is started on s: it has 2,000 MiB, and each takes 4,000 MiB for "
        "variants alone",
    )
