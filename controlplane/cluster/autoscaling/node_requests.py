"""Which nodes to ask an autoscaler for, so that the workers of a plan have room. Pure.

What is asked for are bundles, one for each worker that a plan wants: the cores that it has, and the
label of its kind. The autoscaler packs them onto nodes that it has or may start. A request stands
for the whole cluster, whatever runs on it, and only while workers are missing: where all are there
they keep their nodes themselves, and a request could keep an idle node in place of a busy one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.cluster.autoscaling.node_types import Autoscaler, most_workers
from controlplane.slices import Kind
from variants.types import DeviceKindName

Counts = Mapping[DeviceKindName, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What a worker of a kind needs of a node, so many times."""

    kind: Kind
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequest:
    """What to ask for, and what not."""

    bundles: tuple[Bundle, ...] = ()
    """None: nothing is missing, or nothing that an autoscaler could start."""
    missing: Mapping[DeviceKindName, int] = field(default_factory=dict)
    """Workers that are asked for and are not there, by kind."""
    remarks: tuple[str, ...] = ()
    """Sentences about what cannot be asked for."""


def node_request(
    kinds: Sequence[Kind], wanted: Counts, there: Counts, autoscaler: Autoscaler
) -> NodeRequest:
    """The nodes that a plan needs.

    More than an autoscaler may start is not asked for: it would start none of it.

    Args:
        wanted: workers by kind, as the plan has them.
        there: those that run, and not on nodes that drain.
    """
    bundles, remarks = [], []
    missing: dict[DeviceKindName, int] = {}
    for kind in kinds:
        count, running = wanted.get(kind.name, 0), there.get(kind.name, 0)
        if kind.nodes is not None and not autoscaler.reads_labels:
            if count > running:
                remarks.append(
                    f"Ray's first autoscaler starts no nodes of {kind.name}, which are told by "
                    f"the label {kind.nodes.label}: start Ray on the head with "
                    "RAY_enable_autoscaler_v2=1"
                )
            continue
        most = most_workers(kind, autoscaler)
        if most is not None and count > max(most, running):
            remarks.append(_too_many(kind, count, most))
            count = max(most, running)
        if count:
            bundles.append(Bundle(kind=kind, count=count))
        if count > running:
            missing[kind.name] = count - running
    if not missing:
        return NodeRequest(remarks=tuple(remarks))
    return NodeRequest(bundles=tuple(bundles), missing=missing, remarks=tuple(remarks))


def _too_many(kind: Kind, count: int, most: int) -> str:
    if most or kind.nodes is None:
        return (
            f"the autoscaler's node types have room for {most} of {count} workers of {kind.name}: "
            "`max_workers` there says how many nodes it may start"
        )
    return (
        f"no node type of the autoscaler has the label {kind.nodes} of {kind.name}, so none is "
        "asked for: write it under `labels` of the type"
    )
