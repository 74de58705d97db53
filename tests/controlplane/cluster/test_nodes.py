"""What Ray lists of a node and what the node says of itself, put together."""

from controlplane.cluster.found_kinds import NODE_LABEL, Node
from controlplane.cluster.nodes import Facts, node_of, own_facts
from controlplane.gpus import GpuModel

LISTED = {
    "NodeID": "5f",
    "NodeManagerHostname": "a",
    "NodeManagerAddress": "10.0.0.1",
    "Resources": {"CPU": 4.0, "GPU": 1.0, "node:10.0.0.1": 1.0},
    "Labels": {"rack": "7"},
}
SAID = Facts(
    instructions="avx2",
    processor="a CPU",
    memory_mib=1_000,
    gpus=(GpuModel(name="NVIDIA L4", count=3, memory_mib=20_000),),
)


def test_a_node_has_the_gpus_that_ray_hands_out() -> None:
    assert node_of(LISTED, SAID, "a") == Node(
        id="5f",
        name="a",
        cores=4,
        labels={NODE_LABEL: "5f", "rack": "7"},
        instructions="avx2",
        processor="a CPU",
        memory_mib=1_000,
        gpus=(GpuModel(name="NVIDIA L4", count=1, memory_mib=20_000),),
    )


def test_of_a_node_that_says_nothing_less_is_known() -> None:
    silent = node_of(LISTED, None, "a")

    assert (silent.cores, silent.instructions, silent.gpus) == (4, None, ())


def test_this_machine_says_what_it_is() -> None:
    facts = own_facts()

    assert facts.instructions
    assert facts.processor
    assert facts.memory_mib > 100
