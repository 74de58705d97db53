"""Which nodes to ask an autoscaler for, so that the workers of a plan have room. Pure.

What is asked for are bundles, one for each worker that a plan wants: the cores that it has, and the
label of its kind. The autoscaler packs them onto nodes that it has or may start, whatever runs
there, so those of a kind that run are named with those that are missing. Where all are there they
keep their nodes themselves, and a request could keep an idle node in place of a busy one.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from controlplane.cluster.autoscaling.node_packing import Packing
from controlplane.cluster.autoscaling.node_types import Autoscaler, has_label
from controlplane.cluster.kinds.node import KIND_LABEL, NODE_LABEL
from controlplane.slices import Kind
from variants.figures import counted
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
    kinds: Sequence[Kind],
    wanted: Counts,
    there: Counts,
    autoscaler: Autoscaler,
    waited: Container[DeviceKindName] = (),
) -> NodeRequest:
    """The nodes that a plan needs.

    More than an autoscaler may start is not asked for: it would start none of it. Kinds of which
    nothing is missing are not named: a request keeps idle nodes.

    Args:
        wanted: workers by kind, as the plan has them.
        there: those that run, and not on nodes that drain.
        waited: kinds that were asked for in vain for long.
    """
    bundles, remarks = [], []
    missing: dict[DeviceKindName, int] = {}
    packing = Packing(autoscaler) if autoscaler.types else None
    placed: Counter[DeviceKindName] = Counter()
    if packing is not None:
        for kind in kinds:
            for _ in range(min(wanted.get(kind.name, 0), there.get(kind.name, 0))):
                placed[kind.name] += packing.add(kind)
    for kind in kinds:
        count, running = wanted.get(kind.name, 0), there.get(kind.name, 0)
        if count <= running:
            continue
        if refusal := _refusal(kind, autoscaler):
            remarks.append(refusal)
            continue
        lacking = count - running
        if packing is not None:
            fit = next((n for n in range(lacking) if not packing.add(kind)), lacking)
            if fit < lacking:
                remarks.append(_too_many(kind, count, placed[kind.name] + fit, autoscaler))
            lacking = fit
        if not lacking:
            continue
        missing[kind.name] = lacking
        if kind.name in waited:
            remarks.append(
                f"{lacking} of {counted(count, 'worker')} of {kind.name} "
                f"{'has' if count == 1 else 'have'} been missing for long: the "
                "autoscaler starts nodes for them as for all that waits in Ray, and no idle node "
                "is kept for them; `ray status` says what it waits for"
            )
        else:
            bundles.append(Bundle(kind=kind, count=running + lacking))
    return NodeRequest(bundles=tuple(bundles), missing=missing, remarks=tuple(remarks))


def _refusal(kind: Kind, autoscaler: Autoscaler) -> str:
    """Why no nodes of a kind can be asked for; empty where they can."""
    if kind.nodes is None:
        return ""
    if kind.nodes.label == NODE_LABEL:
        return (
            f"workers of {kind.name} run on the nodes that it was found on, and no other one can "
            f"be asked for: give its nodes the label {KIND_LABEL}"
        )
    if autoscaler.reads_labels:
        return ""
    return (
        f"Ray's first autoscaler starts no nodes of {kind.name}, which are told by the label "
        f"{kind.nodes.label}: start Ray on the head with RAY_enable_autoscaler_v2=1"
    )


def _too_many(kind: Kind, count: int, most: int, autoscaler: Autoscaler) -> str:
    if kind.nodes is None or any(has_label(kind, one) for one in autoscaler.types):
        return (
            f"the autoscaler's node types have room for {most} of {counted(count, 'worker')} of "
            f"{kind.name}: "
            "`max_workers` there says how many nodes it may start"
        )
    return (
        f"no node type of the autoscaler has the label {kind.nodes} of {kind.name}, so none is "
        "asked for: write it under `labels` of the type"
    )
