"""What the nodes of a Ray cluster are: asked of Ray, and of each node once, in bounded time."""

import logging
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from threading import Thread
from typing import Any

from controlplane.backoff import Backoff
from controlplane.cluster.kinds.node import NODE_LABEL, Node, level_of
from controlplane.gpus import GpuModel, gpus
from variants.builders.processor import processor_flags, processor_model
from variants.errors import ClusterUnavailable

ANSWER_S = 20.0
"""How long a node may take to say what it is: Ray starts a process there for it. Ray itself has as
long to say which nodes there are, where that is bounded."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a node says of itself."""

    instructions: str
    processor: str
    memory_mib: float
    gpus: tuple[GpuModel, ...]


def own_facts() -> Facts:
    """What this machine, or container, is."""
    from ray._common.utils import get_system_memory

    return Facts(
        instructions=level_of(processor_flags()),
        processor=processor_model() or platform.machine(),
        memory_mib=get_system_memory() / 2**20,
        gpus=gpus(),
    )


def listed_nodes() -> list[Mapping[str, Any]]:
    """The nodes that Ray knows, in its own words; with ``DrainsUntilMs``, a Unix time, those that
    drain."""
    import ray
    from ray._private.state import state

    draining = state.get_draining_nodes()
    return [
        one | ({"DrainsUntilMs": draining[one["NodeID"]]} if one["NodeID"] in draining else {})
        for one in ray.nodes()
    ]


def is_staying(listed: Mapping[str, Any]) -> bool:
    """Whether a node as it is listed is alive and does not drain."""
    return bool(listed["Alive"]) and "DrainsUntilMs" not in listed


def listed_in_time() -> list[Mapping[str, Any]]:
    """The same for who may be interrupted and must not wait for a control store that has died.

    Raises:
        TimeoutError: it does not answer.
    """
    listed: Future[list[Mapping[str, Any]]] = Future()

    def ask() -> None:
        try:
            listed.set_result(listed_nodes())
        except Exception as error:
            listed.set_exception(error)

    # In a thread of its own: the call cannot be interrupted, and waits for hours for another one.
    Thread(target=ask, daemon=True).start()
    try:
        return listed.result(ANSWER_S)
    except TimeoutError as error:
        raise TimeoutError(f"its control store does not answer within {ANSWER_S:,.0f} s") from error


def asked_nodes(ids: Sequence[str], patience_s: float) -> dict[str, Facts]:
    """What these nodes say of themselves; those that do not say it in time are missing."""
    import ray

    # Its process ends with the call: else it would stay there, idle, for later ones.
    ask = ray.remote(num_cpus=0, max_retries=0, max_calls=1)(own_facts)
    asked = {ask.options(label_selector={NODE_LABEL: id_}).remote(): id_ for id_ in ids}
    answered, silent = ray.wait(list(asked), num_returns=len(asked), timeout=patience_s)
    for one in silent:
        ray.cancel(one, force=True)
    facts = {}
    for one in answered:
        try:
            facts[asked[one]] = ray.get(one)
        except Exception as error:  # a node that cannot say it is one that did not
            log.warning("node %s does not say what it is: %s", asked[one], error)
    return facts


class NodeLook:
    """Looks at the nodes of the cluster that this process has joined; asks each one once."""

    def __init__(
        self,
        listed: Callable[[], Iterable[Mapping[str, Any]]] = listed_nodes,
        asked: Callable[[Sequence[str], float], Mapping[str, Facts]] = asked_nodes,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listed = listed
        self._asked = asked
        self._now_s = now_s
        self._known: dict[str, Facts] = {}
        self._silent: Backoff[str] = Backoff()

    def look(self, patience_s: float = ANSWER_S) -> tuple[Node, ...]:
        """All nodes that are alive and may have workers, ordered by name.

        Takes a second, or ``patience_s`` where nodes do not answer. Those are asked again, each
        time after a longer while: it is a process on a node that may have no time for it.

        Raises:
            ClusterUnavailable: Ray does not say which nodes there are.
        """
        hosts = self._hosts()
        self._silent.forget(lambda id_: id_ not in hosts)
        try:
            if new := [id_ for id_ in hosts if self._to_ask(id_)]:
                self._known |= self._asked(new, patience_s)
        except Exception as error:
            raise _silent(error) from error
        for id_ in new:
            if id_ not in self._known:
                self._silent.failed(id_, f"no answer in {patience_s:,.0f} s", self._now_s())
        names = _names(hosts)
        found = [node_of(one, self._known.get(id_), names[id_]) for id_, one in hosts.items()]
        return tuple(sorted(found, key=lambda node: (node.name, node.id)))

    def _to_ask(self, id_: str) -> bool:
        return id_ not in self._known and self._silent.waits(id_, self._now_s()) is None

    def count(self) -> int:
        """How many nodes are alive and may have workers; asks none of them.

        Raises:
            ClusterUnavailable: Ray does not say which nodes there are.
        """
        return len(self._hosts())

    def _hosts(self) -> dict[str, Mapping[str, Any]]:
        """These, as Ray lists them, by id."""
        try:
            return {
                one["NodeID"]: one
                for one in self._listed()
                if one["Alive"] and _offers_something(one)
            }
        except Exception as error:
            raise _silent(error) from error


def node_of(listed: Mapping[str, Any], facts: Facts | None, name: str) -> Node:
    """A node as Ray lists it and as it says itself."""
    resources = listed["Resources"]
    node = Node(
        id=listed["NodeID"],
        name=name,
        cores=int(resources.get("CPU", 0)),
        labels={NODE_LABEL: listed["NodeID"], **listed["Labels"]},
        draining="DrainsUntilMs" in listed,
    )
    if facts is None:
        return node
    return replace(
        node,
        instructions=facts.instructions,
        processor=facts.processor,
        memory_mib=facts.memory_mib,
        gpus=_given(facts.gpus, int(resources.get("GPU", 0))),
    )


def _silent(error: Exception) -> ClusterUnavailable:
    return ClusterUnavailable(f"Ray does not say what its nodes are: {error}")


def _offers_something(listed: Mapping[str, Any]) -> bool:
    resources = listed["Resources"]
    return bool(resources.get("CPU", 0) >= 1 or resources.get("GPU", 0) >= 1)


def _names(hosts: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Host names, where they tell nodes apart, or else addresses too."""
    names = [one["NodeManagerHostname"] for one in hosts.values()]
    return {
        id_: one["NodeManagerHostname"]
        if names.count(one["NodeManagerHostname"]) == 1
        else f"{one['NodeManagerHostname']} ({one['NodeManagerAddress']})"
        for id_, one in hosts.items()
    }


def _given(models: tuple[GpuModel, ...], count: int) -> tuple[GpuModel, ...]:
    """The GPUs that Ray hands out on a node that has these: it may have been told of fewer."""
    given = []
    for model in models:
        if part := min(model.count, count):
            given.append(replace(model, count=part))
            count -= part
    return tuple(given)
