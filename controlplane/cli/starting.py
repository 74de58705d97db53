"""What ``modelless up`` does in its own process: prepare, start, serve and stop.

It prepares the catalog (the example, profiles that are missing on this machine's kinds), has the
supervisor start everything, says what serves and what is missing, and watches until it is told to
stop.
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import typer

from controlplane.cli.outcome import INTERRUPTED
from controlplane.cli.start_lines import err, hello, progress, step, tell, warn
from controlplane.cli.state_settings import given_here, note_given
from controlplane.settings import Settings
from variants.buckets import asked_name
from variants.errors import Conflict
from variants.figures import counted

if TYPE_CHECKING:
    from controlplane.profiling.due.profiles import DueProfile
    from controlplane.startup.example_rest import RestOfExample
    from controlplane.startup.supervisor import Supervisor
    from controlplane.views.fleet_status import KindStatus
    from variants.artifacts.protocol import ArtifactStore
    from variants.catalog.protocol import Catalog
    from variants.types import DeviceKindName, Task, Variant


MOST_REASONS = 5
"""So many reasons for measuring are told."""
OUTLIVED = "what Ray runs on other nodes goes on"


class Prepared(NamedTuple):
    """What is known before anything is started."""

    settings: Settings
    """With the kinds of the nodes, on a cluster."""
    wanted: "list[KindStatus]"
    """Workers of this machine's kinds."""
    others: "list[KindStatus]"
    """Of other kinds, which are stored as wanted."""
    tasks: "list[Task]"
    answers: "list[Variant]"
    """Of live and canary versions."""
    profiled: int
    """How many of them have a profile on a kind that comes first."""
    follows: tuple[str, ...] = ()
    """Models of the example that are made while queries are answered."""


def start_and_serve(settings: Settings, example: str | None) -> None:
    """Start, serve and stop in this process."""
    from controlplane.startup.presence import ready_path, tell_service_manager
    from controlplane.startup.settings_warnings import oversights
    from controlplane.startup.supervisor import Supervisor
    from workers.process.streams import forgive

    forgive()  # `--detach` writes what is said here into a file
    began = time.monotonic()
    supervisor = Supervisor(settings, step, warn)
    err.print(
        f"[bold]modelless[/] {_version()}   [dim]state in {settings.state_dir}[/]\n", soft_wrap=True
    )
    for oversight in oversights(settings):
        warn(str(oversight))
    ready = ready_path(settings)
    serving, rest = False, None
    try:
        supervisor.claim()
    except KeyboardInterrupt:
        err.print("\nInterrupted")
        raise typer.Exit(INTERRUPTED) from None
    try:
        note_given(settings, given_here())
        prepared = _prepare(settings, example, supervisor)
        _start(prepared, supervisor)
        _say_ready(prepared, supervisor.url, time.monotonic() - began)
        with contextlib.suppress(OSError):  # that it is there says enough
            ready.write_text(str(os.getpid()))
        tell_service_manager("READY=1")
        serving = True
        rest = _begin_rest(settings, prepared.follows)
        supervisor.watch()
    except KeyboardInterrupt:
        if not serving:
            err.print("\nInterrupted")
            raise typer.Exit(INTERRUPTED) from None
    except Exception:
        if serving or not supervisor.is_interrupted:
            raise
        err.print("\nInterrupted")  # a library that was interrupted has made an error of its own
        raise typer.Exit(INTERRUPTED) from None
    finally:
        began, left = time.monotonic(), ""
        with contextlib.suppress(KeyboardInterrupt):  # it ends anyway
            left = _say_stopping(settings, supervisor, serving=serving)
        if rest is not None:
            rest.end()
        try:
            supervisor.stop()
        except KeyboardInterrupt:  # in the moment before nothing breaks it off any more
            supervisor.stop()
        if left:
            err.print(f"Stopped in {time.monotonic() - began:,.1f} s; {left}")


def _say_stopping(settings: Settings, supervisor: "Supervisor", *, serving: bool) -> str:
    """Say that all is ended, if anything was begun. Returns what to say of what is left then."""
    from controlplane.startup.presence import ready_path, tell_service_manager

    begun = supervisor.has_begun
    left = OUTLIVED if supervisor.is_outlived else "nothing is left running"
    tell_service_manager("STOPPING=1")
    with contextlib.suppress(OSError):  # a full disk must not keep anything running
        ready_path(settings).unlink(missing_ok=True)
        if begun:
            err.print(f"\nStopping{': workers finish their queries' if serving else ''}")
    return left if begun else ""


def _prepare(settings: Settings, example: str | None, supervisor: "Supervisor") -> Prepared:
    """Look after the catalog, and find out what is to be started."""
    from controlplane.cluster.head import store_of
    from variants.catalog.sql import open_catalog

    with step("Catalog") as done:
        catalog = open_catalog(settings.catalog_url)
        known = catalog.snapshot()
        refuse_company(settings, catalog)
        tasks = len({asked_name(task) for task in known.tasks})
        done(_catalog_words(settings, len(known.variants), tasks))
    if settings.ray_address:
        settings = supervisor.join(tell)
    store = store_of(settings)
    follows = _make_example(settings, catalog, store) if example else ()
    _profile_wanted(settings, catalog, store)
    known = catalog.snapshot()
    begins = _begins(settings, catalog.inventory())
    kinds = {name for name, count in begins.items() if count or not settings.layouts}
    profiled = {(p.task, p.variant) for p in known.profiles if p.device_kind in kinds}
    wanted, others = wanted_workers(settings, catalog.inventory())
    catalog.close()
    answering = {
        (v.task, v.model, v.version) for v in known.versions if v.stage in ("live", "canary")
    }
    answers = [v for v in known.variants if (v.task, v.model, v.version) in answering]
    count = sum(variant.key in profiled for variant in answers)
    return Prepared(settings, wanted, others, list(known.tasks), answers, count, follows)


def _start(prepared: Prepared, supervisor: "Supervisor") -> None:
    """Start workers, gateway and control loop, and wait until variants are loaded."""
    from controlplane.views.fleet_status import asked_words

    settings = prepared.settings
    words = (
        asked_words(row, settings.sliced_by)
        for row in prepared.wanted
        if row.asked or not settings.layouts
    )
    supervisor.start(", ".join(words) or "workers of the nodes that join")
    for row in prepared.others:
        err.print(f"  [yellow]![/] {not_here(row)}", soft_wrap=True)
    asked = any(row.asked for row in prepared.wanted)
    tasks = {variant.task for variant in prepared.answers}
    supervisor.wait_for_variants(prepared.profiled if asked else 0, tasks)


def _say_ready(prepared: Prepared, url: str, seconds: float) -> None:
    """Where to go now, and why nothing may be answered yet."""
    from controlplane.startup.settings_warnings import followed_by_none

    settings, wanted, _, known, answers, profiled, follows = prepared
    at_terminal = sys.stdin is not None and sys.stdin.isatty()
    answered = {variant.task for variant in answers}
    asked = {asked_name(task): task for task in known if task.name in answered}
    texts = {name for name, task in asked.items() if task.text is not None}
    pairs = {name for name, task in asked.items() if task.text is not None and task.text.pairs}
    hello(settings, url, seconds, asked, texts, pairs=pairs, at_terminal=at_terminal)
    for warning in followed_by_none(settings, known):
        warn(str(warning))
    if follows:
        from controlplane.startup.example_rest import FOLLOW

        tell(f"{_listed(follows)} {FOLLOW}")
    if not wanted:
        warn("no node has joined yet: workers start when one does")
    elif not any(row.asked for row in wanted):
        warn(_none_wanted(wanted[0]))
    elif answers and not profiled:
        warn(
            "no variant has a profile on these device kinds: they answer once the control loop"
            " has had them measured (`modelless events list`)"
        )


def _begins(
    settings: Settings, stored: "Mapping[DeviceKindName, int]"
) -> "Mapping[DeviceKindName, int]":
    """How many workers of each kind come first: of layouts, the first of which anything is left."""
    from planner.layouts import possible

    if not settings.layouts:
        return settings.begins_with
    first = possible(settings.layouts, stored)[0]
    return {kind: first.get(kind, 0) for kind in settings.begins_with}


def wanted_workers(
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


def not_here(row: "KindStatus") -> str:
    """That workers are wanted of a kind that this start has none of, and what to do about it."""
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


def _make_example(
    settings: Settings, catalog: "Catalog", store: "ArtifactStore"
) -> tuple[str, ...]:
    """Train and register the digits family, once; return the models that can follow while queries
    are answered. On a cluster, whose nodes have them measured anyway, none does."""
    from controlplane.cluster.head import notes_of
    from controlplane.registry.example_models import ensure_digits, unregistered
    from controlplane.startup.example_rest import FIRST
    from variants.zoo.digits import MODELS

    missing = unregistered(catalog.snapshot())
    follows = () if settings.ray_address else tuple(one for one in missing if one not in FIRST)
    now = tuple(model for model in MODELS if model not in follows)
    began = time.monotonic()
    with progress("Example models") as show:
        made = ensure_digits(settings, catalog, store, show, notes=notes_of(settings), models=now)
    with step("Example", time.monotonic() - began) as done:
        count = sum(variant.task == "digits" for variant in catalog.snapshot().variants)
        repaired = sum(len(one.repaired) for one in made)
        how = "trained and measured on this machine" if made else "as registered before"
        if repaired:
            how = f"{repaired} damaged artifacts looked after; `modelless doctor` says what is left"
        done(f"task digits: {count} variants, {how}")
    return follows


def _begin_rest(settings: Settings, follows: Sequence[str]) -> "RestOfExample | None":
    """Begin to make the models of the example that follow, if any do."""
    from controlplane.startup.example_rest import RestOfExample

    if not follows:
        return None

    def now(sentence: str) -> str:
        return f"{datetime.now():%Y-%m-%d %H:%M:%S} {sentence}"

    rest = RestOfExample(settings)
    try:
        rest.begin(lambda said: tell(now(said)), lambda said: warn(now(said)))
    except OSError as error:
        warn(f"the rest of the example models cannot be made now: {error.strerror}")
    return rest


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _profile_wanted(settings: Settings, catalog: "Catalog", store: "ArtifactStore") -> None:
    """Measure what no query could be answered without, on the device kinds that this machine is
    sliced into now; the control loop has the rest measured meanwhile, and on a cluster all."""
    from controlplane.machine import machine_kinds, renew_kinds
    from controlplane.profiling.due.orders import candidates
    from controlplane.profiling.due.profiles import due_profiles
    from controlplane.profiling.first_profiles import measure_firsts, start_work
    from controlplane.profiling.remeasuring import measure_due
    from controlplane.timestamps import timestamp

    requests, known = catalog.profiling_requests(), catalog.snapshot()
    kinds = machine_kinds(settings)
    renew_kinds(catalog, kinds)
    if settings.ray_address:
        return
    work = start_work(due_profiles(known, kinds, requests), settings)
    catalog.request_profiling(work.requests(timestamp()))
    begins = {name for name, count in _begins(settings, catalog.inventory()).items() if count}
    firsts = [row[0] for row in candidates(work.meanwhile, known, begins)]
    measured = 0
    if work.before or firsts:
        for line in why_measured([*work.before, *firsts]):
            tell(line)
        began = time.monotonic()
        with progress("Profiles") as show:
            count, failures = measure_due(work.before, catalog, store, show)
            measured, failed = measure_firsts(work.meanwhile, begins, catalog, store, show)
        with step("Profiles", time.monotonic() - began) as done:
            there = dict.fromkeys(str(one.kind.name) for one in (*work.before, *firsts))
            count += measured
            done(f"{counted(count, 'variant')} measured on {', '.join(there)}")
        for failure in (*failures, *failed):
            err.print(f"    [yellow]{failure}[/]", soft_wrap=True)
    if left := len(work.meanwhile) - measured:
        tell(
            f"{left} {'more are' if measured else 'profiles are' if left != 1 else 'profile is'}"
            " measured while queries are answered (`modelless events list`)"
        )


def why_measured(due: "Sequence[DueProfile]") -> list[str]:
    """What is measured and why, a line for each reason; of many reasons the first."""
    from controlplane.profiling.due.profiles import NEVER

    alike: dict[str, list[str]] = {}
    for one in due:
        why = "never measured here" if one.reason == NEVER else one.reason
        again = " again" if why == one.reason else ""
        alike.setdefault(f"on {one.kind.name}{again}: {why}", []).append(one.variant.name)
    lines = [
        f"measuring {names[0] if len(names) == 1 else counted(len(names), 'variant')} {words}"
        for words, names in alike.items()
    ]
    if len(lines) > MOST_REASONS:
        lines[MOST_REASONS:] = [f"and {len(lines) - MOST_REASONS} more, each for its own reason"]
    return lines


def refuse_company(
    settings: Settings, catalog: "Catalog", pause: Callable[[float], None] = time.sleep
) -> None:
    """Refuse to start beside another installation.

    Raises:
        Conflict: one plans by the catalog, or has the live state.
    """
    from controlplane.controller.other_installations import (
        SILENT_S,
        ahead_s,
        may_be_behind_s,
        other_installation,
        owner_of,
        using,
        writes_on,
    )
    from workers.channel.secret import read_secret

    here = owner_of(read_secret(settings.secret_path), "up")
    behind_s = may_be_behind_s(settings.catalog_url)
    other = other_installation(here, catalog, time.time(), behind_s=behind_s)
    if other is not None and abs(ahead := ahead_s(catalog, time.time())) > SILENT_S:
        # By its clock it is heard for long after it is gone, or gone while it writes.
        clock = (
            f"its clock is {ahead:,.0f} s ahead of this machine's"
            if ahead > 0
            else f"it was heard {-ahead:,.0f} s ago by its clock, which may be behind"
        )
        tell(
            f"another installation plans, or has planned, by the same catalog; {clock}, so it is"
            f" watched for up to {SILENT_S:,.0f} s"
        )
        if not writes_on(catalog, pause):
            other = None
            catalog.acquire_leadership(here)  # else the control loop watches it once more
    if other is None and settings.redis_url:
        other = asyncio.run(using(settings.redis_url, here))
    if other is not None:
        raise Conflict(other)


def _catalog_words(settings: Settings, variants: int, tasks: int) -> str:
    from variants.catalog.database import kind_of

    kind = kind_of(settings.catalog_url)
    if not variants:
        return f"{kind}, empty"
    return f"{kind}: {counted(variants, 'variant')} for {counted(tasks, 'task')}"


def _version() -> str:
    from importlib.metadata import version

    return version("modelless")
