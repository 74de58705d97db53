"""Which kinds the nodes of a cluster are, by what is known of them. Ray is not started."""

from dataclasses import replace

import pytest

from controlplane.cluster.kinds.found_kinds import Found, bound_slices, found_slices, found_words
from controlplane.cluster.kinds.node import KIND_LABEL, NODE_LABEL, Node, level_of
from controlplane.cluster.kinds.sightings import sighted
from controlplane.gpus import GpuModel
from controlplane.slices import Kind, NodesWith, Slice, Source, slices_of
from variants.types import DeviceKindName

GROUP = "ray.io/node-group"
H100 = GpuModel(name="NVIDIA H100", count=2, memory_mib=80_000)
L4 = GpuModel(name="NVIDIA L4", count=1, memory_mib=20_000)


def node(
    name: str,
    cores: int = 4,
    instructions: str | None = "avx2",
    *,
    gpus: tuple[GpuModel, ...] = (),
    **labels: str,
) -> Node:
    named = {{"kind": KIND_LABEL, "group": GROUP}.get(k, k): v for k, v in labels.items()}
    return Node(
        id=f"id-{name}",
        name=name,
        cores=cores,
        labels={NODE_LABEL: f"id-{name}", **named},
        instructions=instructions,
        processor="" if instructions is None else f"CPU with {instructions}",
        memory_mib=8_000,
        gpus=gpus,
    )


def told(found: Found) -> list[tuple[int, str, str]]:
    """Number, name and nodes of each kind."""
    return [(one.most, one.name, str(one.nodes or "")) for one in found.slices]


OLD, NEW = node("old"), node("new", instructions="avx512vnni")


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ([], []),
        ([OLD], [(1, "cpu-4", "")]),
        ([OLD, node("b")], [(2, "cpu-4", "")]),
        (
            [OLD, NEW, node("b")],
            [
                (2, "cpu-4-avx2", "ray.io/node-id=id-b|id-old"),
                (1, "cpu-4-avx512vnni", "ray.io/node-id=id-new"),
            ],
        ),
        # Workers of the larger one fit nowhere else.
        (
            [node("small", 2), node("large", 8, "amx")],
            [(1, "cpu-2", "ray.io/node-id=id-small"), (1, "cpu-8", "")],
        ),
        (
            [node("a", group="x"), node("b", group="x"), node("c", 4, "amx", group="y")],
            [(1, "cpu-4-amx", f"{GROUP}=y"), (2, "cpu-4-avx2", f"{GROUP}=x")],
        ),
        (
            [OLD, node("b", kind="cpu-4-fast")],
            [
                (1, "cpu-4", "ray.io/node-id=id-old"),
                (1, "cpu-4-fast", f"{KIND_LABEL}=cpu-4-fast"),
            ],
        ),
        # A label may say that a node is several workers, and any name.
        (
            [node("a", 4, kind="cpu-2-numa"), node("b", 4, kind="big")],
            [(1, "big", f"{KIND_LABEL}=big"), (2, "cpu-2-numa", f"{KIND_LABEL}=cpu-2-numa")],
        ),
        # One that does not say what it is is like the others, where these are alike.
        ([OLD, node("silent", instructions=None)], [(2, "cpu-4", "")]),
        (
            [OLD, NEW, node("silent", instructions=None)],
            [
                (1, "cpu-4-avx2", "ray.io/node-id=id-old"),
                (1, "cpu-4-avx512vnni", "ray.io/node-id=id-new"),
            ],
        ),
    ],
)  # fmt: skip
def test_each_node_is_a_worker_where_nothing_is_set(
    nodes: list[Node], found: list[tuple[int, str, str]]
) -> None:
    assert sorted(told(found_slices(nodes)), key=lambda one: one[1]) == found


def test_what_was_found_is_written_and_read_again() -> None:
    slices = found_slices([OLD, NEW]).slices

    assert slices_of(",".join(map(str, slices))) == slices
    assert slices[0] == Slice(
        name="cpu-4-avx2",
        cores=4,
        most=1,
        memory_mib=4_000,
        nodes=NodesWith(NODE_LABEL, ("id-old",)),
        source=Source.FOUND,
    )
    assert found_words(slices, [OLD, NEW]) == "1x cpu-4-avx2 (old), 1x cpu-4-avx512vnni (new)"


def test_nodes_that_are_alike_are_as_the_settings_say() -> None:
    assert found_slices([OLD, node("b", 8)], workers=3, cores=6) == Found()


def test_nodes_that_differ_share_the_workers_that_are_set() -> None:
    nodes = [OLD, NEW, node("b", 8)]

    assert told(found_slices(nodes, workers=4, cores=8)) == [
        (3, "cpu-2-avx2", "ray.io/node-id=id-b|id-old"),
        (1, "cpu-2-avx512vnni", "ray.io/node-id=id-new"),
    ]
    (remark,) = found_slices(nodes, workers=9, cores=18).remarks
    assert remark == "the nodes have room for 8 of 9 workers"
    assert sum(one.most for one in found_slices(nodes, workers=2).slices) == 2


def test_workers_that_have_no_room_are_told() -> None:
    nodes = [OLD, node("b")]

    assert found_slices(nodes, workers=4).remarks == (
        "the nodes have room for 2 of 4 workers, each with all cores of its node; MODELLESS_CORES "
        "makes them less",
    )
    for there in ([OLD, NEW], nodes):
        assert found_slices(there, workers=9, cores=18).remarks == (
            "the nodes have room for 4 of 9 workers",
        )
    assert found_slices(nodes, workers=2).remarks == ()
    assert told(found_slices([OLD, NEW], workers=4, cores=2)) == [
        (2, "cpu-1-avx2", "ray.io/node-id=id-old"),
        (2, "cpu-1-avx512vnni", "ray.io/node-id=id-new"),
    ]


def test_gpus_of_nodes_have_a_worker_each_and_leave_it_a_core() -> None:
    nodes = [OLD, node("g", 6, gpus=(H100,)), node("h", 1, gpus=(L4,))]

    found = found_slices(nodes)
    assert told(found) == [
        (2, "cpu-4", ""),
        (2, "nvidia-h100", "ray.io/node-id=id-g"),
        (1, "nvidia-l4", "ray.io/node-id=id-h"),
    ]
    gpu = found.slices[1]
    assert (gpu.cores, gpu.gpu, gpu.memory_mib) == (1, "NVIDIA H100", 72_000)
    assert slices_of(",".join(map(str, found.slices))) == found.slices
    assert [one.most for one in found_slices(nodes, gpus=1).slices if one.gpu] == [1]
    assert not [one for one in found_slices(nodes, gpus=0).slices if one.gpu]


def test_gpus_that_are_not_used_leave_their_cores() -> None:
    nodes = [node("h", 1, gpus=(L4,)), node("i", 1, gpus=(L4,), kind="nvidia-l4-slow")]

    assert told(found_slices(nodes, gpus=0)) == [(2, "cpu-1", "")]


def test_a_kind_that_no_node_can_have_is_told() -> None:
    small = node("a", 0, gpus=(L4,))

    assert sighted([kind("cpu-4")], {DeviceKindName("cpu-4"): 2}, [small]).advice[-1] == (
        "no node can have a worker of cpu-4, and 2 are wanted"
    )
    assert sighted([kind("cpu-4")], {DeviceKindName("cpu-4"): 2}, []).advice == ()


def test_a_label_names_the_gpus_of_a_node() -> None:
    nodes = [node("g", 1, gpus=(L4,), kind="nvidia-l4-slow"), node("h", 1, gpus=(L4,))]

    assert told(found_slices(nodes)) == [
        (1, "nvidia-l4-slow", f"{KIND_LABEL}=nvidia-l4-slow"),
        (1, "nvidia-l4", "ray.io/node-id=id-h"),
    ]


def test_kinds_that_are_set_are_bound_to_the_nodes_that_have_them() -> None:
    nodes = [OLD, NEW, node("b", kind="cpu-1-fast")]
    given = slices_of(
        "cpu-1-fast,3xcpu-4-avx512vnni:usd_per_hour=2,cpu-4-avx2:nodes=rack=7,cpu-1-other"
    )

    assert told(bound_slices(given, nodes)) == [
        (1, "cpu-1-fast", f"{KIND_LABEL}=cpu-1-fast"),
        (3, "cpu-4-avx512vnni", "ray.io/node-id=id-new"),
        (1, "cpu-4-avx2", "rack=7"),
        (1, "cpu-1-other", ""),
    ]
    assert bound_slices(given, nodes).slices[1].source is Source.SET


def test_nodes_of_a_label_have_workers_of_the_smallest_one() -> None:
    small, large = node("b", 4, kind="fast"), node("a", 8, kind="fast")

    for nodes in ([small, large], [large, small]):
        (fast,) = found_slices(nodes).slices
        assert (fast.name, fast.cores, fast.most) == ("fast", 4, 3)


def test_a_node_that_is_too_small_for_its_label_is_told() -> None:
    nodes = [OLD, node("a", kind="cpu-8"), node("b", 2, kind="fast")]
    fast = kind("fast", 4, NodesWith(KIND_LABEL, ("fast",)))

    (slice_,) = found_slices(nodes[:2]).slices
    assert str(slice_.nodes) == "ray.io/node-id=id-old"
    assert sighted([kind("cpu-4", nodes=slice_.nodes), fast], {}, nodes).advice == (
        "node a has 4 cores, and a worker of cpu-8, which its label names, has 8: none runs there",
        "node b has 2 cores, and a worker of fast, which its label names, has 4: none runs there",
    )


@pytest.mark.parametrize(
    ("given", "nodes"),
    [
        ("1xcpu-2,1xcpu-4", ["ray.io/node-id=id-small", ""]),
        # More workers than there are such nodes: others take them too.
        ("2xcpu-2,1xcpu-4", ["", ""]),
        # Nobody else wants the larger one.
        ("1xcpu-2", [""]),
        ("1xcpu-2,1xcpu-1", ["", ""]),
    ],
)
def test_kinds_that_are_set_leave_larger_nodes_to_larger_kinds(
    given: str, nodes: list[str]
) -> None:
    there = [node("small", 2), node("large", 4)]

    assert [str(one.nodes or "") for one in bound_slices(slices_of(given), there).slices] == nodes


def test_what_cannot_be_known_is_told() -> None:
    other = replace(node("b"), processor="a newer CPU with avx2")
    nodes = [OLD, other, node("silent", instructions=None), node("d", kind="No Name")]

    assert found_slices(nodes).remarks == (
        f"{KIND_LABEL}=No Name of node d is no name of a kind",
        f"silent did not say in time what processor it has; the label {KIND_LABEL} says it too",
        "silent counts as cpu-4, whose profiles are wrong there if the processor is another one",
        "nodes of cpu-4 have different processors (CPU with avx2, a newer CPU with avx2); where "
        f"that matters, tell them apart by the label {KIND_LABEL}",
    )


def test_the_memory_of_a_kind_is_the_least_that_is_known() -> None:
    silent = replace(node("silent", instructions=None), memory_mib=0)
    large = replace(OLD, memory_mib=16_000)

    assert [one.memory_mib for one in found_slices([large, node("b"), silent]).slices] == [4_000]
    assert [one.memory_mib for one in found_slices([silent]).slices] == [None]


def test_a_silent_node_that_no_kind_has_is_told() -> None:
    silent = node("silent", instructions=None)

    assert found_slices([OLD, NEW, silent]).remarks[-1] == (
        "no worker runs on silent: other nodes with as many cores differ, and which of them it is "
        "like is not known"
    )


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ("fpu sse2 avx avx2 avx512f avx512_vnni amx_int8 amx_bf16", "amx"),
        ("fpu sse2 avx avx2 avx512f avx512_vnni", "avx512vnni"),
        ("fpu sse2 avx avx2 avx512f", "avx512"),
        ("fpu sse2 avx avx2 avx_vnni", "avxvnni"),
        ("fpu sse2 avx avx2", "avx2"),
        ("fpu sse2", "basic"),
        ("fp asimd asimddp i8mm sve sve2", "sve2"),
        ("fp asimd asimddp", "dotprod"),
        ("fp asimd", "neon"),
    ],
)
def test_processors_are_called_by_their_best_instructions(flags: str, level: str) -> None:
    assert level_of(flags.split()) == level


def kind(name: str, cores: int = 4, nodes: NodesWith | None = None, *, found: bool = True) -> Kind:
    return Kind(
        name=DeviceKindName(name),
        cores=cores,
        most=1,
        least=None,
        memory_mib=1_000,
        usd_per_hour=1,
        idle_w=None,
        nodes=nodes,
        source=Source.FOUND if found else Source.SET,
    )


def test_nodes_that_joined_later_are_seen() -> None:
    kinds = [
        kind("cpu-4-avx2", nodes=NodesWith(NODE_LABEL, ("id-old",))),
        kind("cpu-4-avx512vnni", nodes=NodesWith(GROUP, ("y",))),
    ]
    one_each = dict.fromkeys([one.name for one in kinds], 1)
    first = node("new", instructions="avx512vnni", group="y")

    assert sighted(kinds, one_each, [OLD, first]).advice == ()

    seen = sighted(
        kinds, one_each, [OLD, first, replace(first, name="newer", id="x"), node("c", 2, "amx")]
    )
    assert seen.nodes == {"cpu-4-avx2": ("old",), "cpu-4-avx512vnni": ("new", "newer")}
    assert seen.advice == (
        "nodes offer kinds that no workers use: cpu-2 (c); `modelless down` and `modelless up` "
        "look anew, or name them in MODELLESS_SLICES",
        "2 nodes have cpu-4-avx512vnni, and 1 worker is wanted; "
        "`modelless workers scale cpu-4-avx512vnni 2` uses them all",
    )


def test_a_kind_whose_nodes_came_to_differ_is_told() -> None:
    seen = sighted([kind("cpu-4", found=False)], {DeviceKindName("cpu-4"): 1}, [OLD, NEW])

    assert seen.nodes == {"cpu-4": ("old", "new")}
    assert seen.advice == (
        "nodes of cpu-4 differ, and its profiles are true of one sort of them: name cpu-4-avx2 and "
        "cpu-4-avx512vnni in MODELLESS_SLICES, or leave it empty and start anew with "
        "`modelless down` and `modelless up`",
    )
