"""How many workers an autoscaler may give room to, of all kinds together. Pure.

Kinds share node types, and all types share the file's ``max_workers``. Workers are packed one by
one onto nodes that have room for them, or else onto one more node. Ray's autoscaler packs more
cleverly, and never less.
"""

from collections import Counter
from dataclasses import dataclass

from controlplane.cluster.autoscaling.node_types import Autoscaler, NodeType, has_label
from controlplane.slices import Kind


@dataclass(slots=True)
class _Node:
    """One with what is left of it."""

    type: NodeType
    cores: float
    gpus: float


class Packing:
    """Nodes of an autoscaler whose types are known."""

    def __init__(self, autoscaler: Autoscaler) -> None:
        self._autoscaler = autoscaler
        self._nodes: list[_Node] = []
        self._counts: Counter[str] = Counter()
        # The plainest first: others are kept for kinds that need them.
        self._types = sorted(autoscaler.types, key=lambda t: (t.gpus, len(t.labels), t.cores))
        for one in self._types:
            for _ in range(one.least):
                self._open(one)

    def add(self, kind: Kind) -> bool:
        """Give one more worker of a kind room; whether there is any."""
        cores, gpus = kind.cores, 0 if kind.gpu is None else 1
        for node in self._nodes:
            if node.cores >= cores and node.gpus >= gpus and has_label(kind, node.type):
                break
        else:
            suit = (t for t in self._types if t.cores >= cores and t.gpus >= gpus)
            may = (t for t in suit if has_label(kind, t) and self._may_open(t))
            if (found := next(may, None)) is None:
                return False
            node = self._open(found)
        node.cores -= cores
        node.gpus -= gpus
        return True

    def _may_open(self, one: NodeType) -> bool:
        most = self._autoscaler.most
        others = sum(not node.type.is_head for node in self._nodes)
        return self._counts[one.name] < one.most and (most is None or others < most)

    def _open(self, one: NodeType) -> _Node:
        node = _Node(one, one.cores, one.gpus)
        self._nodes.append(node)
        self._counts[one.name] += 1
        return node
