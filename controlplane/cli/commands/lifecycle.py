"""``modelless up``, ``down`` and ``status``."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from controlplane.cli.commands.workers import node_news, nodes_of, places_of
from controlplane.cli.gateway_client import UrlOption, connect
from controlplane.cli.outcome import INTERRUPTED, NotRunning, Output, OutputOption, emit
from controlplane.cli.render import percent, printable, table, wanted_words
from controlplane.cli.start_lines import err, hello, out, progress, step, tell, warn
from controlplane.cli.state_settings import StateDir, read_settings
from controlplane.settings import Settings
from variants.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from controlplane.views.fleet_status import KindStatus
    from variants.artifacts.protocol import ArtifactStore
    from variants.catalog.protocol import Catalog
    from variants.types import DeviceKindName

Port = Annotated[
    int | None,
    typer.Option(metavar="PORT", help="Port of the gateway; else MODELLESS_PORT or 8000."),
]
Host = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Address to listen on; else only this machine's own."),
]
Slices = Annotated[
    str | None,
    typer.Option(
        metavar="KINDS", help="Device kinds to split the machine into, such as 2xcpu-1,1xcpu-2."
    ),
]
Nodes = Annotated[
    int | None,
    typer.Option(metavar="N", help="Nodes of a cluster to wait for before workers start; else 0."),
]
Workers = Annotated[
    int | None, typer.Option(metavar="N", help="Workers to split the cores into; else 1.")
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
        _run(settings, example)


def down(*, state_dir: StateDir = None) -> None:
    """Stop what runs on this state directory; queries in flight are answered first."""
    from controlplane.startup import state_directory, supervisor
    from controlplane.startup.presence import running

    settings = read_settings(state_dir=state_dir)
    state = running(settings)
    if state is None:
        left = state_directory.clear_leftovers(settings)
        if left:
            err.print(f"modelless had been killed; ended {left} processes that it left")
            return
        raise NotRunning(f"modelless is not running on {settings.state_dir}")
    pid = int(str(state["pid"]))
    with err.status("Stopping"):
        with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + supervisor.STOP_S + 15
        while running(settings) is not None:
            if time.monotonic() > deadline:
                err.print(f"process {pid} does not end; kill it with `kill -9 {pid}`")
                raise typer.Exit(1)
            time.sleep(0.1)
    err.print("modelless has stopped")


def status(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """What is running: workers, what they have loaded, and how well SLOs are met."""
    with connect(url) as client:
        found = {
            "url": client.url,
            "ready": client.ready(),
            "workers": client.get("/v1/workers")["workers"],
            "tasks": with_readiness(
                client.get("/v1/tasks")["tasks"], client.post("/v2/repository/index", {})
            ),
            "slo": client.get("/v1/slo")["tasks"],
            "clients": client.get("/v1/clients")["clients"],
            "plan": client.get("/v1/plan"),
            "advice": client.get("/v1/devices").get("advice", []),
            "nodes": nodes_of(client),
        }
    emit(found, output, lambda: _status_table(found))


def with_readiness(
    tasks: Sequence[Mapping[str, Any]], index: Sequence[Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Tasks, each with how many of its variants are loaded somewhere."""
    loaded = Counter(row["name"] for row in index if row["state"] == "READY")
    return [{**task, "loaded": loaded[task["name"]]} for task in tasks]


def _status_table(found: Mapping[str, Any]) -> None:
    plan = found["plan"]
    version = f"plan {plan['version']}" if plan["version"] else "no plan"
    ready = "ready" if found["ready"] else "stopping"
    out.print(f"[bold]modelless[/] at {found['url']}, {ready}, {version}")
    standing = plan["standing"]
    colour = {"as_planned": "green", "down": "red"}.get(standing["level"], "yellow")
    out.print(f"[{colour}]●[/] {escape(printable(standing['sentence']))}", soft_wrap=True)
    for row in standing["kinds"]:
        out.print(f"  [dim]{escape(wanted_words(row))}[/]", soft_wrap=True)
    if split := plan.get("split", ""):
        out.print(f"  [dim]{escape(printable(split))}[/]", soft_wrap=True)
    for sentence in plan.get("zones", ()):
        out.print(f"  [dim]{escape(printable(sentence))}[/]", soft_wrap=True)
    for sentence in (*node_news(found["nodes"]), *found["advice"]):
        out.print(f"  [yellow]![/] {escape(printable(sentence))}", soft_wrap=True)
    rows = []
    where, places = places_of(found["workers"])
    for worker, place in zip(found["workers"], places, strict=True):
        ready = sum(replica["state"] == "ready" for replica in worker["replicas"])
        rows.append(
            (
                worker["worker"],
                worker["device_kind"],
                *place,
                "draining" if worker["draining"] else "ready",
                str(ready),
                f"{worker['reserved_mib']:.0f} of {worker['memory_mib']:.0f} MiB",
                percent(worker["busy_ratio"]),
            )
        )
    out.print()
    columns = ("WORKER", "DEVICE", *where, "STATE", "VARIANTS", "MEMORY", "BUSY")
    table(columns, rows, empty="No worker is running.")
    if rules := sorted({worker.get("eviction", "") for worker in found["workers"]} - {""}):
        out.print(
            f"[dim]Where memory is short, variants leave by the rule {' or '.join(rules)}.[/]"
        )
    for worker in found["workers"]:
        for warning in worker.get("warnings", ()):
            err.print(f"{worker['worker']}: {warning}", markup=False, soft_wrap=True)
    asked = {row["task"]: row for row in found["slo"]}
    tasks = []
    for task in found["tasks"]:
        row = asked.get(task["name"])
        counts = [str(row[name]) for name in ("requests", "late", "refused")] if row else ["0"] * 3
        loaded = f"{task['loaded']} of {task['variants']}"
        tasks.append((task["name"], loaded, *counts, percent(row["attainment"]) if row else "-"))
    out.print()
    table(("TASK", "LOADED", "QUERIES", "LATE", "REFUSED", "SLO MET"), tasks, empty="No tasks.")
    if clients := found["clients"]:
        out.print()
        counted = ("asked", "answered", "refused")
        table(
            ("CLIENT", *(name.upper() for name in counted)),
            ((row["name"] or "-", *(str(row[name]) for name in counted)) for row in clients),
            empty="",
        )


def _run(settings: Settings, example: str | None) -> None:
    """Start, serve and stop in this process."""
    from controlplane.cluster.head import store_of
    from controlplane.startup.settings_warnings import oversights
    from controlplane.startup.supervisor import Supervisor
    from controlplane.views.fleet_status import asked_words
    from variants.catalog.sql import open_catalog
    from workers.process.streams import forgive

    forgive()  # `--detach` writes what is said here into a file
    began = time.monotonic()
    keeper = Supervisor(settings, step, warn)
    err.print(f"[bold]modelless[/] {_version()}   [dim]state in {settings.state_dir}[/]\n")
    for oversight in oversights(settings):
        warn(str(oversight))
    keeper.claim()
    serving = False
    try:
        with step("Catalog") as done:
            catalog = open_catalog(settings.catalog_url)
            known = catalog.snapshot()
            _refuse_company(settings, catalog)
            done(_catalog_words(settings, len(known.variants), len(known.tasks)))
        if settings.ray_address:
            settings = keeper.join(tell)
        store = store_of(settings)
        if example:
            _make_example(settings, catalog, store)
        _profile_wanted(settings, catalog, store)
        known = catalog.snapshot()
        begins = _begins(settings, catalog.inventory())
        kinds = {name for name, count in begins.items() if count or not settings.layouts}
        profiled = {(p.task, p.variant) for p in known.profiles if p.device_kind in kinds}
        wanted, others = _wanted_workers(settings, catalog.inventory())
        catalog.close()
        words = (
            asked_words(row, settings.sliced_by)
            for row in wanted
            if row.asked or not settings.layouts
        )
        keeper.start(", ".join(words) or "workers of the nodes that join")
        for row in others:
            err.print(f"  [yellow]![/] {_not_here(row)}", soft_wrap=True)
        answering = {
            (v.task, v.model, v.version) for v in known.versions if v.stage in ("live", "canary")
        }
        answers = [v for v in known.variants if (v.task, v.model, v.version) in answering]
        expected = sum(variant.key in profiled for variant in answers)
        asked = sum(row.asked for row in wanted)
        keeper.wait_for_variants(expected if asked else 0)
        tasks_asked = {variant.task for variant in answers}
        hello(settings, keeper.url, time.monotonic() - began, tasks_asked)
        if not wanted:
            warn("no node has joined yet: workers start when one does")
        elif not asked:
            warn(_none_wanted(wanted[0]))
        elif settings.ray_address and answers and not expected:
            warn(
                "no variant has a profile on these device kinds: they answer once the control loop"
                " has had them measured (`modelless events list`)"
            )
        with contextlib.suppress(OSError):  # that it is there says enough
            (settings.run_dir / "ready").write_text(str(os.getpid()))
        serving = True
        keeper.watch()
    except KeyboardInterrupt:
        if not serving:
            err.print("\nInterrupted")
            raise typer.Exit(INTERRUPTED) from None
    finally:
        begun = keeper.has_begun
        with contextlib.suppress(OSError):  # a full disk must not keep anything running
            (settings.run_dir / "ready").unlink(missing_ok=True)
            if begun:
                err.print("\nStopping: workers finish their queries")
        began = time.monotonic()
        keeper.stop()
        if begun:
            err.print(f"Stopped in {time.monotonic() - began:.1f} s; nothing is left running")


def _begins(
    settings: Settings, stored: "Mapping[DeviceKindName, int]"
) -> "Mapping[DeviceKindName, int]":
    """How many workers of each kind come first: of layouts, the first of which anything is left."""
    from planner.layouts import possible

    if not settings.layouts:
        return settings.begins_with
    first = possible(settings.layouts, stored)[0]
    return {kind: first.get(kind, 0) for kind in settings.begins_with}


def _wanted_workers(
    settings: Settings, stored: "Mapping[DeviceKindName, int]"
) -> "tuple[list[KindStatus], list[KindStatus]]":
    """Workers of this machine's kinds, and other kinds that are stored as wanted."""
    from controlplane.views.fleet_status import kind_statuses

    asked = {str(kind): count for kind, count in stored.items()}
    here = {str(name): count for name, count in _begins(settings, stored).items()}
    if settings.layouts:  # limited by what is stored, which is no number of workers by itself
        asked = {kind: count for kind, count in asked.items() if kind not in here}
    rows = {row.device_kind: row for row in kind_statuses(here, asked, ())}
    others = [row for kind, row in rows.items() if kind not in here and row.asked]
    return [rows[kind] for kind in here], others


def _not_here(row: "KindStatus") -> str:
    from controlplane.views.fleet_status import asked_words

    kind = row.device_kind
    return (
        f"{asked_words(row)} wanted too, and not deployed by this command; "
        f"`modelless workers scale {kind} 0` ends that"
    )


def _none_wanted(row: "KindStatus") -> str:
    return (
        "no query can be answered: 0 workers are stored by `modelless workers scale`; "
        f"`modelless workers scale {row.device_kind} 1` asks for one"
    )


def _make_example(settings: Settings, catalog: "Catalog", store: "ArtifactStore") -> None:
    """Train and register the digits family, once."""
    from controlplane.registry.example_models import ensure_digits

    began = time.monotonic()
    with progress("Example models") as show:
        made = ensure_digits(settings, catalog, store, show)
    with step("Example", time.monotonic() - began) as done:
        count = sum(variant.task == "digits" for variant in catalog.snapshot().variants)
        repaired = sum(len(one.repaired) for one in made)
        how = "trained and measured on this machine" if made else "as registered before"
        if repaired:
            how = f"{repaired} damaged artifacts looked after; `modelless doctor` says what is left"
        done(f"task digits: {count} variants, {how}")


def _profile_wanted(settings: Settings, catalog: "Catalog", store: "ArtifactStore") -> None:
    """Measure what has no true profile on the device kinds that this machine is sliced into now.

    On a cluster the control loop has it measured where workers run.
    """
    from controlplane.machine import changed_kinds, machine_kinds
    from controlplane.profiling.profiles import Cause, due_profiles, measure_due

    requests, known = catalog.profiling_requests(), catalog.snapshot()
    kinds = machine_kinds(settings)
    catalog.put_profiles((), changed_kinds(known.device_kinds, kinds))
    if settings.ray_address:
        return
    found = due_profiles(known, kinds, requests)
    pressing = [one for one in found if one.cause is not Cause.PREDICTED]
    if not pressing:
        return
    began = time.monotonic()
    with progress("Profiles") as show:
        measured, failures = measure_due(pressing, catalog, store, show)
    with step("Profiles", time.monotonic() - began) as done:
        causes = ", ".join(
            f"{n} {cause}" for cause, n in Counter(o.cause for o in pressing).items()
        )
        there = dict.fromkeys(str(one.kind.name) for one in pressing)
        done(f"{measured} variants measured on {', '.join(there)} ({causes})")
    for failure in failures:
        err.print(f"    [yellow]{failure}[/]", soft_wrap=True)


def _refuse_company(settings: Settings, catalog: "Catalog") -> None:
    from controlplane.controller.other_installations import other_installation, owner_of, using
    from workers.channel.secret import read_secret

    here = owner_of(read_secret(settings.secret_path), "up")
    other = other_installation(here, catalog, time.time())
    if other is None and settings.redis_url:
        other = asyncio.run(using(settings.redis_url, here))
    if other is not None:
        raise Conflict(other)


def _catalog_words(settings: Settings, variants: int, tasks: int) -> str:
    kind = "SQLite" if settings.catalog_url.startswith("sqlite") else "PostgreSQL"
    if not variants:
        return f"{kind}, empty"
    return f"{kind}: {variants} variants for {tasks} task{'s' if tasks != 1 else ''}"


def _version() -> str:
    from importlib.metadata import version

    return version("modelless")


def _detach(settings: Settings, example: str | None) -> None:
    """Start another process that runs on its own, and wait until it answers."""
    from controlplane.startup.presence import running
    from controlplane.startup.state_directory import ROOM_BYTES, prepare
    from variants.disk import ensure_room

    state = running(settings)
    if state is not None:
        raise Conflict(
            f"modelless is already running at {state['url']} (process {state['pid']});"
            " `modelless upgrade` replaces what runs by what is installed and set now,"
            " `modelless down` stops it"
        )
    prepare(settings)
    ready, log = settings.run_dir / "ready", settings.run_dir / "up.log"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "controlplane.cli.main", "up"]
    command += ["--example", example] if example else []
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
                err.print(told, markup=False, soft_wrap=True)
                raise typer.Exit(child.returncode or 1)
            try:
                time.sleep(0.1)
            except KeyboardInterrupt:  # the start was meant, not this command alone
                child.terminate()
                child.wait()
                err.print(log.read_text(errors="replace").strip(), markup=False, soft_wrap=True)
                raise typer.Exit(INTERRUPTED) from None
    told = log.read_text(errors="replace").strip().replace("Ctrl-C", "`modelless down`")
    err.print(told, markup=False, soft_wrap=True)
