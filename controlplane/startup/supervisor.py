"""What ``modelless up`` runs: the embedded services, Ray, the applications, until told to stop.

One process owns them all. It holds a lock in the state directory while it lives, writes down the
processes that it started, and leaves none behind; a successor ends what a killed one left.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Collection
from datetime import datetime
from itertools import count

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
from controlplane.cluster.serve_applications import deploy, gateway_nodes, until_running
from controlplane.settings import Settings
from controlplane.startup.applications import applications, complaints_of
from controlplane.startup.awaited_nodes import await_nodes
from controlplane.startup.claim import Claim
from controlplane.startup.found_nodes import out_of_reach, with_kinds_of
from controlplane.startup.interruption import Interruption
from controlplane.startup.presence import base_url, write_state
from controlplane.startup.process_limits import check_process_limits
from controlplane.startup.processes import StartedProcesses, calm_serve, deaf_to_hang_ups
from controlplane.startup.reached_gateway import ReachedGateway, answering
from controlplane.startup.readiness import READY_S, index_reader, until_loaded
from controlplane.startup.state_directory import (
    ROOM_BYTES,
    clear_files,
    clear_leftovers,
    forget_counts,
    prepare,
)
from controlplane.startup.valkey import EmbeddedValkey, announce_end, reach
from variants.disk import ensure_room
from variants.errors import ClusterUnavailable, Conflict, InvalidInput, StateUnavailable
from variants.figures import counted

STOP_S = 40.0
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
        self._interruption = Interruption(self._kill, lambda: self._deploying)
        self._claim = Claim(settings)
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
        self._claim.take_directory()
        try:
            left = clear_leftovers(settings)
            if left:
                self._say(f"ended {counted(left, 'process')} that an earlier, killed run had left")
            clear_files(settings)
            ensure_room(settings.run_dir, ROOM_BYTES)
            self._claim.take_ports()
        except (StateUnavailable, Conflict, KeyboardInterrupt):
            self._claim.release()
            raise
        try:
            # From here on `modelless down` has to find us, also while examples are being made.
            write_state(settings, os.getpid(), self._started.ids)
            self._interruption.ends_starts()
            # It imports while the catalog is looked after and Ray's own servers start.
            self._template = worker_template(settings)
        except KeyboardInterrupt:
            self.stop()
            raise

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
        self._interruption.ends_starts()
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
            self._claim.take_ports()  # once more: training and measuring may have taken minutes
        if not self._ray:
            self._begin()
        self._interruption.ends_in_order()
        with self._step("Ray Serve") as done:
            made = applications(settings, self._absent)
            self._deploying = True
            deploy(made, logs_place(settings), self._say)
            self._deploying = False
            until_running(made, self._interruption.is_told, self._say)
            if settings.ray_address and settings.gateway_nodes != "head":
                urls = [base_url(settings, node) for node in gateway_nodes()]
                self.url = next(iter(urls), self.url)
                self._reached = ReachedGateway(urls, answering(settings))
            self._remember()
            self._write_down()
            calm_serve()
            told = f"gateway, control loop, {workers}"
            done("interrupted" if self._interruption.is_told() else told)

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
            if self._interruption.is_told():  # Ray may have swallowed the exception
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
        if expected and not self._interruption.is_told():
            with self._step("Variants") as done:
                ready = self._until_loaded(expected, tasks)
                done(
                    "interrupted"
                    if self._interruption.is_told()
                    else f"{ready} of {expected} loaded"
                )
        if self._interruption.is_told():
            raise KeyboardInterrupt

    def _until_loaded(self, expected: int, tasks: Collection[str]) -> int:
        ask = index_reader(self._settings, self.url)
        ready = until_loaded(ask, expected, tasks, self._interruption.wait)
        if not ready and not self._interruption.is_told():
            raise ClusterUnavailable(
                f"no variant was loaded within {READY_S:,.0f} s;{complaints_of(self._settings)}"
                f" the logs are in {logs_place(self._settings)}"
            )
        return ready

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
            if self._interruption.wait(WATCH_S):
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

    def _kill(self) -> None:
        """End everything at once, this process as well."""
        self._say("killed on request; queries in flight are lost")
        with contextlib.suppress(psutil.Error):
            self._started.look()
        self._started.end()
        os._exit(130)

    # -- stop -----------------------------------------------------------------------------------

    @property
    def is_interrupted(self) -> bool:
        """Whether it was told to stop."""
        return self._interruption.is_told()

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
        self._interruption.tell()
        self._interruption.ends_in_order()  # a signal must not break off what ends processes
        with contextlib.suppress(psutil.Error):
            self._remember()
        # Without a raylet there is nothing to drain, and a call to Ray ends this process at once.
        if self._ray and not self._ray_has_ended():
            watchdog = threading.Timer(STOP_S, self._started.end)
            watchdog.daemon = True
            watchdog.start()
            # Gateways say so to whoever they cannot answer any more.
            with contextlib.suppress(StateUnavailable):
                asyncio.run(announce_end(self._settings.live_url))
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
        self._claim.release()

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
