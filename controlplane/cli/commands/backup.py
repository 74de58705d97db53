"""``backup`` and ``restore``: one file that holds catalog and artifacts."""

import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli import render
from controlplane.cli.outcome import DONE, REFUSED, Output, OutputOption, emit
from controlplane.cli.progress import ProgressOption, ProgressStyle, interruptible, shown
from controlplane.cli.state_settings import StateDir, installed, read_settings
from controlplane.timestamps import timestamp
from variants.errors import Conflict
from variants.figures import counted
from variants.types import Event

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.backups.archive import Summary
    from controlplane.building.types import Progress
    from controlplane.settings import Settings

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The backup, a tar file.")]


def backup(
    file: FileArgument,
    replace: Annotated[
        bool, typer.Option("--replace", help="Write over a file of that name.")
    ] = False,
    state_dir: StateDir = None,
    output: OutputOption = Output.TABLE,
    progress: ProgressOption = ProgressStyle.AUTO,
) -> None:
    """Copy catalog and artifacts into one file, also while queries are answered.

    The file holds no secret: they are made anew where it is restored. Settings are not in it.

    \b
    modelless backup modelless.tar
    modelless restore modelless.tar --state-dir /srv/modelless
    """
    from controlplane.backups.writing import write_backup
    from controlplane.cluster.head import store_of

    settings = installed(read_settings(state_dir=state_dir))
    began = time.monotonic()
    with interruptible("no backup was made"), shown(progress) as show:
        made = write_backup(
            file.expanduser().absolute(),
            settings.catalog_url,
            store_of(settings),
            keys=settings.client_keys_path,
            release=version("modelless"),
            replace=replace,
            told=_told("copied", show),
        )
    body = _body(made, file, time.monotonic() - began)
    emit(body, output, lambda: _say(f"Saved to {file}", body))
    raise typer.Exit(REFUSED if made.missing else DONE)


def restore(
    file: FileArgument,
    state_dir: StateDir = None,
    output: OutputOption = Output.TABLE,
    progress: ProgressOption = ProgressStyle.AUTO,
) -> None:
    """Fill an empty installation with what a backup holds; `modelless up` serves it afterwards.

    Nothing may run on the state directory, and nothing may be registered there. A backup of SQLite
    can be restored into PostgreSQL, and the reverse.
    """
    from controlplane.backups.reading import read_backup, remove_left
    from controlplane.cluster.head import store_of
    from controlplane.startup.presence import lock_path
    from controlplane.startup.state_directory import clear_leftovers, prepare, take_lock

    settings = read_settings(state_dir=state_dir)
    prepare(settings)
    # Held until the end: what is started meanwhile would use a catalog that is replaced below it.
    lock = take_lock(lock_path(settings))
    if lock is None:
        raise Conflict(
            f"modelless runs on {settings.state_dir}; stop it with `modelless down`, or name "
            "another directory with --state-dir"
        )
    began = time.monotonic()
    with (
        lock,
        interruptible("nothing was restored; it can be tried again"),
        shown(progress) as show,
    ):
        clear_leftovers(settings)
        remove_left(settings.run_dir)
        here = _kinds_here(settings)
        not_here: dict[str, int] = {}

        def takes(kind: str, workers: int) -> bool:
            if here is None or kind in here:
                return True
            if workers:
                not_here[kind] = workers
            return False

        found = read_backup(
            file.expanduser().absolute(),
            settings.catalog_url,
            store_of(settings),
            keys=settings.client_keys_path,
            scratch=settings.run_dir,
            told=_told("stored", show),
            takes=takes,
        )
        _note(settings.catalog_url, found, not_here)
    body = _body(found, file, time.monotonic() - began) | {"not_here": not_here}
    emit(body, output, lambda: _say_restored(settings, body))
    raise typer.Exit(REFUSED if found.missing else DONE)


def _kinds_here(settings: "Settings") -> set[str] | None:
    """The device kinds that this machine is divided into; None where nodes say which there are."""
    return None if settings.ray_address else {str(kind.name) for kind in settings.kinds}


def _say_restored(settings: "Settings", body: dict[str, Any]) -> None:
    _say(f"Restored to {settings.state_dir}", body)
    if not_here := body["not_here"]:
        here = ", ".join(sorted(_kinds_here(settings) or ()))
        typer.echo(f"  {_asked_elsewhere(not_here)}: this machine is divided into {here}")


def _asked_elsewhere(not_here: dict[str, int]) -> str:
    """What nobody misses here: ``2 workers cpu-1 were asked for there and are not here``."""
    words = [f"{counted(count, 'worker')} {kind}" for kind, count in sorted(not_here.items())]
    one = list(not_here.values()) == [1]
    return (
        f"{', '.join(words)} {'was' if one else 'were'} asked for there and"
        f" {'is' if one else 'are'} not wanted here"
    )


def _note(catalog_url: str, found: "Summary", not_here: dict[str, int]) -> None:
    """Leave word in the catalog: the workers and gateways that it remembers ran elsewhere."""
    from contextlib import closing

    from variants.catalog.sql import open_catalog

    said = f"from a backup that was made {found.made_at}"
    said += f" by modelless {found.release}; the workers and gateways of that time are not missed"
    if not_here:
        said += f"; {_asked_elsewhere(not_here)}"
    with closing(open_catalog(catalog_url)) as catalog:
        catalog.add_event(Event(at=timestamp(), kind="restored", subject="catalog", message=said))


def _told(what: str, show: "Callable[[Progress], None]") -> "Callable[[int, int], None]":
    from controlplane.building.types import Progress

    def told(done: int, total: int) -> None:
        # A tenth at a time: an installation may have thousands.
        if done == total or 10 * done // total > 10 * (done - 1) // total:
            show(Progress(step="artifacts", message=f"artifacts {what}", done=done, total=total))

    return told


def _body(summary: "Summary", file: Path, seconds: float) -> dict[str, Any]:
    told = asdict(summary) | {"missing": list(summary.missing)}
    return {"file": str(file), **told, "seconds": round(seconds, 3)}


def _say(what: str, body: dict[str, Any]) -> None:
    mib = render.mib(body["artifact_bytes"] / 2**20)
    held = f"{counted(body['tasks'], 'task')}, {counted(body['artifacts'], 'artifact')}"
    typer.echo(
        f"{what}: {held} ({mib} MiB), made "
        f"{render.clock(body['made_at'])} by modelless {body['release']}, "
        f"in {body['seconds']:,.1f} s"
    )
    for digest in body["missing"]:
        typer.echo(
            f"  the artifact {digest[:12]} was damaged or missing and is not in it; "
            "`modelless repair` says what it belongs to"
        )
