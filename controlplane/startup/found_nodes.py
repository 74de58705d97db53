"""The settings of an installation on a cluster, with the device kinds that its nodes are."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from controlplane.cluster.kinds.found_kinds import bound_slices, found_slices, found_words
from controlplane.cluster.kinds.node import KIND_LABEL, Node
from controlplane.cluster.kinds.sightings import has_kind, sighted
from controlplane.given_settings import PREFIX
from controlplane.settings import Settings
from controlplane.slices import Slice, Source, slices_of
from variants.errors import InvalidInput
from variants.figures import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundNodes:
    """What became of a look at the nodes."""

    settings: Settings
    words: str
    """What was found, for the line of the start-up."""
    remarks: tuple[str, ...]
    absent: frozenset[str] = frozenset()
    """Kinds of which there may be none, and that no node has: the control loop starts them."""


def with_kinds_of(nodes: Sequence[Node], settings: Settings) -> FoundNodes:
    """The settings with the kinds of these nodes, which also go into the environment: applications
    are made by it.

    Raises:
        InvalidInput: they are more kinds than there may be.
    """
    given = slices_of(settings.slices)
    found = (
        bound_slices(given, nodes)
        if given
        else found_slices(
            nodes, workers=settings.workers or 1, cores=settings.cores, gpus=settings.gpus
        )
    )
    slices = tuple(_as_set(one, settings) for one in found.slices)
    if slices and slices != given:
        told = {"slices": _written(slices), "workers": 0, "cores": 0, "gpus": -1}
        for name, value in told.items():
            # Over those of the settings file too, in which numbers may stand.
            os.environ[f"{PREFIX}{name.upper()}"] = str(value)
        settings = settings.model_copy(update=told)
    advice = sighted(settings.kinds, settings.wanted({}), nodes).advice
    return FoundNodes(
        settings=settings,
        words=_words(nodes, slices, settings),
        remarks=(*found.remarks, *_without_memory(slices, settings), *advice),
        absent=frozenset(
            kind.name
            for kind in settings.kinds
            if kind.least == 0 and not any(has_kind(node, kind) for node in nodes)
        ),
    )


def out_of_reach(nodes: Sequence[Node], settings: Settings) -> str:
    """What to know where gateways cannot reach workers of other machines; else nothing. Raylets of
    one machine have its name."""
    machines = {node.name for node in nodes}
    if settings.listen_channel != "unix" or len(machines) < 2:
        return ""
    return (
        f"{PREFIX}LISTEN_CHANNEL is 'unix', by which a gateway reaches workers of its own machine"
        f" alone, and there are {len(machines)} machines: set it to tcp:0.0.0.0"
    )


def _written(slices: Sequence[Slice]) -> str:
    """As the setting says them."""
    text = ",".join(map(str, slices))
    try:
        slices_of(text)
    except ValueError as error:
        raise InvalidInput(
            f"the nodes cannot be made device kinds of: {error}; give more of them the same label "
            f"{KIND_LABEL}, or name kinds in {PREFIX}SLICES"
        ) from error
    return text


def _as_set(one: Slice, settings: Settings) -> Slice:
    """Settings say of all workers without a GPU what variants may take."""
    said = settings.worker_memory_mib and one.gpu is None and not settings.slices
    return replace(one, memory_mib=None) if said else one


def _without_memory(slices: Sequence[Slice], settings: Settings) -> tuple[str, ...]:
    """What to know of kinds of which no node said what memory it has."""
    return tuple(
        f"no node of {one.name} said in time what memory it has, so its workers have a part of "
        f"what this machine has; {PREFIX}WORKER_MEMORY_MIB says it"
        for one in slices
        if one.source is Source.FOUND and one.memory_mib is None
        if not settings.worker_memory_mib
    )


def _words(nodes: Sequence[Node], slices: Sequence[Slice], settings: Settings) -> str:
    if not nodes:
        return "none has joined yet: workers run where there is room, whatever joins"
    there = f"{len(nodes)} with {counted(sum(node.cores for node in nodes), 'core')}"
    if slices:
        return f"{there}: {found_words(slices, nodes)}"
    return f"{there}, alike: {', '.join(str(kind.name) for kind in settings.kinds)}"
