"""Measuring on the nodes of a cluster, or on the one machine: a process of its own there, for one
profile at a time.

The process takes no core of Ray's where workers of the kind run: it measures beside them, computes
only while a core has nothing else to do, and waits for calm as measuring does everywhere. What a
task cannot be answered without gets a part of a full core as well, so that it ends. Where none runs
it has a slice of its own, as a worker would. It ends with what it measured, with the process that
ordered it, and when it is given up.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from controlplane.building.work_folder import work_folder
from controlplane.cluster.head import store_of
from controlplane.cluster.kind_placement import options_for
from controlplane.cluster.nodes import is_staying, listed_nodes
from controlplane.cluster.ray_adapter import nodes_of_workers
from controlplane.cluster.sending_settings import receive
from controlplane.cluster.sent_settings import SentSettings
from controlplane.cluster.serve_applications import last_line, serve_details
from controlplane.profiling.due.orders import MeasuringOrder
from controlplane.profiling.due.staleness import BackEnd, host_with
from controlplane.profiling.measuring_lock import may_measure, measuring_last
from controlplane.profiling.remeasuring import measured
from controlplane.settings import Settings
from planner.types import ProfileKey
from variants.artifacts.protocol import ArtifactStore
from variants.errors import (
    ClusterUnavailable,
    DeadlineExceeded,
    ModellessError,
    NotFound,
    Overloaded,
    ReplicaLost,
    RuntimeFailed,
    readable,
)
from variants.types import DeviceKindName, Profile
from workers.process.niceness import HURRIES_NOT, only_while_idle, take_niceness

START_S = 120.0
"""How long a process may take to start on a node that is there."""
UNHURRIED_START_S = 600.0
"""The same where nobody waits for what it measures: on a node whose cores are full, what yields to
all else takes a minute for half a second of processor. One that was given up would have to begin
anew, and would wait first for as long as it had tried."""
PLACE_S = 300.0
"""How long a slice of its own is waited for: by then a cluster may have started a node."""
MEASURE_S = 1_800.0
"""How long measuring one profile may take."""
GIVES_WAY_S = 300.0
"""For how long a measurement gives way at one of its steps: who it gives way to may be lost."""
LOOK_EVERY_S = 2.0
LOOKS = 15
"""How often, and how many times, a node is looked at of which something was lost: Ray takes up to
half a minute to notice that a machine is gone which did not say so."""
CONTROL_STORE_S = 30.0
"""How long Ray's control store may take to begin or end a process."""

_ASIDES = "asides"
"""Calls of a bench that do not wait until it has measured."""
_CALLS = ThreadPoolExecutor(4, thread_name_prefix="benches")
"""Of their own: calls that hang take no thread from those who write to the catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What a bench says of its node."""

    node: str
    """Ray's id of it."""
    hosts: Mapping[BackEnd, str]
    """The fingerprint of each back end that was asked for."""


class NodeBench:
    """Runs on a node. What goes wrong is an answer as well, so that it arrives as what it is."""

    def __init__(self, sent: SentSettings) -> None:
        self._sent = sent
        self._store: ArtifactStore | None = None
        self._machine = ""
        self._may_go_on = threading.Event()
        self._may_go_on.set()

    def give_way(self, gives: bool) -> None:
        """Stop measuring after the step that is under way, until this is called with False. What
        was measured stays, and the process that measures computes nothing meanwhile."""
        if gives:
            self._may_go_on.clear()
        else:
            self._may_go_on.set()

    def begin(
        self, back_ends: Iterable[BackEnd], *, while_idle: bool = False
    ) -> Begun | ModellessError:
        """Look at this node. With ``while_idle`` all that follows waits for cores to be idle."""
        import ray

        take_niceness(HURRIES_NOT)
        try:
            settings, _ = receive(self._sent, machine_name())
            self._store = store_of(settings)
            self._machine = machine_name() if settings.ray_address else ""
        except ModellessError as error:
            return error
        hosts = {back_end: host_with(*back_end) for back_end in back_ends}
        if while_idle:
            only_while_idle()
        return Begun(node=ray.get_runtime_context().get_node_id(), hosts=hosts)

    def measure(self, order: MeasuringOrder) -> Profile | ModellessError:
        """Measure a variant here, in a sandbox, from the artifact that the store has."""
        assert self._store is not None
        variant, kind = order.due.variant, order.due.kind
        try:
            with work_folder() as work:
                return measured(
                    order.task, variant, kind, self._store, work, machine=self._machine,
                    told=lambda *_: self._step(),
                )  # fmt: skip
        except ModellessError as error:
            return error

    def _step(self) -> None:
        self._may_go_on.wait(GIVES_WAY_S)


def machine_name() -> str:
    """Host name and address of this node: several nodes of a cluster may be on one machine."""
    from ray.util import get_node_ip_address

    return f"{socket.gethostname()} ({get_node_ip_address()})"


class MeasuringNodes:
    """Has profiles measured on the cluster's nodes. Used inside the control loop's replica."""

    def __init__(
        self,
        sent: SentSettings,
        settings: Callable[[], Settings],
        listed: Callable[[], Iterable[Mapping[str, Any]]] = listed_nodes,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        """
        Args:
            settings: gives those of now, with the device kinds that there are.
            listed: the nodes as Ray lists them.
        """
        self._listed = listed
        self._look_every_s = look_every_s
        self._sent = sent
        self._settings = settings
        self._measuring: dict[ProfileKey, Any] = {}
        """The benches that measure."""

    @property
    def one_machine(self) -> bool:
        return False

    async def give_way(self, key: ProfileKey, gives: bool) -> bool:
        """Have what measures a profile stop after its next step, or go on; whether it does."""
        bench = self._measuring.get(key)
        if bench is None:
            return False
        aside = bench.give_way.options(concurrency_group=_ASIDES)
        with suppress(ModellessError):
            await _answer(aside.remote(gives), CONTROL_STORE_S, "giving way")
            return True
        return False

    async def nodes(
        self, kinds: Iterable[DeviceKindName], workers: Iterable[str]
    ) -> dict[str, str]:
        """A worker's name to the node it runs on, for the workers of these kinds.

        Raises:
            ClusterUnavailable: Serve does not answer.
        """
        return nodes_of_workers(await serve_details(), kinds)

    async def look(self, node: str, back_ends: Iterable[BackEnd]) -> Mapping[BackEnd, str]:
        """The fingerprint of each back end on a node.

        Raises:
            Conflict, InvalidInput, Forbidden: the node sees other settings or another modelless.
            ClusterUnavailable, DeadlineExceeded, ReplicaLost, RuntimeFailed: it could not be asked.
        """
        async with _bench(self._sent, _on(node)) as bench:
            begun: Begun = await _answer(
                bench.begin.remote(tuple(back_ends)), START_S, "a look at a node"
            )
            return begun.hosts

    async def measure(
        self, order: MeasuringOrder, node: str, placed: Callable[[str], None]
    ) -> Profile:
        """Measure on a node; without one, on a slice of the kind's own, wherever there is room.

        ``placed`` is called with the node before it is measured, and may refuse it.

        Raises:
            VariantNotLoadable: the artifact is missing there, is damaged or cannot be read.
            InvalidArtifact: the variant failed, crashed, or took too long or too much memory.
            Conflict, InvalidInput, Forbidden: the node sees other settings or another modelless.
            NotFound: the settings have no such kind.
            ReplicaLost: the node, or the process there, ended meanwhile.
            DeadlineExceeded: no node had room, or it took too long.
            ClusterUnavailable, RuntimeFailed: it could not be measured otherwise.
        """
        options = _on(node) if node else self._own_slice(order.due.kind.name)
        what = f"measuring {order.due.variant.name} on {order.due.kind.name}"
        async with _bench(self._sent, options) as bench:
            start_s = START_S if order.hurried else UNHURRIED_START_S
            patience_s = start_s if node else PLACE_S
            begun = await _answer(
                bench.begin.remote((), while_idle=bool(node) and not order.urgent),
                patience_s,
                f"finding room for {what}",
            )
            placed(begun.node)
            self._measuring[order.key] = bench
            try:
                profile: Profile = await _answer(bench.measure.remote(order), MEASURE_S, what)
            finally:
                if self._measuring.get(order.key) is bench:  # no other one has begun meanwhile
                    del self._measuring[order.key]
            return profile

    async def stays(self, node: str) -> bool:
        """Whether a node is there and does not drain, now and in a while; not where nobody says."""
        for _ in range(LOOKS):
            try:
                listed = await in_time(self._listed)
            except ClusterUnavailable:
                return False
            if not any(one["NodeID"] == node and is_staying(one) for one in listed):
                return False
            await asyncio.sleep(self._look_every_s)
        return True

    def _own_slice(self, name: DeviceKindName) -> dict[str, Any]:
        kind = next((one for one in self._settings().kinds if one.name == name), None)
        if kind is None:
            raise NotFound(f"there is no device kind {name!r} in the settings")
        needs = {"num_cpus": kind.cores, "num_gpus": 0 if kind.gpu is None else 1}
        return needs | options_for(kind)


class MeasuringHere(MeasuringNodes):
    """Has profiles measured on the one machine that all workers run on, while no command measures.

    Which of its profiles are stale is known before it serves, and does not change while it does.
    """

    _held = 0
    """Measurements that hold the lock together."""
    _lock: ExitStack

    @property
    def one_machine(self) -> bool:
        return True

    async def nodes(
        self, kinds: Iterable[DeviceKindName], workers: Iterable[str]
    ) -> dict[str, str]:
        """This node for each worker; none while a command measures."""
        import ray

        run_dir = self._settings().run_dir
        if not self._held and not await asyncio.to_thread(may_measure, run_dir):
            return {}
        return dict.fromkeys(workers, ray.get_runtime_context().get_node_id())

    async def look(self, node: str, back_ends: Iterable[BackEnd]) -> Mapping[BackEnd, str]:
        """Nothing is said of any back end, so no profile counts as stale."""
        return dict.fromkeys(back_ends, "")

    async def measure(
        self, order: MeasuringOrder, node: str, placed: Callable[[str], None]
    ) -> Profile:
        """As on a cluster, while no command measures.

        Raises:
            Overloaded: a command measures.
        """
        with self._shared() as may:
            if not may:
                raise Overloaded("a command measures on this machine")
            return await super().measure(order, node, placed)

    @contextmanager
    def _shared(self) -> Iterator[bool]:
        """Whether it may be measured now. Of two measurements at once, of which one gives way, the
        last that ends lets commands measure."""
        if not self._held:
            held = ExitStack()
            if not held.enter_context(measuring_last(self._settings().run_dir)):
                held.close()
                yield False
                return
            self._lock = held
        self._held += 1
        try:
            yield True
        finally:
            self._held -= 1
            if not self._held:
                self._lock.close()

    async def stays(self, node: str) -> bool:
        """The machine that asks is there."""
        return True


def _on(node: str) -> dict[str, Any]:
    """Beside what runs on a node already."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    return {"num_cpus": 0, "scheduling_strategy": strategy}


@asynccontextmanager
async def _bench(sent: SentSettings, options: Mapping[str, Any]) -> AsyncIterator[Any]:
    """A bench on a node; its process ends with this context, whatever it is doing."""
    import ray

    benches = _benches()  # here: two threads that ask at once would each make one
    bench = await in_time(lambda: benches.options(max_restarts=0, **options).remote(sent))
    try:
        yield bench
    finally:
        with suppress(ClusterUnavailable):  # without its handle Ray ends it as well
            await in_time(lambda: ray.kill(bench))


@cache
def _benches() -> Any:
    """The bench as Ray knows it: each one made anew would leave its code in the control store."""
    import ray

    return ray.remote(concurrency_groups={_ASIDES: 1})(NodeBench)


async def in_time(call: Callable[[], Any], patience_s: float = CONTROL_STORE_S) -> Any:
    """What Ray's control store answers to a call that would hold up the event loop.

    Raises:
        ClusterUnavailable: it does not answer.
    """
    from ray.exceptions import RayError

    try:
        async with asyncio.timeout(patience_s):
            return await asyncio.get_running_loop().run_in_executor(_CALLS, call)
    except TimeoutError as error:
        raise ClusterUnavailable("Ray's control store does not answer") from error
    except (RayError, ConnectionError, RuntimeError) as error:
        raise ClusterUnavailable(readable(f"Ray's control store: {last_line(error)}")) from error


async def _answer(reference: Any, patience_s: float, what: str) -> Any:
    """What a bench answers; its errors, and those of the way there, are raised."""
    from ray.exceptions import ActorUnschedulableError, RayActorError, RayError

    try:
        async with asyncio.timeout(patience_s):
            answer = await reference
    except TimeoutError as error:
        raise DeadlineExceeded(f"{what} took longer than {patience_s:,.0f} s") from error
    except RayActorError as error:
        raise ReplicaLost(f"{what}: the node or the process there was lost") from error
    except ActorUnschedulableError as error:
        raise ClusterUnavailable(f"{what}: no such node is there any more") from error
    except RayError as error:
        raise RuntimeFailed(readable(f"{what}: {last_line(error)}")) from error
    if isinstance(answer, ModellessError):
        raise answer
    return answer
