"""A worker as one object: socket, executor, loaded variants, crash ledger.

``python -m workers.host --config JSON`` runs one without Ray and prints its address.
"""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from planner.batching.registry import make_queue
from variants.core_time import CoreMeter
from variants.errors import Internal, InvalidInput, ModellessError
from workers.channel.frames import FrameKind
from workers.channel.messages import (
    decode_load,
    decode_seen,
    decode_told,
    encode,
    encode_status,
    named,
)
from workers.channel.secret import read_secret
from workers.channel.shared_clock import clock_name
from workers.channel.shared_memory import CAN_SHARE
from workers.execution.artifacts import Artifacts
from workers.execution.batch_runner import JOIN_S
from workers.execution.executor import Executor
from workers.execution.listening.server import ChannelServer
from workers.execution.loader import Loading
from workers.execution.lone_batches import LoneBatches
from workers.execution.replicas import Replica
from workers.execution.room import Demanded, Room
from workers.process.line import rest_s
from workers.process.own_cores import OwnCores
from workers.process.quarantine import CrashLedger
from workers.process.release import release
from workers.types import WorkerConfig, WorkerStatus

log = logging.getLogger(__name__)

REPORT_S = 1.0
HEARD_S = 5.0
"""How long a worker that leaves waits until all that are connected have heard of it."""
ENDS_S = 2.0
"""How long a worker that leaves waits for the load under way and for its runtimes to be closed.
Nobody needs them any more, and what they hold is free once the process has ended."""
STOP_S = JOIN_S + ENDS_S + 1.0
"""What leaving takes at most after the last answer, and a moment to spare."""
MOST_PATIENCE_S = 60.0
"""The longest that a load waits for room."""
GC_THRESHOLDS = (50_000, 20, 100)
SWITCH_S = 0.001
"""How long one thread may keep the interpreter when another wants it. With the default of 5 ms a
finished batch may wait that long for its answer to be sent."""


class WorkerHost:
    """One slice of hardware and all that runs on it. Lives on the current event loop."""

    def __init__(
        self,
        config: WorkerConfig,
        worker_id: str,
        *,
        secret: bytes | None = None,
        artifacts: Artifacts | None = None,
    ) -> None:
        """``secret`` is that of the channel where it is not in the file that ``config`` names, and
        ``artifacts`` where they are had from if not at the paths that loads name."""
        self._config = config
        self._secret = secret
        self._artifacts = artifacts
        self._id = worker_id
        self._ledger = CrashLedger(config.quarantine_dir)
        self._core_meter = CoreMeter()
        """Made before it keeps to cores of its own: those of the machine count."""
        self._cores = OwnCores(config.cores) if config.pin_cores else None
        self._executor: Executor | None = None
        self._loading: Loading
        self._lone: LoneBatches
        self._server: ChannelServer
        self._stopping = False
        self.told_to_leave = False
        """A gateway has said that it shall go, as an operator wants it."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> str:
        """Open the socket and return its address.

        Raises:
            NotFound, Forbidden: the secret cannot be read.
            Internal: the socket cannot be opened.
        """
        config = self._config
        secret = self._secret or read_secret(config.secret_path)
        self._ledger.open()
        executor = Executor(
            self._ledger,
            max_frame=config.max_frame_mib * 2**20,
            queue=make_queue(config.batching),
            late_share=config.late_share,
        )
        room = Room(executor.usage, config.memory_mib, config.eviction)
        self._loading = Loading(
            executor, self._ledger, config.memory_mib, config.cores, room,
            artifacts=self._artifacts,
        )  # fmt: skip
        self._loading.list_quarantined()
        self._server = ChannelServer(
            executor, self._id, secret, config.max_frame_mib,
            self.report, self._control,
        )  # fmt: skip
        self._executor = executor
        self._lone = LoneBatches(executor)
        try:
            address = await self._server.listen(config.listen, config.run_dir)
        except (OSError, ModellessError):
            self._ledger.close()
            raise
        if self._cores is not None:
            self._cores.take()  # first: threads keep to the cores of the thread that begins them
        executor.start()
        self._tasks = [
            asyncio.create_task(self._report()),
            asyncio.create_task(self._retry_failed()),
            asyncio.create_task(self._loading.close_quarantined()),
        ]
        settle_memory()
        log.info("worker %s listens on %s", self._id, address)
        return address

    def status(self) -> WorkerStatus:
        """What the worker says of itself."""
        now_s = time.monotonic()
        shown = tuple([each.status(now_s, *rates) for each, *rates in self._rated(now_s)])
        return replace(self._status(now_s), replicas=shown)

    def report(self) -> bytes:
        """The same as JSON."""
        now_s = time.monotonic()
        shown = [each.encoded_status(now_s, *rates) for each, *rates in self._rated(now_s)]
        return encode_status(self._status(now_s), shown)

    def _rated(self, now_s: float) -> list[tuple[Replica, float, float]]:
        """What is listed here, with the queries per second to expect and the share of the urgent
        ones."""
        executor = self._running()
        held, share = executor.replicas, executor.usage.urgency.share
        rates = executor.usage.learned_qps(held, now_s)
        return [
            (each, rate, share(key)) for (key, each), rate in zip(held.items(), rates, strict=True)
        ]

    def _status(self, now_s: float) -> WorkerStatus:
        """What it says of itself but for its replicas."""
        executor = self._running()
        problems = (self._ledger.problem, "" if self._cores is None else self._cores.problem)
        return WorkerStatus(
            worker=self._id,
            device_kind=self._config.device_kind,
            memory_mib=self._config.memory_mib,
            reserved_mib=self._loading.reserved_mib,
            draining=executor.draining,
            backlog_us=executor.backlog_us(),
            busy_ratio=executor.busy_ratio(),
            replicas=(),
            pid=os.getpid(),
            occurrences=self._loading.history.newest,
            evictable=self._loading.evictable(now_s),
            churn_per_s=float(f"{self._loading.room.churn_per_s(now_s):.1g}"),
            eviction=self._config.eviction,
            loads=self._loading.thread.loads,
            loading_s=round(self._loading.thread.took_s + self._loading.thread.fetched_s, 4),
            profiled_loading_s=round(self._loading.thread.profiled_s, 4),
            page=self._ledger.page,
            release=release(),
            clock=clock_name(),
            borrows=CAN_SHARE,
            tells_queue=True,
            withdraws=True,
            askers=self._server.askers(),
            warnings=tuple(filter(None, problems)),
            cores=() if self._cores is None else self._cores.cores,
            zone=self._config.zone,
            core_time=self._core_meter.look(),
        )

    def check(self) -> None:
        """The health check.

        Raises:
            Internal: the socket, the executor, a load or a background task is dead or stuck.
        """
        self._running().check()
        self._loading.check()
        self._server.check()
        for task in self._tasks:
            if task.done():
                raise Internal("a background task of the worker has ended")

    async def drain_and_stop(self, timeout_s: float) -> None:
        """Refuse new queries, answer those that were admitted, then close everything.

        It waits until every gateway has heard of it, so that no query on its way here is lost.
        After ``timeout_s`` what is still queued is refused, and ``STOP_S`` later all is over: a
        load that nobody needs any more is not waited for. Calling it twice is allowed.
        """
        executor = self._executor
        if executor is None or self._stopping:
            return
        self._stopping = executor.draining = True
        self._server.announce()
        until_s = asyncio.get_running_loop().time() + timeout_s
        with suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_s, HEARD_S)):
                await self._server.finished()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await executor.quiet()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await executor.stop()
        self._server.close()
        await asyncio.sleep(0)
        self._loading.give_up()
        if not await asyncio.to_thread(self._loading.shutdown, ENDS_S):
            log.warning("the worker ends before what it loads or closes has come to an end")
        self._ledger.close()
        if self._cores is not None:
            self._cores.release()
        self._executor = None

    def _running(self) -> Executor:
        if self._executor is None:
            raise Internal("the worker is not running")
        return self._executor

    async def _report(self) -> None:
        """Send the status to every connection, on every change and once a second.

        Where that takes long, because much is loaded, what changes meanwhile is told together.
        """
        changed = self._loading.changed
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await changed.wait()
            changed.clear()
            if self._cores is not None:
                self._cores.take()  # those of a worker that has left, where there were too few
            await self._reopen()
            self._ledger.note_memory()
            if self._ledger.problem:
                await asyncio.to_thread(self._ledger.retry)
            began_s = time.monotonic()
            try:
                self._server.announce()
            except ModellessError:
                log.exception("reporting the status")
            await asyncio.sleep(rest_s(time.monotonic() - began_s))

    async def _reopen(self) -> None:
        """Listen again where the socket was removed. Where that cannot be, the health check says so
        and another worker comes: all of a machine at once, for what removes one removes all."""
        try:
            if await self._server.reopen():
                log.warning("the socket of worker %s was removed; it listens again", self._id)
        except ModellessError as error:
            log.warning("%s", error)

    async def _retry_failed(self) -> None:
        """Look once a second whether what failed to load may load now. Where another machine keeps
        it, the answer may take long."""
        while True:
            await asyncio.sleep(REPORT_S)
            try:
                await self._loading.retry_failed()
            except ModellessError:
                log.exception("looking at what failed to load")

    async def _control(self, kind: FrameKind, message: dict[str, Any]) -> bytes:
        executor = self._running()
        if kind is FrameKind.LOAD:
            status = await self._loading.load(
                decode_load(message.get("spec", {})),
                demanded=_demanded(message),
                begin=message.get("begin") is True,
            )
            return encode(status)
        if kind is FrameKind.HISTORY:
            return encode(self._loading.history.untold(*decode_told(message)))
        if kind is FrameKind.UNLOAD:
            gone = await self._loading.unload(*named(message), seen=decode_seen(message))
            return encode({"gone": gone})
        if kind is FrameKind.READMIT:
            await self._loading.readmit(*named(message))
            return b"{}"
        if kind is FrameKind.CHECK:
            checked = await self._lone.check(*named(message))
            self._loading.changed.set()
            return encode(checked)
        if not executor.draining:  # else a gateway says that it has heard
            self.told_to_leave = executor.draining = True
            self._server.announce()
        await executor.quiet()
        return b"{}"


def _demanded(message: dict[str, Any]) -> Demanded | None:
    """Why a load message may evict others; None when it may not.

    Raises:
        InvalidInput: its patience is no number.
    """
    if message.get("make_room") is not True:
        return None
    patience = message.get("patience_s", 0.0)
    if not isinstance(patience, int | float):
        raise InvalidInput(f"the patience of a load must be a number, not {patience!r}")
    patience_s = min(max(0.0, patience), MOST_PATIENCE_S)
    return Demanded(
        waiting=message.get("waiting") is True,
        patience_s=patience_s,
        need=str(message.get("need", "")),
        evicts=message.get("evicts") is not False,
    )


def settle_memory() -> None:
    """Keep the garbage collector away from what was made at start and from the hot path.

    Collecting it over and over makes most of the tail of a small model's latency.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    sys.setswitchinterval(SWITCH_S)


async def _serve(config: WorkerConfig, worker_id: str, drain_s: float) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    host = WorkerHost(config, worker_id)
    print(await host.start(), flush=True)
    await stop.wait()
    await host.drain_and_stop(drain_s)


def main() -> None:
    """Run one worker until it is told to stop."""
    import uvloop

    parser = argparse.ArgumentParser(prog="python -m workers.host", description=__doc__)
    parser.add_argument("--config", required=True, help="a WorkerConfig as JSON")
    parser.add_argument("--id", default="", help="the worker's name; default: from the process id")
    parser.add_argument("--drain-s", type=float, default=20.0, help="time to finish on SIGTERM")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    config = WorkerConfig(**orjson.loads(arguments.config))
    worker_id = arguments.id or f"{config.device_kind}-{os.getpid()}"
    try:
        uvloop.run(_serve(config, worker_id, arguments.drain_s))
    except ModellessError as error:
        sys.exit(error.message)


if __name__ == "__main__":
    main()
