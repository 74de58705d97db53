"""A node of a cluster, and what it says of itself. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controlplane.gpus import GpuModel
from controlplane.slices import GPU_CORES, NodesWith
from variants.types import NAME

KIND_LABEL = "modelless.io/kind"
"""The label by which an operator names the kind of a node: ``ray start --labels``."""
NODE_LABEL = "ray.io/node-id"
LABELS = (KIND_LABEL, "ray.io/node-group", NODE_LABEL)
"""Labels by which nodes of a kind are told from others, best first: the later ones tell a node that
replaces another one from it."""
LEVELS = (
    ("amx", ("amx_int8", "amx_bf16")),
    ("avx512vnni", ("avx512_vnni",)),
    ("avx512", ("avx512f",)),
    ("avxvnni", ("avx_vnni",)),
    ("avx2", ("avx2",)),
    ("avx", ("avx",)),
    ("sve2", ("sve2",)),
    ("i8mm", ("i8mm",)),
    ("dotprod", ("asimddp",)),
    ("neon", ("asimd",)),
)
"""What a processor is called by its instructions, and the names of these in Linux; best first."""
BASIC = "basic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node of a cluster that is alive."""

    id: str
    name: str
    """For people: its host name, or its address."""
    cores: int
    """That Ray may give to workers."""
    labels: Mapping[str, str] = field(default_factory=dict)
    instructions: str | None = None
    """One of ``LEVELS`` by name; None where the node did not answer."""
    processor: str = ""
    memory_mib: float = 0.0
    """Of all of it; 0 where that is not known."""
    gpus: tuple[GpuModel, ...] = ()
    draining: bool = False
    """Whether it is about to go."""


def level_of(flags: Iterable[str]) -> str:
    """The name of a processor with these instructions."""
    there = set(flags)
    return next((name for name, any_of in LEVELS if there & set(any_of)), BASIC)


def label_of(node: Node) -> str:
    """The kind that an operator named; empty where none did, or by what is no name."""
    label = node.labels.get(KIND_LABEL, "")
    return label if NAME.fullmatch(label) else ""


def cores_left(node: Node) -> int:
    return max(0, node.cores - GPU_CORES * sum(model.count for model in node.gpus))


def carries(node: Node, wanted: NodesWith) -> bool:
    return node.labels.get(wanted.label) in wanted.values
