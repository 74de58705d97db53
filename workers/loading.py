"""Loading and unloading variants while the others serve.

Memory is reserved from the start of a load until the variant is gone, so that what is reserved
never exceeds the slice. A variant with a query in flight is never unloaded: unloading waits.
"""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor

from planner.eviction import MIN_RESIDENCY_S, victims
from planner.lanes import Lane
from planner.types import LatencyTable
from variants.errors import Conflict, Internal, ModellessError, Overloaded, RuntimeFailed
from variants.types import Digest, ReplicaState, TaskName, VariantName
from workers.executor import Executor
from workers.quarantine import CRASHES, CrashLedger
from workers.replicas import Replica, verify
from workers.runtime import Runtime, make_runtime
from workers.types import LoadSpec, ReplicaStatus, ReplyCode, variant_id

log = logging.getLogger(__name__)

STUCK_S = 300.0
STUCK_FACTOR = 50.0
"""A load is stuck after both 5 minutes and 50 times what its profile says."""


class Loading:
    """Brings variants into the executor's replicas and takes them out again."""

    def __init__(
        self,
        executor: Executor,
        ledger: CrashLedger,
        memory_mib: float,
        threads: int,
        min_residency_s: float = MIN_RESIDENCY_S,
        stuck_s: float = STUCK_S,
    ) -> None:
        self._min_residency_s = min_residency_s
        self._stuck_s = stuck_s
        self.memory_mib = memory_mib
        self.changed = asyncio.Event()
        """Set whenever what is loaded, loading or reserved changed."""
        self.executor = executor
        self._replicas = executor.replicas
        self._ledger = ledger
        self._threads = threads
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._at_work: tuple[Replica, float] | None = None
        """What the other thread loads, and since when."""
        self._making_room = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """Raise ``Internal`` when a load hangs: all other loads and unloads wait behind it."""
        if (at_work := self._at_work) is None:
            return
        replica, began_s = at_work
        for_s = time.monotonic() - began_s
        if for_s > max(self._stuck_s, STUCK_FACTOR * replica.spec.load_s):
            raise Internal(f"{replica.name} has been loading for {for_s:.0f} s")

    @property
    def reserved_mib(self) -> float:
        return sum(r.spec.memory_mib for r in self._replicas.values() if r.runtime is not None)

    async def load(
        self, spec: LoadSpec, *, make_room: bool = False, force: bool = False
    ) -> ReplicaStatus:
        """Load a variant, or take over the share and latencies of one that is loaded.

        The pace is the worker's, so it counts at once: a load that is told later may end earlier.

        Args:
            make_room: others that are idle may be evicted.
            force: lift a quarantine.

        Raises:
            Conflict: it is in quarantine.
            Overloaded: there is no room.
            RuntimeFailed: it cannot be loaded.
        """
        if spec.pace_ms is not None:
            self.executor.schedule.pace(spec.pace_ms or None)
        variant = variant_id(spec.task, spec.variant)
        replica = self._replicas.get(variant)
        while replica is not None and replica.state is ReplicaState.UNLOADING:
            await asyncio.shield(replica.gone)
            replica = self._replicas.get(variant)
        if replica is None or replica.state is ReplicaState.QUARANTINED:
            self._admit(spec, variant, replica, force)
            replica = await self._begin(spec, variant, make_room)
        if replica.state is ReplicaState.LOADING:
            await asyncio.shield(replica.loaded)
        replica.replan(spec)
        self.executor.schedule.replan(replica.lane, LatencyTable(spec.latency), spec.share)
        return replica.status(time.monotonic())

    async def unload(self, task: str, variant: str) -> None:
        """Unload a variant once nothing of it is in flight; one that is not loaded is no error.

        A variant in quarantine stays listed there.
        """
        replica = self._replicas.get(variant_id(task, variant))
        if replica is not None and replica.state is ReplicaState.LOADING:
            await asyncio.wait([replica.loaded])
        if replica is None or replica.state is ReplicaState.QUARANTINED:
            return
        if replica.state is ReplicaState.READY:
            await self._unload(replica)
        elif replica.state is ReplicaState.UNLOADING:
            await asyncio.shield(replica.gone)

    async def close_quarantined(self) -> None:
        """Give back the memory of variants that failed, as they fail. Runs until cancelled."""
        while True:
            await self.executor.wake.wait()
            self.executor.wake.clear()
            while self.executor.on_quarantine:
                replica = self.executor.on_quarantine.pop()
                self.executor.schedule.remove_lane(replica.lane)
                await self._close(replica)
                self.changed.set()

    def list_quarantined(self) -> None:
        """Show what earlier processes crashed on."""
        for task, variant in self._ledger.quarantined():
            spec = LoadSpec(
                task=TaskName(task), variant=VariantName(variant), runtime="", artifact=Digest(""),
                path="", inputs=(), outputs=(), latency=((1, 0.0),), memory_mib=0.0, load_s=0.0,
            )  # fmt: skip
            self._show_quarantined(spec)

    def shutdown(self) -> None:
        """Close every runtime. Nothing may be in flight."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        for replica in self._replicas.values():
            if replica.runtime is not None:
                replica.runtime.close()
                replica.runtime = None

    # -- steps ------------------------------------------------------------------------------------

    def _admit(self, spec: LoadSpec, variant: int, replica: Replica | None, force: bool) -> None:
        """Refuse what is in quarantine, or lift that."""
        if replica is not None and not force:
            raise Conflict(f"{replica.name} is in quarantine: {replica.message}")
        key = variant.to_bytes(8, "big")
        if force:
            if replica is not None and replica.runtime is not None:
                raise Conflict(f"{replica.name} is still being closed")
            self._replicas.pop(variant, None)
            self._ledger.pardon(key)
        elif self._ledger.is_quarantined(key):
            shown = self._show_quarantined(spec)
            raise Conflict(f"{shown.name} is in quarantine: {shown.message}")

    def _show_quarantined(self, spec: LoadSpec) -> Replica:
        lane = Lane.detached(spec.task, LatencyTable(spec.latency))
        replica = Replica(spec, lane, None, time.monotonic())
        replica.state = ReplicaState.QUARANTINED
        replica.message = f"it crashed a worker {CRASHES} times within a day"
        replica.loaded.set_result(None)
        self._replicas[replica.variant] = replica
        self.changed.set()
        return replica

    async def _begin(self, spec: LoadSpec, variant: int, make_room: bool) -> Replica:
        """Reserve the memory and start the load; a load that began meanwhile is joined."""
        async with self._making_room:
            existing = self._replicas.get(variant)
            if existing is not None:
                return existing
            await self._make_room(spec, make_room)
            runtime = make_runtime(spec, self._threads)
            lane = self.executor.schedule.add_lane(
                spec.task, LatencyTable(spec.latency), spec.share
            )
            replica = Replica(spec, lane, runtime, time.monotonic())
            self._replicas[variant] = replica
        self.changed.set()
        task = asyncio.create_task(self._bring_up(replica, runtime))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return replica

    async def _make_room(self, spec: LoadSpec, evict: bool) -> None:
        """Wait for what is leaving anyway, as long as room is short; then evict, if that is asked.

        Raises:
            Overloaded: there is no room, and no more of it to come.
        """
        while (need_mib := self.reserved_mib + spec.memory_mib - self.memory_mib) > 0:
            leaving = [r.gone for r in self._replicas.values() if r.state is ReplicaState.UNLOADING]
            if not leaving:
                break
            await asyncio.wait(leaving, return_when=asyncio.FIRST_COMPLETED)
        name = f"{spec.task}/{spec.variant}"
        if need_mib <= 0:
            return
        now_s = time.monotonic()
        found = None
        if evict and spec.memory_mib <= self.memory_mib:
            held = [replica for replica in self._replicas.values() if replica.runtime]
            rates = self.executor.popularity.rates([r.variant for r in held], now_s)
            residents = [r.resident(rate) for r, rate in zip(held, rates, strict=True)]
            found = victims(residents, need_mib, now_s, min_residency_s=self._min_residency_s)
        if found is None:
            free_mib = max(0.0, self.memory_mib - self.reserved_mib)
            raise Overloaded(
                f"{name} needs {spec.memory_mib:.1f} MiB, {free_mib:.1f} MiB are free here"
            )
        evicted = [self._replicas[key] for key in found]
        for replica in evicted:
            log.info("%s leaves to make room for %s", replica.name, name)
            # Now, not when the gathered task first runs: until then others might unload it, too.
            replica.state = ReplicaState.UNLOADING
        await asyncio.gather(*map(self._unload, evicted))

    async def _bring_up(self, replica: Replica, runtime: Runtime) -> None:
        """Load in the other thread, then open the lane; on failure, leave no trace."""
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._pool, self._load_now, replica, runtime)
        except ModellessError as error:
            self._drop(replica, error)
            return
        except Exception as error:
            log.exception("loading %s", replica.name)
            self._drop(replica, RuntimeFailed(f"{replica.name} cannot be loaded: {error!r}"))
            return
        replica.state = ReplicaState.READY
        replica.loaded_s = replica.last_used_s = time.monotonic()
        replica.loaded.set_result(None)
        self.executor.loaded(replica)
        self.changed.set()

    def _load_now(self, replica: Replica, runtime: Runtime) -> None:
        self._ledger.suspect(replica.key, replica.spec.task, replica.spec.variant)
        self._at_work = (replica, time.monotonic())
        try:
            runtime.load()
            try:
                verify(runtime, replica.spec)
            except Exception:  # whatever it is: what stays open would keep memory nobody counts
                runtime.close()
                raise
        finally:
            self._at_work = None
            self._ledger.clear(replica.key)

    def _drop(self, replica: Replica, error: ModellessError) -> None:
        replica.runtime = None
        for job in replica.stop_waiting():
            self.executor.refuse(job, ReplyCode.COLD, error.message)
        self._forget(replica)
        replica.loaded.set_exception(error)
        replica.loaded.exception()  # looked at, so that a load nobody waits for is not reported

    async def _unload(self, replica: Replica) -> None:
        replica.state = ReplicaState.UNLOADING
        self.changed.set()
        while replica.in_flight:
            replica.idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(replica.idle)
        await self._close(replica)
        self._forget(replica)

    async def _close(self, replica: Replica) -> None:
        """Close the runtime; what it reserved is free afterwards."""
        runtime = replica.runtime
        if runtime is None:
            raise Internal(f"{replica.name} has no runtime to close")
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._pool, runtime.close)
        except Exception:
            log.exception("closing %s", replica.name)
        replica.runtime = None

    def _forget(self, replica: Replica) -> None:
        del self._replicas[replica.variant]
        self.executor.schedule.remove_lane(replica.lane)
        if not replica.gone.done():
            replica.gone.set_result(None)
        self.changed.set()
