"""``modelless upgrade``: what runs is replaced by what is installed and set now."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli.gateway_client import connect
from controlplane.cli.lasting_output import outliving_its_output
from controlplane.cli.outcome import INTERRUPTED, NotRunning
from controlplane.cli.start_lines import err, step, tell, warn
from controlplane.cli.state_settings import (
    StateDir,
    given_before,
    given_here,
    note_given,
    read_settings,
)
from controlplane.given_settings import PREFIX
from controlplane.settings import FILE, SECRETS, Settings, load_settings
from variants.errors import ClusterUnavailable, Conflict, ModellessError, StateUnavailable

if TYPE_CHECKING:
    from controlplane.startup.replacing.served import Serving

KEPT = (
    "host", "port", "grpc_port", "ray_address", "workers", "cores", "slices", "gpus", "gateways",
    "gateway_nodes", "listen_channel", "tls_cert", "tls_key", "elastic",
)  # fmt: skip
"""Settings that stay as what runs was started with: they belong to the process of `modelless up`,
or say how many of what there are."""


def upgrade(
    *,
    patience: Annotated[
        float,
        typer.Option(
            metavar="S", min=1, help="Seconds that a replacement may take until it serves."
        ),
    ] = 180.0,
    allow_gap: Annotated[
        bool,
        typer.Option(
            "--allow-gap", help="Go on also where nothing else answers for a task meanwhile."
        ),
    ] = False,
    every: Annotated[
        bool,
        typer.Option("--all", help="Replace also what has this release and settings already."),
    ] = False,
    state_dir: StateDir = None,
) -> None:
    """Replace workers, gateways and the control loop, one after another, while they serve."""
    from controlplane.startup.presence import running
    from controlplane.startup.state_directory import ROOM_BYTES
    from variants.disk import ensure_room

    settings = read_settings(state_dir=state_dir)
    state = running(settings)
    if state is None:
        raise NotRunning(
            f"modelless is not running on {settings.state_dir}; start it with `modelless up`"
        )
    ray = str(state.get("ray") or "")
    if not ray:
        raise Conflict(
            "what runs was started by a release that knows no upgrade, or is just starting;"
            " `modelless down` and `modelless up` once"
        )
    with only_one(settings.run_dir), outliving_its_output():
        ensure_room(settings.run_dir, ROOM_BYTES)  # without it no new one becomes healthy
        _upgrade(settings, ray, patience, allow_gap=allow_gap, every=every)


@contextlib.contextmanager
def only_one(run_dir: Path) -> Iterator[None]:
    """Hold the lock of `modelless upgrade`; the kernel gives it back whatever happens.

    Raises:
        Conflict: another one holds it: both would ask workers to leave at once.
    """
    from controlplane.startup.state_directory import take_lock

    lock = take_lock(run_dir / "upgrade.lock")
    if lock is None:
        raise Conflict("another `modelless upgrade` is replacing what runs; wait for its end")
    with lock:
        yield


def _upgrade(
    settings: Settings, ray: str, patience: float, *, allow_gap: bool, every: bool
) -> None:
    from controlplane.startup.presence import as_running

    keep({"ray_address": as_running(settings).ray_address})
    began = time.monotonic()
    replaced = 0
    try:
        replaced = _replaced(load_settings(), ray, patience, allow_gap=allow_gap, every=every)
    except KeyboardInterrupt:
        err.print("\nInterrupted: nothing was replaced")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        _leave_ray()
    err.print(f"\n{replaced} replaced in {time.monotonic() - began:,.0f} s")


class Stopped(Conflict):
    """What is being upgraded is being stopped."""


def pausing(settings: Settings) -> Callable[[float], None]:
    """Sleeps for some seconds, and notices when what runs is being stopped: Ray ends a process that
    has joined it without a word as soon as it is gone.

    Raises:
        Stopped: it is.
    """
    from controlplane.startup.presence import is_serving, running

    state = running(settings)
    served = state is not None and is_serving(settings, state)

    def pause(seconds: float) -> None:
        time.sleep(seconds)
        if served and state is not None and not is_serving(settings, state):
            raise Stopped(
                "what runs is being stopped: nothing more is replaced, and the next `modelless up`"
                " starts what is installed and set now"
            )

    return pause


@contextlib.contextmanager
def telling_what_stays() -> Iterator[None]:
    """Say what is left of an upgrade that ends within, after it began to replace."""
    try:
        yield
    except KeyboardInterrupt:
        err.print(
            "\nInterrupted: what was replaced stays, the others run on;"
            " `modelless upgrade` goes on from here",
            soft_wrap=True,
        )
        raise typer.Exit(INTERRUPTED) from None
    except Stopped:  # nothing stays
        raise
    except ModellessError:
        err.print(
            "  What was replaced stays, the others run on. Put it right and run"
            " `modelless upgrade` again; with the earlier code and settings it goes back.",
            soft_wrap=True,
        )
        raise


def _replaced(
    settings: Settings, ray: str, patience_s: float, *, allow_gap: bool, every: bool
) -> int:
    from controlplane.cluster.processes.ray_processes import join_ray

    join_ray(settings, ray)
    from controlplane.cluster.replicas import ServeReplicas
    from controlplane.machine import machine_kinds, renew_kinds
    from controlplane.startup.replacing.upgrade import Upgrade
    from controlplane.startup.replacing.upgraded_parts import gateways, parts
    from variants.catalog.sql import open_catalog
    from workers.process.release import release

    fleet = ServeReplicas()
    told = fleet.settings(gateways())
    if told is None:
        raise Conflict("no gateway says which settings it runs with; is it just starting?")
    refuse_other_secrets(settings, told.digests)
    for name in keep({name: told.values[name] for name in KEPT if name in told.values}):
        warn(f"{PREFIX}{name.upper()} stays as it was at the start: that needs a down and an up")
    given = given_before(settings, but=KEPT)
    os.environ.update(given)
    for name, value in given.items():
        tell(
            f"{name}={value} stays, which only the environment of an earlier command said; to"
            f" change it, set it here or in {settings.state_dir / FILE}"
        )
    settings = load_settings()
    note_given(settings, given | given_here())
    with step("Catalog") as done:
        done(migrated(settings))
    err.print(f"  To be: modelless {release()}, {changes(settings, told.values)}", soft_wrap=True)
    catalog = open_catalog(settings.catalog_url)
    live_url = settings.live_url
    try:
        work = Upgrade(
            fleet,
            _serving,
            lambda extra: _hold(live_url, extra),
            tell,
            time.monotonic,
            pausing(settings),
            patience_s=patience_s,
            allow_gap=allow_gap,
            every=every,
        )
        joined = _joined_kinds(settings)
        for kind in renew_kinds(catalog, machine_kinds(joined)):
            tell(
                f"a worker {kind.name} has {kind.memory_mib:,.0f} MiB"
                f" and costs {kind.usd_per_hour:g} USD per hour from now on"
            )
        found = parts(settings, joined, catalog.leader)
        with telling_what_stays():
            work.run(found)
    finally:
        catalog.close()
    return work.replaced


def _serving() -> "Serving":
    """What a gateway says; a connection for each question, so that it is one or another.

    Raises:
        ClusterUnavailable: it does not answer.
    """
    from controlplane.startup.replacing.served import serving

    try:
        with connect() as client:
            return serving(client.workers(), client.get("/v1/plan"))
    except ModellessError as error:
        raise ClusterUnavailable(error.message) from error


def changes(settings: Settings, told: Mapping[str, Any]) -> str:
    """Which settings are others than a gateway was started with, in words."""
    from controlplane.cluster.sending_settings import describe

    now = describe(settings, None).values
    usual = {name: field.default for name, field in Settings.model_fields.items()}
    # A setting that what runs did not have yet was as it is by default.
    before = {name: told.get(name, usual.get(name)) for name in now}
    changed = [
        f"{PREFIX}{name.upper()} {_shown(before[name])} -> {_shown(now[name])}"
        for name in sorted(now)
        if now[name] != before[name]
    ]
    return f"and {', '.join(changed)}" if changed else "with the same settings"


def _shown(value: object) -> str:
    return "empty" if value in ("", None) else str(value)


def keep(values: Mapping[str, Any]) -> list[str]:
    """Go by these settings, as all that is made here reads them from the environment.

    Returns the names of those that somebody has set otherwise.
    """
    # As they are sent to replicas, with what follows from others filled in.
    given, usual = load_settings(), Settings.model_fields
    own = given.resolved()
    changed = []
    for name, value in values.items():
        if getattr(own, name) != value:
            if getattr(given, name) != usual[name].default:
                changed.append(name)
            os.environ[f"{PREFIX}{name.upper()}"] = str(value)
    return changed


def refuse_other_secrets(settings: Settings, digests: Mapping[str, str]) -> None:
    """Secrets are told to all parts at once, or to none.

    Raises:
        Conflict: one has changed; it is named.
    """
    from controlplane.cluster.sending_settings import TOKEN_SETTING, token_was_changed
    from workers.channel.secret import digest, read_secret

    secret = read_secret(settings.secret_path)
    for name in SECRETS:
        if name == TOKEN_SETTING and token_was_changed(settings):
            continue
        if name in digests and digest(secret, name, getattr(settings, name)) != digests[name]:
            raise Conflict(
                f"{PREFIX}{name.upper()} is not what runs was started with: old and new parts would"
                " not find each other. `modelless down` and `modelless up` take it in; set it back"
                " only if the old one still holds"
            )


def migrated(settings: Settings) -> str:
    """Bring the tables up to date where processes of before go on beside that; say what was done.

    Raises:
        Conflict: they could not.
    """
    from variants.catalog.database import goes_on_beside, is_newest
    from variants.catalog.migrations import schema_versions
    from variants.catalog.sql import migrate

    present, newest = schema_versions(settings.catalog_url)
    if present == newest:
        return f"tables are as this release has them ({newest})"
    if is_newest(settings.catalog_url):
        return f"tables are at {present}; those that know {newest} go on beside them"
    if present is not None and not goes_on_beside(present, newest):
        raise Conflict(
            f"the catalog's tables are at {present} and this release needs {newest}, which what"
            " runs may not be able to use; `modelless down`, then `modelless up`"
        )
    migrate(settings.catalog_url)
    return f"tables added to: {present} to {newest}, what runs goes on beside them"


def _joined_kinds(settings: Settings) -> Settings:
    """The same with the device kinds that joined since the start."""
    from controlplane.live_state import opened

    async def seen() -> Mapping[str, Any] | None:
        async with opened(settings.live_url) as live:
            return await live.nodes()

    with contextlib.suppress(StateUnavailable):
        return settings.as_seen(asyncio.run(seen()))
    return settings


def _hold(live_url: str, extra: Collection[str]) -> None:
    """Have one more of each of these run for some seconds; of none, at once."""
    from controlplane.live_state import opened

    async def write() -> None:
        async with opened(live_url) as live:
            await (live.put_replacing(sorted(extra)) if extra else live.end_replacing())

    with contextlib.suppress(StateUnavailable):  # it ends by itself, or is not begun
        asyncio.run(write())


def _leave_ray() -> None:
    import sys

    ray = sys.modules.get("ray")
    if ray is not None and hasattr(ray, "is_initialized") and ray.is_initialized():
        ray.shutdown()
