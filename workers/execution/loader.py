"""Loading and unloading variants while the others serve.

Memory is reserved from the start of a load until the variant is gone, so that what is reserved
never exceeds the slice. A variant with a query in flight is never unloaded: unloading waits. An
artifact is read and compared with its name before anything leaves for it.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from math import inf

from planner.eviction.turns import order_of
from planner.latency_table import LatencyTable
from variants.artifacts.integrity import Seen
from variants.errors import (
    Conflict,
    Internal,
    ModellessError,
    Overloaded,
    RuntimeFailed,
    VariantNotLoadable,
)
from variants.types import ReplicaState
from workers.execution.absent import Absent, is_failed
from workers.execution.artifacts import Artifacts
from workers.execution.executor import Executor
from workers.execution.failures import Failures, not_loadable
from workers.execution.history import History
from workers.execution.load_thread import STUCK_S, LoadThread, close
from workers.execution.replicas import Replica
from workers.execution.room import Demanded, Look, Room, Wish
from workers.process.line import Line, Looked
from workers.process.quarantine import CrashLedger
from workers.process.sparing_log import SparingLog
from workers.runtimes.protocol import Runtime
from workers.runtimes.registry import make_runtime
from workers.types import LoadSpec, ReplicaStatus, ReplyCode, variant_id

log = logging.getLogger(__name__)
sparing = SparingLog(log)

EXPECTED_S = 0.5
"""How long a variant that was loaded for a query is kept for it: the query is sent when the load is
done, and takes a moment to come."""


class Loading:
    """Brings variants into the executor's replicas and takes them out again."""

    def __init__(
        self,
        executor: Executor,
        ledger: CrashLedger,
        memory_mib: float,
        threads: int,
        room: Room | None = None,
        stuck_s: float = STUCK_S,
        artifacts: Artifacts | None = None,
    ) -> None:
        self.memory_mib = memory_mib
        self.room = room or Room(executor.usage, memory_mib)
        self._line = Line(self._look_for)
        """Loads that wait until others are loaded, or used."""
        executor.on_used = self._used
        self._loads = 0
        self.changed = asyncio.Event()
        """Set whenever what is loaded, loading or reserved changed."""
        self.history = History()
        """Loads and evictions for queries."""
        self.executor = executor
        self._replicas = executor.replicas
        self._ledger = ledger
        self._threads = threads
        self.thread = LoadThread(ledger, stuck_s, artifacts)
        self._artifacts = self.thread.artifacts
        self._failures = Failures(self._artifacts)
        self._absent = Absent(self._replicas, self._failures, self.changed)
        self._making_room = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self) -> None:
        """Raise ``Internal`` when a load or an unload hangs: all others wait behind it."""
        self.thread.check()

    @property
    def reserved_mib(self) -> float:
        """Memory of all that is loaded, loading or leaving."""
        return sum(r.spec.memory_mib for r in self._replicas.values() if r.runtime is not None)

    def evictable(self, now_s: float) -> tuple[tuple[float, float], ...]:
        """What may leave for a load that queries ask for, and what that would cost."""
        return self.room.ladder([r for r in self._replicas.values() if r.runtime], now_s)

    async def load(
        self,
        spec: LoadSpec,
        *,
        demanded: Demanded | None = None,
        begin: bool = False,
    ) -> ReplicaStatus:
        """Load a variant, or take over the share and latencies of one that is loaded.

        The longest batch concerns the whole worker, so it counts at once: a load that is told later
        may end earlier.

        Args:
            demanded: queries ask for it, so what is worth less may be evicted. Without it, a load
                takes free memory only.
            begin: return when the load has begun, not when it is done.

        Raises:
            Conflict: it is in quarantine.
            Overloaded: there is no room.
            ArtifactDamaged: its artifact is missing or not what was registered.
            VariantNotLoadable: it cannot be loaded.
        """
        if spec.longest_batch_ms is not None:
            self.executor.queue.set_longest_batch(spec.longest_batch_ms or None)
        variant = variant_id(spec.task, spec.variant)
        spec = self._artifacts.placed(spec)
        replica = await self._staying(variant)
        if replica is None or replica.state.kept_out:
            self._admit(spec, variant, replica)
            if demanded is not None:
                self.executor.usage.missed(variant, time.monotonic(), waits=demanded.waiting)
            file = await self._verify(spec, variant, demanded)
            replica = await self._begin(spec, variant, demanded, file)
        elif demanded is not None and replica.state is ReplicaState.LOADING:
            self.executor.usage.missed(variant, time.monotonic(), waits=demanded.waiting)
        if demanded is not None:
            replica.asked = True
            replica.awaited |= demanded.waiting
        if replica.state is ReplicaState.LOADING:
            if demanded is not None and not replica.displaces:
                replica.asked_qps = self._asked_qps(variant)
            if begin:
                return replica.status(time.monotonic())
            await asyncio.shield(replica.loaded)
        if demanded is not None and demanded.waiting:
            replica.expected_until_s = time.monotonic() + EXPECTED_S
        self.executor.queue.replan(replica.queue, replica.replan(spec), spec.share)
        return replica.status(time.monotonic())

    async def retry_failed(self) -> None:
        """Stop listing variants that may load now, so that they are asked for again."""
        if any(map(is_failed, self._replicas.values())):
            for variant in await asyncio.to_thread(self._failures.due, time.monotonic()):
                self._absent.delist(variant)

    async def unload(
        self, task: str, variant: str, *, seen: tuple[int, bool] | None = None
    ) -> bool:
        """Unload a variant once nothing of it is in flight; one that is not loaded is no error.

        A variant in quarantine stays listed there.

        Args:
            seen: ``load_no`` and ``asked`` of the replica that was decided upon. One that was
                loaded anew since, or that a query has asked for since, stays.

        Returns:
            Whether it is gone.
        """
        replica = self._replicas.get(variant_id(task, variant))
        if replica is not None and replica.state is ReplicaState.LOADING:
            await asyncio.wait([replica.loaded])
        if replica is None or replica.state is ReplicaState.QUARANTINED:
            return True
        if replica.state is ReplicaState.UNLOADING:
            await asyncio.shield(replica.gone)
        elif seen is not None and seen != (replica.load_no, replica.asked):
            return False
        elif replica.state is ReplicaState.READY:
            await self._unload(replica)
        return True

    async def readmit(self, task: str, variant: str) -> None:
        """End the quarantine of a variant: its crashes are forgotten, and it may be loaded again.

        One that is not in quarantine is no error.

        Raises:
            Conflict: its runtime is still being closed.
        """
        name = variant_id(task, variant)
        await asyncio.to_thread(self._ledger.pardon, name.to_bytes(8, "big"))
        self._absent.readmit(name)

    async def close_quarantined(self) -> None:
        """Give back the memory of variants that failed, as they fail. Runs until cancelled."""
        while True:
            await self.executor.wake.wait()
            self.executor.wake.clear()
            while self.executor.on_quarantine:
                replica = self.executor.on_quarantine.pop()
                self.executor.queue.remove_variant(replica.queue)
                await self._close(replica)
                self._moved()

    def list_quarantined(self) -> None:
        """Show what earlier processes crashed on."""
        self._absent.list_quarantined(self._ledger.quarantined())

    def give_up(self) -> None:
        """Nobody needs a load any more: one under way is no evidence against its variant."""
        self.thread.give_up()

    def shutdown(self, timeout_s: float | None = None) -> bool:
        """End the loads and close every runtime. Nothing may be in flight.

        Args:
            timeout_s: how long at most to wait for the load under way, and for what has to be
                closed.

        Returns:
            Whether all is closed. What is not goes with the process.
        """
        return self.thread.shutdown(timeout_s, self._close_all)

    def _close_all(self) -> None:
        """Close what is loaded, in the thread that loads."""
        for replica in tuple(self._replicas.values()):
            runtime, replica.runtime = replica.runtime, None
            if runtime is not None:
                try:
                    close(runtime)
                except Exception:
                    log.exception("closing %s", replica.name)

    # -- steps ------------------------------------------------------------------------------------

    async def _staying(self, variant: int) -> Replica | None:
        """What is listed of a variant, once nothing of it is leaving."""
        while (found := self._replicas.get(variant)) and found.state is ReplicaState.UNLOADING:
            await asyncio.shield(found.gone)
        return found

    def _admit(self, spec: LoadSpec, variant: int, replica: Replica | None) -> None:
        """Refuse what is in quarantine, and what would fail again."""
        if replica is not None and is_failed(replica):
            if (error := self._failures.standing(spec, time.monotonic())) is not None:
                raise error
            self._absent.delist(variant)
            replica = None
        if replica is None:
            since_s = self._ledger.quarantined_s(variant.to_bytes(8, "big"))
            if since_s is not None:
                replica = self._absent.quarantine(spec, since_s)
        if replica is not None:
            raise Conflict(f"{replica.name} is in quarantine: {replica.message}")

    async def _verify(self, spec: LoadSpec, variant: int, demanded: Demanded | None) -> Seen | None:
        """How the artifact looks, which is sound; None for a variant that has none.

        Raises:
            ArtifactDamaged, VariantNotLoadable: it is not sound, or cannot be read.
        """
        if not spec.path:
            return None
        if (known := self._artifacts.known(spec)) is not None:
            return known
        asked_qps = None if demanded is None else self._asked_qps(variant)
        file, error = await self.thread.read(spec, order_of(asked_qps, spec.load_s))
        if error is not None:
            raise self._absent.fail(spec, error, file) from error
        return file

    async def _begin(
        self, spec: LoadSpec, variant: int, demanded: Demanded | None, file: Seen | None
    ) -> Replica:
        """Reserve the memory and start the load; a load that began meanwhile is joined.

        Raises:
            Overloaded: there is no room.
            Conflict, VariantNotLoadable: it has failed meanwhile, or its runtime is not here.
        """
        try:
            runtime = make_runtime(spec, self._threads)
        except RuntimeFailed as error:
            raise self._absent.fail(spec, error, file) from error
        now_s = time.monotonic()
        wish = Wish(spec, demanded, now_s + (demanded.patience_s if demanded else 0.0))
        while True:
            async with self._making_room:
                existing = self._replicas.get(variant)
                if existing is not None:
                    if not existing.state.kept_out:
                        return existing
                    self._admit(spec, variant, existing)
                left = await self._make_room(wish)
                if left is not None:
                    return self._start(spec, variant, runtime, demanded, file, left > 0)
            # What others load, or have just loaded for their queries, may leave after those.
            waits = demanded is not None and demanded.waiting
            await self._line.wait(wish, wish.until_s - time.monotonic() if waits else inf)

    def _start(
        self,
        spec: LoadSpec,
        variant: int,
        runtime: Runtime,
        demanded: Demanded | None,
        file: Seen | None,
        displaces: bool,
    ) -> Replica:
        queue = self.executor.queue.add_variant(spec.task, LatencyTable(spec.latency), spec.share)
        self._loads += 1
        now_s = time.monotonic()
        replica = Replica(
            spec, queue, runtime, now_s, load_no=self._loads, asked=demanded is not None,
            displaces=displaces,
        )  # fmt: skip
        self.room.used(replica)
        self._replicas[variant] = replica
        self._moved()
        task = asyncio.create_task(self._bring_up(replica, runtime, demanded, file))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return replica

    async def _make_room(self, wish: Wish) -> int | None:
        """Wait for what is leaving anyway, as long as room is short; then evict for queries.

        Returns:
            How many left for it, now that there is room. None when there may be some soon.

        Raises:
            Overloaded: there is no room, and no more of it to come.
        """
        spec = wish.spec
        # One look for all questions: what stays by the first may no longer be protected a moment
        # later, and the second would say that nothing leaves soon.
        while (look := self._look()).short_mib(spec) > 0 and (leaving := look.leaving):
            await asyncio.wait([r.gone for r in leaving], return_when=asyncio.FIRST_COMPLETED)
        if look.short_mib(spec) <= 0:
            return 0
        evicted = self.room.decide(wish, look)
        if evicted is None:
            return None
        self.room.evicted(evicted, look)
        residents = self.room.residents(evicted, look.now_s)
        for replica, resident in zip(evicted, residents, strict=True):
            name, left = f"{spec.task}/{spec.variant}", replica.spec
            log.info("%s leaves to make room for %s", replica.name, name)
            self.history.evicted(left.task, left.variant, resident, name)
            # Now, not when the gathered task first runs: until then others might unload it, too.
            replica.state = ReplicaState.UNLOADING
        await asyncio.gather(*map(self._unload, evicted))
        return len(evicted)

    def _look(self) -> Look:
        """What is here now."""
        backlog_s = self.executor.backlog_us() / 1e6
        held, now_s = self._replicas.values(), time.monotonic()
        return Look(self.room, held, now_s, self._busy_s(), backlog_s)

    def _look_for(self, wishes: Sequence[Wish]) -> Looked[Wish]:
        """Which loads wait no longer, by one look: all where something leaves, for which they wait
        in their order; else the first that has room, or will have none."""
        look = self._look()
        wishes = self.room.by_turn(wishes, look)
        if look.leaving:
            return Looked(wishes)
        for wish in wishes:
            try:
                fits = look.short_mib(wish.spec) <= 0
                if fits or self.room.decide(wish, look) is not None:
                    return Looked((wish,))
            except Overloaded:
                return Looked((wish,))
        return Looked((), look.again_s)

    def _used(self, replica: Replica) -> None:
        """A batch of it ran."""
        if self.room.counts_uses:
            self.room.used(replica)
        self._line.happened()

    def _moved(self) -> None:
        """What is loaded, loading or reserved has changed."""
        self.changed.set()
        self._line.happened()

    def _busy_s(self) -> float:
        """How long the loads that have begun or wait for their turn still take."""
        loading = [r for r in self._replicas.values() if r.state is ReplicaState.LOADING]
        take_s = self.thread.pace * sum(r.spec.load_s for r in loading)
        return max(0.0, take_s - self.thread.at_work_s())

    def _asked_qps(self, variant: int) -> float:
        """Queries per second that ask for a variant here."""
        return self.executor.usage.learned_qps((variant,), time.monotonic())[0]

    async def _bring_up(
        self, replica: Replica, runtime: Runtime, demanded: Demanded | None, file: Seen | None
    ) -> None:
        """Load in the other thread, then take queries; after a failure only the reason is kept."""
        fetch_s = self.thread.fetch_s(replica.variant)
        try:
            try:
                await self.thread.load(replica, runtime, file)
            finally:
                self.executor.usage.load_pace = self.thread.pace
        except (RuntimeFailed, VariantNotLoadable) as error:
            self._drop(replica, error, file)
            return
        except Exception as error:
            sparing.error(replica.name, error, "loading %s", replica.name)
            why = f"{replica.name} cannot be loaded: {type(error).__name__}: {error}"
            self._drop(replica, RuntimeFailed(why), file)
            return
        self._failures.succeeded(replica.variant)
        replica.state = ReplicaState.READY
        replica.loaded_s = replica.last_used_s = time.monotonic()
        if replica.awaited:  # before anything else can look for what may leave
            replica.expected_until_s = replica.loaded_s + EXPECTED_S
        replica.loaded.set_result(None)
        self.executor.loaded(replica)
        if demanded is not None:
            took_s = replica.loaded_s - replica.started_s + fetch_s
            self.history.loaded(replica.spec.task, replica.spec.variant, demanded.need, took_s)
        self._moved()

    def _drop(self, replica: Replica, error: ModellessError, file: Seen | None) -> None:
        replica.runtime = None
        told = not_loadable(replica.spec, error)
        for job in replica.stop_waiting():
            self.executor.refuse(job, ReplyCode.COLD, told.message)
        self._forget(replica)
        self._absent.fail(replica.spec, error, file)
        replica.loaded.set_exception(told)
        replica.loaded.exception()  # read, or asyncio would report it where no task waits

    async def _unload(self, replica: Replica) -> None:
        replica.state = ReplicaState.UNLOADING
        self._moved()
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
        try:
            await self.thread.close(replica.spec, runtime)
        except Exception:
            log.exception("closing %s", replica.name)
        replica.runtime = None

    def _forget(self, replica: Replica) -> None:
        del self._replicas[replica.variant]
        self.executor.queue.remove_variant(replica.queue)
        if not replica.gone.done():
            replica.gone.set_result(None)
        self._moved()
