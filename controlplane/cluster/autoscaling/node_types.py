"""What an autoscaler may start: the node types of the file that a cluster was started with. Pure.

On Kubernetes the operator's autoscaler keeps them to itself: then nothing is known of the types.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.slices import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeType:
    """Nodes that are alike, of which there are ``least`` to ``most``."""

    name: str
    least: int
    most: int
    cores: float
    gpus: float = 0.0
    labels: Mapping[str, str] = field(default_factory=dict)
    is_head: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """An autoscaler that starts nodes for this cluster."""

    reads_labels: bool = True
    """Ray's first autoscaler does not: it starts what is cheapest for the cores alone."""
    types: tuple[NodeType, ...] = ()
    """None where they are not known."""
    most: int | None = None
    """Nodes beside the head, of all types together; None: not known."""
    idle_s: float | None = None
    """How long a node is idle before it goes; None: not known."""

    def __str__(self) -> str:
        """In words."""
        if not self.types:
            return "an autoscaler that does not say which nodes it may start"
        hosts = [one for one in self.types if one.cores or one.gpus]
        types = ", ".join(f"{one.least} to {one.most} {one.name}" for one in hosts)
        idle = "" if self.idle_s is None else f"; idle ones go after {self.idle_s:,.0f} s"
        return f"an autoscaler of {types}{idle}"


def autoscaler_of(file: Mapping[str, Any], *, reads_labels: bool) -> Autoscaler:
    """What the file of ``ray up`` says; its head stands among the types, once.

    Raises:
        ValueError, TypeError, AttributeError: it is no such file.
    """
    head = file.get("head_node_type")
    most = int(file.get("max_workers") or 0)
    found = []
    for name, one in (file.get("available_node_types") or {}).items():
        resources = one.get("resources") or {}
        limit = min(int(one.get("max_workers", most)), most)
        found.append(
            NodeType(
                name=str(name),
                least=1 if name == head else int(one.get("min_workers") or 0),
                most=1 if name == head else limit,
                is_head=name == head,
                cores=float(resources.get("CPU", 0)),
                gpus=float(resources.get("GPU", 0)),
                labels={str(key): str(value) for key, value in (one.get("labels") or {}).items()},
            )
        )
    idle_minutes = file.get("idle_timeout_minutes")
    return Autoscaler(
        reads_labels=reads_labels,
        types=tuple(found),
        most=most,
        idle_s=None if idle_minutes is None else 60.0 * float(idle_minutes),
    )


def has_label(kind: Kind, type_: NodeType) -> bool:
    """Whether workers of a kind may run on nodes of this type by its labels."""
    return kind.nodes is None or type_.labels.get(kind.nodes.label) in kind.nodes.values
