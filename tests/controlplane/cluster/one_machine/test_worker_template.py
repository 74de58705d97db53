"""Ray's workers are forked from a process that has imported Ray, or else started as Ray does."""

import json
import marshal
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from controlplane.cluster.one_machine import template_process
from controlplane.cluster.one_machine.template_process import LAUNCHER, TemplateProcess
from controlplane.cluster.one_machine.worker_launcher import GO, TAKEN
from tests.integration.deployment import short_directory

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, signal, sys
print(json.dumps({
    "pid": os.getpid(), "parent": os.getppid(), "group": os.getpgrp(), "folder": os.getcwd(),
    "arguments": sys.argv[1:], "asked": os.environ["ASKED"], "given": "ONLY_HERE" in os.environ,
    "ray": "ray.serve" in sys.modules, "name": __name__,
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "child": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
    "file": os.read(int(sys.argv[1]), 20).decode(),
}), flush=True)
"""
WORKERS = """
import os, sys
from pathlib import Path
from controlplane.cluster.one_machine.single_machine import bare_ray
from controlplane.cluster.processes.ray_processes import ray_environment, worker_template
from controlplane.settings import load_settings
settings = load_settings()
(settings.state_dir / "ray.token").write_text("0" * 64)
os.environ.update(ray_environment(settings))
template = worker_template(settings)
import ray
with bare_ray(template):
    ray.init(
        address="local", num_cpus=2, include_dashboard=False, log_to_driver=False,
        object_store_memory=80 * 2**20, _temp_dir=str(settings.state_dir / "r"),
    )

@ray.remote(max_restarts=1, max_task_retries=1)
class One:
    def processes(self):
        return os.getpid(), os.getppid()

actors = [One.remote(), One.remote()]
before = ray.get([actor.processes.remote() for actor in actors])
os.kill(before[0][0], 9)
after = ray.get(actors[0].processes.remote())
assert {parent for _, parent in (*before, after)} == {template.pid}, (before, after, template.pid)
assert len({pid for pid, _ in (*before, after)}) == 3
ray.shutdown()
template.end()
print("forked")
"""


@contextmanager
def a_template(**environment: str) -> Iterator[TemplateProcess]:
    """One that has imported Ray, for a raylet that is this process."""
    with short_directory() as folder:
        template = TemplateProcess(folder)
        template.start({**os.environ, "ONLY_HERE": "yes", **environment})
        template.serve(os.getpid())
        try:
            yield template
        finally:
            template.end()


@pytest.fixture(scope="module")
def template() -> Iterator[TemplateProcess]:
    with a_template() as template:
        yield template


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def launched(
    template: TemplateProcess, program: Path, *arguments: str, **environment: str
) -> dict[str, Any]:
    """What the program says of itself, and the launcher's process, that began as a raylet does."""
    asked = {"ASKED": "wörds", "RAY_JOB_ID": "01", "RAY_RAYLET_PID": str(os.getpid())}
    read, write = os.pipe()
    os.write(write, b"from a pipe")
    os.close(write)
    try:
        with subprocess.Popen(
            [sys.executable, *template.command, str(program), str(read), *arguments],
            env={**os.environ, **asked, **environment},
            stdout=subprocess.PIPE,
            cwd=program.parent,
            pass_fds=[read],
            process_group=0,
        ) as launcher:
            said, _ = launcher.communicate(timeout=120)
    finally:
        os.close(read)
    return {**json.loads(said), "launcher": launcher.pid, "code": launcher.returncode}


def test_a_forked_process_goes_on_as_the_one_that_was_started(
    template: TemplateProcess, program: Path
) -> None:
    said = launched(template, program, "--of=a raylet")
    assert (said["parent"], said["code"]) == (template.pid, 0)
    assert said["pid"] == said["group"] != said["launcher"]
    assert said["arguments"][1:] == ["--of=a raylet"]
    assert said["file"] == "from a pipe"
    assert (said["asked"], said["given"]) == ("wörds", False)
    assert said["folder"] == str(program.parent)
    assert said["name"] == "__main__"
    assert said["ray"]
    assert said["interrupt"]
    assert said["child"]


def test_what_was_ignored_and_blocked_stays_so(template: TemplateProcess, tmp_path: Path) -> None:
    program = tmp_path / "signals.py"
    program.write_text(
        "import os, signal, sys, json\n"
        "blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "print(json.dumps([os.getppid(), sorted(map(int, blocked)),"
        " signal.getsignal(signal.SIGINT) == signal.SIG_IGN]))\n"
    )
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        done = subprocess.run(
            [
                "sh",
                "-c",
                'trap "" INT; exec "$@"',
                "sh",
                sys.executable,
                *template.command,
                program,
            ],
            env={**os.environ, "RAY_RAYLET_PID": str(os.getpid())},
            stdout=subprocess.PIPE,
            check=True,
            timeout=120,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert json.loads(done.stdout) == [template.pid, [int(signal.SIGHUP)], True]


def named(template: TemplateProcess, folder: Path) -> tuple[int, str]:
    """The parent of a process that is launched, and what it calls the first thing that it names."""
    program = folder / "names.py"
    program.write_text(
        "import os\nfrom ray._raylet import ObjectID\n"
        "print(os.getppid(), ObjectID.from_random().hex(), flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, *template.command, program],
        env={**os.environ, "RAY_RAYLET_PID": str(os.getpid())},
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    parent, name = done.stdout.split()
    return int(parent), name.decode()


def test_forked_processes_name_things_differently(
    template: TemplateProcess, tmp_path: Path
) -> None:
    """Two of Ray's workers put the same object into its store, and a start stood still."""
    found = [named(template, tmp_path) for _ in range(3)]
    assert {parent for parent, _ in found} == {template.pid}
    assert len({name for _, name in found}) == 3


def test_where_random_numbers_were_drawn_before_nothing_is_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = tmp_path / "drawn.py"
    drawn.write_text("from ray._raylet import ObjectID\nObjectID.from_random()\n")
    monkeypatch.setattr("controlplane.cluster.one_machine.template_process.SERVE", drawn)
    with a_template() as template:
        found = [named(template, tmp_path) for _ in range(2)]
        assert {parent for parent, _ in found} == {os.getpid()}
        assert len({name for _, name in found}) == 2


def test_a_process_that_ends_leaves_nothing_behind(
    template: TemplateProcess, program: Path
) -> None:
    files = set(os.listdir(f"/proc/{template.pid}/fd"))
    for _ in range(3):
        said = launched(template, program)
        assert said["parent"] == template.pid
    # The kernel closes the files of what ends before it takes the process away.
    psutil.wait_procs(psutil.Process(template.pid).children(), timeout=60)
    assert not psutil.Process(template.pid).children()
    assert set(os.listdir(f"/proc/{template.pid}/fd")) == files


def test_where_ray_is_set_up_otherwise_a_process_is_started_as_ray_does(
    template: TemplateProcess, program: Path
) -> None:
    for other in ({"RAY_RAYLET_PID": "1"}, {"RAY_worker_register_timeout_seconds": "5"}):
        said = launched(template, program, **other)
        assert said["pid"] == said["launcher"]
        assert not said["ray"]
        assert said["file"] == "from a pipe"
    assert launched(template, program)["parent"] == template.pid


@pytest.mark.parametrize("raylet", [True, False])
def test_what_importing_ray_sets_may_stand_in_the_environment_or_not(
    program: Path, monkeypatch: pytest.MonkeyPatch, raylet: bool
) -> None:
    monkeypatch.delenv("RAY_CLIENT_MODE", raising=False)
    with a_template() as template:
        if raylet:  # whoever starts it has imported Ray in the meantime
            monkeypatch.setenv("RAY_CLIENT_MODE", "0")
        assert launched(template, program)["parent"] == template.pid
        assert launched(template, program, RAY_CLIENT_MODE="1")["parent"] == os.getpid()


def test_without_a_template_a_process_is_started_as_ray_does(program: Path) -> None:
    with short_directory() as folder:
        said = launched(TemplateProcess(folder), program)
    assert said["pid"] == said["launcher"]
    assert said["arguments"]


def test_whoever_waits_no_more_is_not_begun(template: TemplateProcess, tmp_path: Path) -> None:
    began = tmp_path / "began"
    program = tmp_path / "begins.py"
    program.write_text(f"open({str(began)!r}, 'w').close()\n")
    environment = {**os.environ, "RAY_RAYLET_PID": str(os.getpid())}
    request = marshal.dumps(
        {"environment": {os.fsencode(k): os.fsencode(v) for k, v in environment.items()}}
    )
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(template.command[-1])
        socket.send_fds(asked, [len(request).to_bytes(4, "big")], [0])
        asked.sendall(request)
        assert asked.recv(1) == TAKEN != GO
    assert launched(template, write(tmp_path))["parent"] == template.pid
    assert not began.exists()


def test_after_packages_changed_it_imports_anew(tmp_path: Path, program: Path) -> None:
    packages = tmp_path / "some-packages"
    packages.mkdir()
    path = os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH")]))
    with a_template(PYTHONPATH=path) as template:
        assert launched(template, program)["parent"] == template.pid
        (packages / "new.py").write_text("")
        said = launched(template, program)
        assert said["pid"] == said["launcher"]
        assert launched(template, program)["parent"] == template.pid


def test_it_ends_with_whoever_started_it_and_what_was_forked_goes_on(tmp_path: Path) -> None:
    program = tmp_path / "waits.py"
    program.write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    with (
        a_template() as template,
        subprocess.Popen(
            [sys.executable, *template.command, str(program)],
            env={**os.environ, "RAY_RAYLET_PID": str(os.getpid())},
            stdout=subprocess.PIPE,
        ) as launcher,
    ):
        assert launcher.stdout is not None
        forked = psutil.Process(int(launcher.stdout.readline()))
        assert forked.ppid() == template.pid
        template.end()
        assert not psutil.pid_exists(template.pid)
        try:
            assert forked.is_running()
            assert forked.status() != psutil.STATUS_ZOMBIE
        finally:
            forked.kill()


def test_one_that_was_killed_is_started_again_but_not_at_once(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_template() as template:
        first = template.pid
        assert not template.renew()
        psutil.Process(first).kill()
        os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
        assert not template.renew()
        assert launched(template, program)["parent"] == os.getpid()
        monkeypatch.setattr(template_process, "RENEW_S", 0.0)
        assert template.renew()
        assert template.pid != first
        assert launched(template, program)["parent"] == template.pid


def test_one_that_ended_by_itself_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_process, "RENEW_S", 0.0)
    with short_directory() as folder:
        broken = folder / "broken.py"
        broken.write_text("raise SystemExit(3)")
        monkeypatch.setattr(template_process, "TEMPLATE", broken)
        template = TemplateProcess(folder)
        template.start(dict(os.environ))
        template.serve(os.getpid())
        os.waitid(os.P_PID, template.pid, os.WEXITED | os.WNOWAIT)
        assert not template.renew()
        template.end()


@pytest.mark.parametrize("logs", [False, True])
def test_a_folder_in_which_nothing_is_left_goes_with_it(tmp_path: Path, logs: bool) -> None:
    """As below `/tmp`, where the state directory has a long path."""
    folder = tmp_path / "ray"
    template = TemplateProcess(folder)
    folder.mkdir()
    if logs:
        (folder / "session_1").mkdir()
    template.end()
    assert folder.exists() is logs


def test_what_is_sent_by_no_launcher_harms_nobody(template: TemplateProcess, program: Path) -> None:
    where = template.command[-1]
    for sent in (b"", b"\0\0\0\4nope", b"\xff\xff\xff\xff", b"\0\0\0\1" + marshal.dumps(None)):
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(where)
            asked.sendall(sent)
    assert launched(template, program)["parent"] == template.pid


def test_the_launcher_needs_no_packages() -> None:
    code = f"import runpy, sys; runpy.run_path({str(LAUNCHER)!r}); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE, check=True, text=True
    )
    assert "marshal" in done.stdout
    assert "typing_extensions" not in done.stdout


def test_rays_own_workers_are_forked_and_replaced() -> None:
    with short_directory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", WORKERS],
            env={**os.environ, "MODELLESS_STATE_DIR": str(folder)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.stdout.strip().endswith("forked"), done.stdout + done.stderr


def write(folder: Path) -> Path:
    path = folder / "program.py"
    path.write_text(PROGRAM)
    return path
