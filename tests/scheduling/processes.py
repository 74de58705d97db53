"""Test processes that are forked from one that has collected the tests.

Importing what is tested, and collecting, takes 17 s of processor time, and half a gigabyte of
memory. With pytest-xdist each test process does that for itself. Here one process does it, and
becomes each test process, also one that replaces another that a test has ended. What xdist does
between its processes stays as it is: a test process sends what was said while tests were collected
when it begins, and it is told by xdist's scheduler which tests to run.

A fork has the thread only that forks. What a library's other threads were to do is waited for for
ever in it, as where scikit-learn trains trees. So where collecting has started threads, each
process that is forked becomes a fresh one instead, which collects by itself (``alone``), and which
threads these are is said.

``use`` is called in the process that gives out the tests. The others are here what
``tests.workers.forking`` asks for (``prepare``, ``become``) and what runs in a test process
instead of ``xdist.remote`` (``run``).
"""

import atexit
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import execnet
import pytest
from _pytest.config import _prepareconfig
from _pytest.tmpdir import TempPathFactory
from execnet.gateway_base import Popen2IO, get_execmodel, init_popen_io, serve

from tests.workers.forking import ROOT, Begun, Server

MODEL = "main_thread_only"
"""How xdist has execnet run what it sends: tests are run by the main thread."""


def use(config: pytest.Config, specs: Sequence[execnet.XSpec]) -> None:
    """Have xdist fork its processes; from its hook ``pytest_xdist_setupnodes``."""
    manager = config.pluginmanager.getplugin("dsession").nodemanager
    said = {
        "args": [str(one) for one in config.invocation_params.args],
        "folder": str(config.invocation_params.dir),
        "path": sys.path,
        "input": {
            "workerid": "?",
            "workercount": len(specs),
            "testrunuid": manager.testrunuid,
            "mainargv": sys.argv,
        },
    }
    server = Server(__name__, json.dumps(said), one_thread=False)
    manager.group = Forks(server, specs)
    config.add_cleanup(server.close)


class Forks(execnet.Group):
    """What execnet makes processes by: here they are forked."""

    def __init__(self, server: Server, specs: Sequence[execnet.XSpec]) -> None:
        super().__init__(execmodel=MODEL)
        self._server = server
        for spec in specs:  # they have the names that another group gave them
            spec.id = None
            self.allocate_id(spec)

    def makegateway(self, spec: execnet.XSpec | str | None = None) -> execnet.Gateway:
        """Fork a test process."""
        assert isinstance(spec, execnet.XSpec)
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        asked = self._server.start([spec.id], [theirs_in, theirs_out])
        for one in (theirs_in, theirs_out):
            os.close(one)
        io = Connection(asked.result(), ours_in, ours_out, self.execmodel)
        gateway = execnet.Gateway(io, spec)
        gateway.spec = spec
        self._register(gateway)
        return gateway


class Connection(Popen2IO):
    """How execnet talks to a process, and ends it."""

    def __init__(self, begun: Begun, write: int, read: int, model: Any) -> None:
        super().__init__(os.fdopen(write, "wb"), os.fdopen(read, "rb"), model)
        self._begun = begun

    def wait(self) -> int:
        return self._begun.ended.result()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._begun.pid, signal.SIGKILL)


class Kept:
    """A channel to nobody yet, which keeps what is said."""

    def __init__(self) -> None:
        self.gateway = self
        self.execmodel = get_execmodel(MODEL)
        self.said: list[object] = []

    def send(self, message: object) -> None:
        self.said.append(message)


_stderr = os.dup(2)
"""What the process that is forked was given; in one that it becomes there is none at first."""
_collected: list[tuple[pytest.Session, Any]] = []
"""What ``prepare`` has made for the processes that are forked."""
_told: list[str] = []
"""With what, if each of them has to do it anew."""


STARTED = pytest.StashKey[list[str]]()
"""Which other threads there were when tests had been collected, in what pytest keeps."""


def prepare(told: str) -> None:
    """Collect the tests for all processes, or find that each has to do it."""
    collect(told)
    if started := other_threads():
        _told.append(told)
        message = f"\nCollecting has started threads ({', '.join(started)}), which a fork lacks: "
        os.write(_stderr, f"{message}each test process collects by itself\n".encode())


def other_threads() -> list[str]:
    """The names of this process's threads but this one, of those without Python, too."""
    found = []
    for one in Path("/proc/self/task").iterdir():
        if one.name != str(threading.get_native_id()):
            with suppress(OSError):  # it has just ended
                found.append((one / "comm").read_text().strip())
    return found


def collect(told: str) -> None:
    """Collect the tests, as ``xdist.remote`` does."""
    said = json.loads(told)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    os.chdir(said["folder"])
    sys.path[:] = said["path"]
    config = _prepareconfig(said["args"], None)
    from xdist import remote  # only now: pytest changes its assertions when it imports it

    remote.setup_config(config, None)
    config._parser.prog = os.path.basename(said["input"]["mainargv"][0])
    config.workerinput = said["input"]  # type: ignore[attr-defined]
    config.workeroutput = {}  # type: ignore[attr-defined]
    interactor = remote.interactor = remote.WorkerInteractor(config, Kept())
    session = pytest.Session.from_config(config)
    config._do_configure()
    config.hook.pytest_sessionstart(session=session)
    config.hook.pytest_collection(session=session)
    _collected.append((session, interactor))
    # It ends with the process that started it, which Ctrl-C ends as well.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def become(arguments: list[str], given: Sequence[int]) -> None:
    """Be a test process: do what xdist says through these two files."""
    os.dup2(_stderr, 2)
    for told in _told:
        for one in given:
            os.set_inheritable(one, True)
        os.chdir(ROOT)
        code = f"from {__name__} import alone; alone()"
        files = [str(one) for one in given]
        os.execv(sys.executable, [sys.executable, "-c", code, told, *arguments, *files])
    _serve(arguments, given)


def alone() -> None:
    """Be a test process that was not forked."""
    told, name, *files = sys.argv[1:]
    collect(told)
    _serve([name], [int(one) for one in files])


def _serve(arguments: Sequence[str], given: Sequence[int]) -> None:
    [(session, _)] = _collected
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(_stderr, 2)
    _capture_anew(session.config)
    for ours, standard in zip(given, (0, 1), strict=True):
        os.dup2(ours, standard)
        os.close(ours)
    connection: Any = init_popen_io(get_execmodel(MODEL))
    serve(connection, id=f"{arguments[0]}-worker")
    atexit._run_exitfuncs()


def _capture_anew(config: pytest.Config) -> None:
    """Have what is printed go to files of this process, in place of those that all would share.

    What was imported may hold on to their objects, so these stay.
    """
    capture = config.pluginmanager.getplugin("capturemanager")._global_capturing
    for captured in (capture.out, capture.err) if capture else ():
        with suppress(AttributeError, OSError), tempfile.TemporaryFile(buffering=0) as fresh:
            os.dup2(fresh.fileno(), captured.tmpfile.fileno(), inheritable=False)


def run(channel: execnet.Channel) -> None:
    """Run tests as xdist says, and tell how they went."""
    [(session, interactor)] = _collected
    config = session.config
    os.setpgid(0, os.getpgid(os.getppid()))  # Ctrl-C is for all of them
    mine, _args, options, _path = channel.receive()
    os.environ["PYTEST_XDIST_TESTRUNUID"] = mine["testrunuid"]
    os.environ["PYTEST_XDIST_WORKER"] = mine["workerid"]
    os.environ["PYTEST_XDIST_WORKER_COUNT"] = str(mine["workercount"])
    config.workerinput.update(mine)  # type: ignore[attr-defined]
    config.option.basetemp = options.get("basetemp")
    config._tmp_path_factory = TempPathFactory.from_config(config, _ispytest=True)  # type: ignore[attr-defined]
    said = interactor.channel.said
    interactor.channel, interactor.workerid = channel, mine["workerid"]
    for message in said:
        channel.send(message)
    try:
        session.exitstatus = _outcome(session)
    finally:
        config.hook.pytest_sessionfinish(session=session, exitstatus=session.exitstatus)
        config._ensure_unconfigure()


def _outcome(session: pytest.Session) -> pytest.ExitCode:
    """Run the tests; what ``pytest.main`` would say of them."""
    config = session.config
    try:
        config.hook.pytest_runtestloop(session=session)
    except pytest.Session.Failed:
        return pytest.ExitCode.TESTS_FAILED
    except (KeyboardInterrupt, pytest.exit.Exception):
        excinfo = pytest.ExceptionInfo.from_current()
        config.hook.pytest_keyboard_interrupt(excinfo=excinfo)
        return pytest.ExitCode.INTERRUPTED
    except BaseException:
        config.notify_exception(pytest.ExceptionInfo.from_current(), config.option)
        return pytest.ExitCode.INTERNAL_ERROR
    if session.testsfailed:
        return pytest.ExitCode.TESTS_FAILED
    return pytest.ExitCode.OK if session.testscollected else pytest.ExitCode.NO_TESTS_COLLECTED


if __name__ == "__channelexec__":
    sys.modules["tests.scheduling.processes"].run(channel)  # type: ignore[name-defined]  # noqa: F821
