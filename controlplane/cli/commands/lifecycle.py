"""``modelless up`` and ``down``."""

import contextlib
import os
import signal
import subprocess
import time
from typing import Annotated

import typer

from controlplane.cli.outcome import INTERRUPTED, NotRunning
from controlplane.cli.start_lines import err
from controlplane.cli.starting import start_and_serve
from controlplane.cli.state_settings import StateDir, read_settings
from controlplane.settings import Settings
from variants.errors import Conflict, InvalidInput
from variants.figures import counted

Port = Annotated[
    int | None,
    typer.Option(metavar="PORT", help="Port of the gateway; else MODELLESS_PORT or 8000."),
]
Host = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Address to listen on; else MODELLESS_HOST or 127.0.0.1."),
]
Slices = Annotated[
    str | None,
    typer.Option(
        metavar="KINDS",
        help="Device kinds to split the machine into, such as 2xcpu-1,1xcpu-2; or, with | between "
        "them, several such lists, of which the plan picks one.",
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(metavar="N", help="Nodes of a cluster to wait for; else MODELLESS_NODES or 0."),
]
Workers = Annotated[
    int | None,
    typer.Option(metavar="N", help="Workers to split the cores into; else MODELLESS_WORKERS."),
]


def up(
    *,
    example: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Make and register example models first: digits."),
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Run in the background.")] = False,
    port: Port = None,
    host: Host = None,
    workers: Workers = None,
    slices: Slices = None,
    nodes: Nodes = None,
    state_dir: StateDir = None,
) -> None:
    """Start gateway, control loop and workers on this machine."""
    settings = read_settings(
        port=port, host=host, workers=workers, slices=slices, nodes=nodes, state_dir=state_dir
    )
    if example not in (None, "digits"):
        raise InvalidInput(f"there is no example {example!r}; there is: digits")
    if detach:
        _detach(settings, example)
    else:
        start_and_serve(settings, example)


def down(*, state_dir: StateDir = None) -> None:
    """Stop what runs on this state directory; queries in flight are answered first."""
    from controlplane.startup import state_directory, supervisor
    from controlplane.startup.presence import running
    from controlplane.startup.processes import identified, is_alive

    settings = read_settings(state_dir=state_dir)
    state = running(settings)
    if state is None:
        left = state_directory.clear_leftovers(settings)
        if left:
            err.print(f"modelless had been killed; ended {counted(left, 'process')} that it left")
            return
        raise NotRunning(f"modelless is not running on {settings.state_dir}")
    pid = int(str(state["pid"]))
    process = identified((pid,))
    with err.status("Stopping"):
        with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + supervisor.STOP_S + 15
        while running(settings) is not None or any(map(is_alive, process)):
            if time.monotonic() > deadline:
                err.print(f"process {pid} does not end; kill it with `kill -9 {pid}`")
                raise typer.Exit(1)
            time.sleep(0.1)
    err.print("modelless has stopped")


def _detach(settings: Settings, example: str | None) -> None:
    """Start another process that runs on its own, and wait until it answers."""
    from controlplane.registry.child_process import COMMAND_LINE
    from controlplane.startup.presence import already_running, ready_path, running
    from controlplane.startup.state_directory import ROOM_BYTES, prepare
    from variants.disk import ensure_room

    state = running(settings)
    if state is not None:
        raise Conflict(already_running(settings, state))
    prepare(settings)
    ready, log = ready_path(settings), settings.run_dir / "up.log"
    ready.unlink(missing_ok=True)
    command = (*COMMAND_LINE, "up", *(("--example", example) if example else ()))
    with log.open("wb") as sink:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True
        )
    with err.status(f"Starting; the log is {log}"):
        while not ready.exists():
            if child.poll() is not None:
                told = log.read_text(errors="replace").strip()
                if "error: " not in told:  # perhaps because it could not be written
                    ensure_room(settings.run_dir, ROOM_BYTES)
                if child.returncode < 0:
                    by = signal.Signals(-child.returncode).name
                    told = f"{told}\nthe start was ended by {by}; nothing runs".strip()
                err.print(told or "the start ended without a word", markup=False, soft_wrap=True)
                raise typer.Exit(max(child.returncode, 1))
            try:
                time.sleep(0.1)
            except KeyboardInterrupt:  # the start was meant, not this command alone
                child.terminate()
                child.wait()
                err.print(log.read_text(errors="replace").strip(), markup=False, soft_wrap=True)
                raise typer.Exit(INTERRUPTED) from None
    err.print(log.read_text(errors="replace").strip(), markup=False, soft_wrap=True)
