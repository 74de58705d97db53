"""What ``modelless up`` runs: the embedded services, Ray, the applications, until told to stop.

One process owns them all. It holds a lock in the state directory while it lives, writes down the
processes that it started, and leaves none behind; a successor ends what a killed one left.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime
from itertools import count
from typing import IO

import psutil

from controlplane.access import client_keys
from controlplane.access.tls import check
from controlplane.cluster.nodes import NodeLook, listed_in_time
from controlplane.cluster.one_machine.left_behind import (
    open_files,
    remove_ended,
    remove_sockets,
)
from controlplane.cluster.one_machine.template_process import TemplateProcess
from controlplane.cluster.processes.ray_environment import ray_dir
from controlplane.cluster.processes.ray_processes import (
    joined_ray,
    logs_place,
    raylet_socket,
    start_ray,
    stop_ray,
    watch_control_store,
    worker_template,
)
from controlplane.cluster.processes.raylet import RayletWatch
from controlplane.cluster.serve_applications import (
    CONTROLLER_APP,
    GATEWAY_APP,
    applications_now,
    deploy,
    gateway_nodes,
    until_running,
)
from controlplane.cluster.start_reports import complaints
from controlplane.gateway.listening import Kept, bind, keep, other_place
from controlplane.live_state import ENDING, opened
from controlplane.settings import Settings
from controlplane.startup.applications import applications, worker_names
from controlplane.startup.awaited_nodes import await_nodes
from controlplane.startup.found_nodes import out_of_reach, with_kinds_of
from controlplane.startup.presence import (
    already_running,
    base_url,
    read_state,
    state_path,
    write_state,
)
from controlplane.startup.process_limits import check_process_limits
from controlplane.startup.processes import StartedProcesses, calm_serve, deaf_to_hang_ups, on_end
from controlplane.startup.reached_gateway import ReachedGateway, answering
from controlplane.startup.readiness import READY_S, index_reader, until_loaded
from controlplane.startup.state_directory import (
    ROOM_BYTES,
    clear_files,
    clear_leftovers,
    forget_counts,
    prepare,
    take_lock,
)
from controlplane.startup.valkey import EmbeddedValkey, reach
from variants.disk import ensure_room
from variants.errors import ClusterUnavailable, Conflict, InvalidInput, StateUnavailable

STOP_S = 40.0
ONE_SIGNAL_S = 0.5
"""Signals that follow within this time are one: ``timeout`` and ``make`` pass one on that the whole
group of processes has got already. A later one ends everything at once."""
HEARD_S = 0.1
"""What gateways get to hear that everything ends, before the first worker goes."""
WATCH_S = 1.0
REMEMBER_S = 5.0
"""How often processes below this one are written down: finding them reads all of the machine's,
which takes 5 ms, and those that Ray starts anew end with it anyway."""
TIDY_S = 60.0
"""How often it is looked what ended processes have left behind."""

Say = Callable[[str], None]
Step = Callable[[str], "contextlib.AbstractContextManager[Callable[[str], None]]"]
"""Opens a step of the start-up; what it yields takes the sentence that ends it."""


class Supervisor:
    """Starts everything in order, watches it, and stops everything in reverse."""

    def __init__(self, settings: Settings, step: Step, say: Say) -> None:
        self._settings, self._absent = settings, frozenset[str]()
        self._step = step
        self._show = say
        self._valkey: EmbeddedValkey | None = None
        self._template: TemplateProcess | None = None
        self._ray = False
        self._deploying = False
        """Whether Serve is waited for to take the applications."""
        self._raylet: RayletWatch | None = None
        self._joined = ""
        """Where the Ray is that was joined or started, for `modelless upgrade`."""
        self._stop = threading.Event()
        self._interrupted_s: float | None = None
        """When it was told to stop first."""
        self._lock: IO[str] | None = None
        self._kept: dict[int, socket.socket] = {}
        """What keeps the gateways' ports from other installations, by port."""
        self._said = ""
        self._watching = False
        self.url = base_url(settings)
        """Where a gateway is reached."""
        self._reached: ReachedGateway | None = None
        """Where several machines of a cluster have gateways."""
        self._started = StartedProcesses()

    # -- start ----------------------------------------------------------------------------------

    def claim(self) -> None:
        """Take the state directory for this process and clear what a killed one left.

        What is interrupted leaves nothing.

        Raises:
            Conflict: another process has it, or the port is taken.
            InvalidInput: the directory, the certificate or the clients' keys cannot be used, or
                limits of processes are too low.
            StateUnavailable: its disk is full.
            KeyboardInterrupt: Ctrl-C, SIGTERM or `modelless down` ended the start.
        """
        settings = self._settings
        check_process_limits(settings)
        if settings.tls_cert:
            check(settings.tls_cert, settings.tls_key)
        prepare(settings)
        if fault := client_keys.token_fault(settings.client_keys_path, settings.api_token):
            raise InvalidInput(fault)
        try:
            lock = take_lock(settings.run_dir / "up.lock")
        except OSError as error:
            raise InvalidInput(
                f"{settings.run_dir} cannot be locked: {error.strerror}; set MODELLESS_STATE_DIR"
            ) from error
        if lock is None:
            raise Conflict(already_running(settings, read_state(settings)))
        self._lock = lock
        left = clear_leftovers(settings)
        if left:
            self._say(f"ended {left} processes that an earlier, killed run had left")
        clear_files(settings)
        try:
            ensure_room(settings.run_dir, ROOM_BYTES)
            self._take_ports()
        except (StateUnavailable, Conflict):
            self._release()
            raise
        try:
            # From here on `modelless down` has to find us, also while examples are being made.
            write_state(settings, os.getpid(), self._started.ids)
            self._interruptible()
            # It imports while the catalog is looked after and Ray's own servers start.
            self._template = worker_template(settings)
        except KeyboardInterrupt:
            self.stop()
            raise

    def _take_ports(self) -> None:
        """Keep the ports for the gateways of this installation.

        Raises:
            Conflict: one is taken, or is not ours.
        """
        settings, alone = self._settings, not self._settings.ray_address
        ports = [(settings.port, "--port or MODELLESS_PORT")]
        if settings.grpc_port:
            ports.append((settings.grpc_port, "MODELLESS_GRPC_PORT, or 0 for no gRPC"))
        for port, remedy in ports:
            try:
                if alone and port not in self._kept:
                    self._kept[port] = keep(settings.host, port)
                # On a cluster, gateways of a killed `up` may still answer: this one takes them
                # over. There the machines of gateways have the ports, and this one need not.
                bind(settings, alone=alone, port=port, listen=False).close()
            except Kept as error:
                raise Conflict(f"{error}; choose another port with {remedy}") from error
            except OSError as error:
                raise Conflict(
                    f"{settings.host}:{port} cannot be used: {error.strerror}; "
                    f"{other_place(error, remedy)}"
                ) from error

    def join(self, tell: Say) -> Settings:
        """Join the cluster that the settings name, wait for the nodes that are to come, and look
        what they are.

        Returns the settings with the kinds that were found; all that is started goes by them.

        Args:
            tell: told how many nodes have joined, while others are waited for.

        Raises:
            ClusterUnavailable: the cluster does not answer.
            StateUnavailable: the live state that the settings name does not answer.
            InvalidInput: its nodes are more kinds than there may be.
            KeyboardInterrupt: Ctrl-C, SIGTERM or `modelless down` ended the start.
        """
        self._begin()
        # Ray handles them in its way; until the applications run, the start just ends.
        self._interruptible()
        nodes = NodeLook(listed_in_time)
        with self._step("Nodes") as done:
            missing = await_nodes(self._settings.nodes, nodes.count, tell)
            seen = nodes.look()
            found = with_kinds_of(seen, self._settings)
            done(found.words)
        for remark in filter(None, (missing, out_of_reach(seen, self._settings), *found.remarks)):
            self._say(remark)
        self._settings, self._absent = found.settings, found.absent
        return found.settings

    def start(self, workers: str) -> None:
        """Start the live state, Ray and the applications; return when queries are answered.

        Args:
            workers: how many are wanted and by what, in words.

        Raises:
            ClusterUnavailable: something did not start; the sentence says what.
            Conflict: a port was taken since the state directory was.
            StateUnavailable: the live state that the settings name does not answer.
        """
        settings = self._settings
        if not settings.ray_address:
            self._take_ports()  # once more: training and measuring may have taken minutes
        if not self._ray:
            self._begin()
        on_end(self._interrupt)
        signal.signal(signal.SIGINT, self._interrupt)
        with self._step("Ray Serve") as done:
            made = applications(settings, self._absent)
            self._deploying = True
            deploy(made, logs_place(settings), self._say)
            self._deploying = False
            until_running(made, self._stop.is_set, self._say)
            if settings.ray_address and settings.gateway_nodes != "head":
                urls = [base_url(settings, node) for node in gateway_nodes()]
                self.url = next(iter(urls), self.url)
                self._reached = ReachedGateway(urls, answering(settings))
            self._remember()
            self._write_down()
            calm_serve()
            told = f"gateway, control loop, {workers}"
            done("interrupted" if self._stop.is_set() else told)

    def _begin(self) -> None:
        """The live state and Ray."""
        settings = self._settings
        with self._step("Live state") as done:
            if settings.redis_url:
                # Later it may go and come; without it at the start, gateways meet no workers.
                asyncio.run(reach(settings.redis_url))
                done("the one that MODELLESS_REDIS_URL names")
            else:
                self._valkey = EmbeddedValkey(settings.run_dir)
                self._valkey.start()
                self._remember()
                done("embedded Valkey on a private socket")
        # A thread of Ray's prints what happens to its processes, in many words, on standard output.
        sys.stdout = (settings.run_dir / "ray.log").open("w", buffering=1)
        with self._step("Ray") as done:
            self._ray = True
            with deaf_to_hang_ups():
                start_ray(settings, self._template)
            if self._stop.is_set():  # Ray may have swallowed the exception
                raise KeyboardInterrupt
            self._joined = joined_ray()
            self._remember()
            done(_ray_words(settings))

    def wait_for_variants(self, expected: int, tasks: Collection[str]) -> None:
        """Wait until the plan is loaded: all ``expected`` variants of tasks, or what memory holds.

        Raises:
            ClusterUnavailable: not even one was loaded.
            KeyboardInterrupt: Ctrl-C, SIGTERM or `modelless down` ended the start.
        """
        if expected and not self._stop.is_set():
            with self._step("Variants") as done:
                ready = self._until_loaded(expected, tasks)
                done("interrupted" if self._stop.is_set() else f"{ready} of {expected} loaded")
        if self._stop.is_set():
            raise KeyboardInterrupt

    def _until_loaded(self, expected: int, tasks: Collection[str]) -> int:
        ask = index_reader(self._settings, self.url)
        ready = until_loaded(ask, expected, tasks, self._stop.wait)
        if not ready and not self._stop.is_set():
            raise ClusterUnavailable(
                f"no variant was loaded within {READY_S:,.0f} s;{self._complaints()}"
                f" the logs are in {logs_place(self._settings)}"
            )
        return ready

    def _complaints(self) -> str:
        """What Ray Serve says of applications that do not run, as part of a sentence."""
        settings = self._settings
        names = {*worker_names(settings), GATEWAY_APP, CONTROLLER_APP}
        try:
            found = complaints(applications_now(names))
        except ClusterUnavailable as error:
            found = [error.message]
        return "".join(f" {one};" for one in found)

    # -- watch ----------------------------------------------------------------------------------

    def watch(self) -> None:
        """Stay until Ctrl-C, SIGTERM or `modelless down`; start a dead Valkey again.

        Raises:
            ClusterUnavailable: Ray has died; nothing can be saved.
        """
        self._watching = True
        self._write_down()
        self._raylet = RayletWatch(raylet_socket())
        control_store = watch_control_store(self._settings)
        for look in count(1):
            if self._stop.wait(WATCH_S):
                return
            if look % round(REMEMBER_S / WATCH_S) == 0:
                self._remember()
            if look % round(TIDY_S / WATCH_S) == 0:
                self._tidy()
            if (news := control_store.look()) is not None:
                self._say(news)
            if self._valkey is not None and not self._valkey.reachable():
                self._restart_valkey(self._valkey)
            if self._template is not None and self._template.renew():
                self._remember()
                self._say("the process that workers are forked from was killed; it runs again")
            if self._ray_has_ended():
                where = " on this machine" if self._settings.ray_address else ""
                raise ClusterUnavailable(
                    f"Ray has died{where}; its logs are in {logs_place(self._settings)}"
                )
            if self._reached is not None and (url := self._reached.look(self.url)) != self.url:
                self._say(f"no gateway answers at {self.url}: commands ask the one at {url}")
                self.url = url
                self._write_down()

    def _tidy(self) -> None:
        """Remove what ended processes leave behind; on a cluster that is its operator's."""
        if not self._settings.ray_address:
            processes = [os.getpid(), *(pid for pid, _ in self._started.ids)]
            logs = ray_dir(self._settings) / "session_latest" / "logs"
            remove_ended(logs.resolve(), open_files(processes))
            remove_sockets(self._settings.run_dir)

    def _restart_valkey(self, valkey: EmbeddedValkey) -> None:
        """Start it again; queries go on without it, so a failure is told and tried again."""
        what = "embedded Valkey's socket was removed"
        if ended_by := valkey.ended_by():
            what = f"embedded Valkey ended {ended_by}"
        try:
            valkey.start()
        except ClusterUnavailable as error:
            if error.message != self._said:
                self._say(f"{error.message}; queries go on without it, starting it is tried again")
            self._said = error.message
        else:
            self._remember()
            self._said = ""
            self._say(
                f"the {what}; it was started again, and is filled again but for the charts of the"
                " last hour and the outcomes of registrations over REST; no query was lost"
            )

    def _ray_has_ended(self) -> bool:
        return self._raylet is not None and self._raylet.has_ended()

    def _interruptible(self) -> None:
        """Until the applications run, the start just ends by Ctrl-C and SIGTERM alike."""
        on_end(self._end_start)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._end_start)

    def _end_start(self, _signal: int, _frame: object) -> None:
        if self._is_first():
            raise KeyboardInterrupt

    def _interrupt(self, _signal: int, _frame: object) -> None:
        if self._is_first() and self._deploying:
            raise KeyboardInterrupt

    def _is_first(self) -> bool:
        """Whether a signal is the first one; a later one ends everything at once, and what is
        ended already in order must not be broken off by it."""
        self._stop.set()
        is_first = self._interrupted_s is None
        if not self._is_repeated() and not is_first:
            self._say("killed on request; queries in flight are lost")
            with contextlib.suppress(psutil.Error):
                self._started.look()
            self._started.end()
            os._exit(130)
        return is_first

    def _is_repeated(self) -> bool:
        """Whether a signal is one that has come just before."""
        now_s = time.monotonic()
        if self._interrupted_s is None:
            self._interrupted_s = now_s
            return False
        return now_s - self._interrupted_s <= ONE_SIGNAL_S

    # -- stop -----------------------------------------------------------------------------------

    @property
    def is_interrupted(self) -> bool:
        """Whether it was told to stop."""
        return self._stop.is_set()

    @property
    def has_begun(self) -> bool:
        """Whether there is anything to stop."""
        return self._ray or self._valkey is not None

    @property
    def is_outlived(self) -> bool:
        """Whether ``stop`` cannot reach what other nodes run: Ray has ended on this one alone."""
        return bool(self._settings.ray_address) and self._ray_has_ended()

    def stop(self) -> None:
        """Stop everything in reverse: workers finish their queries, then the services end."""
        self._stop.set()
        on_end(self._interrupt)  # a signal must not break off what ends processes
        signal.signal(signal.SIGINT, self._interrupt)
        with contextlib.suppress(psutil.Error):
            self._remember()
        # Without a raylet there is nothing to drain, and a call to Ray ends this process at once.
        if self._ray and not self._ray_has_ended():
            watchdog = threading.Timer(STOP_S, self._started.end)
            watchdog.daemon = True
            watchdog.start()
            # Gateways say so to whoever they cannot answer any more.
            with contextlib.suppress(StateUnavailable):
                asyncio.run(_announce_end(self._settings.live_url))
            try:
                # On a machine of our own, what was never served ends with its processes.
                stop_ray(serving=bool(self._settings.ray_address) or not self._deploying)
            except Exception as error:
                self._say(f"Ray did not end by itself ({error}); its processes are ended")
            watchdog.cancel()
        if self._template is not None:
            self._template.end()
        if self._valkey is not None:
            self._valkey.stop()
        self._started.end()
        if self._raylet is not None:
            self._raylet.close()
        forget_counts(self._settings)
        self._release()

    def _release(self) -> None:
        """Give the state directory free."""
        if self._lock is not None:
            state_path(self._settings).unlink(missing_ok=True)
            self._lock.close()
            self._lock = None
        while self._kept:
            self._kept.popitem()[1].close()

    def _remember(self) -> None:
        """Note all processes below this one, so that none can be forgotten."""
        if self._started.look():
            self._write_down()

    def _write_down(self) -> None:
        """A disk that is full must neither end what runs nor keep it from being stopped."""
        try:
            write_state(self._settings, os.getpid(), self._started.ids, self.url, self._joined)
        except OSError as error:
            self._say(f"what runs here cannot be written down: {error.strerror}")

    def _say(self, text: str) -> None:
        if self._watching:  # what is said of a start needs no time: it stands below its beginning
            text = f"{datetime.now():%Y-%m-%d %H:%M:%S} {text}"
        with contextlib.suppress(OSError):  # a log on a full disk, a terminal that is gone
            self._show(text)


def _ray_words(settings: Settings) -> str:
    from importlib.metadata import version

    beside = " for workers of all layouts" if settings.layouts else ""
    where = settings.ray_address or f"{settings.all_cores} cores{beside}, loopback"
    return f"{version('ray')}, {where}, token authentication"


async def _announce_end(url: str) -> None:
    async with opened(url) as live:
        await live.notify(ENDING)
        await asyncio.sleep(HEARD_S)
