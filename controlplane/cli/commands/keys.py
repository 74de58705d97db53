"""``keys``: the keys of clients, made, listed and taken back."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from controlplane.access import client_keys, key_changes
from controlplane.access.client_keys import TOKEN, Role
from controlplane.cli.confirmation import YesOption, confirm
from controlplane.cli.gateway_client import UrlOption, connect
from controlplane.cli.known_everywhere import wait_until_known
from controlplane.cli.outcome import NotRunning, Output, OutputOption, emit
from controlplane.cli.render import WITHOUT_KEY, printable, table
from controlplane.cli.state_settings import StateDir, installed, is_elsewhere, read_settings
from variants.errors import ModellessError
from variants.figures import counted, duration

Row = Mapping[str, Any]
COUNTED = ("asked", "answered", "refused")
OWN_IS_OLDER = (
    "MODELLESS_API_TOKEN is still the older token here, so that this command has used it as well."
)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a key.")]

keys = typer.Typer(
    help="Keys of clients, which open queries and share what there is, or read the metrics; and "
    "the operator's token where it is changed.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@keys.command("list")
def list_keys(
    state_dir: StateDir = None, url: UrlOption = "", output: OutputOption = Output.TABLE
) -> None:
    """All keys, and what was asked by each while a gateway runs."""
    settings = read_settings(state_dir=state_dir)
    found = client_keys.read(settings.client_keys_path)
    asked, old_token = _counted(url) if found else (None, None)
    rows = [
        {
            "name": name,
            "weight": weight,
            "role": role,
            "keys": keys,
            # A gateway that has not read the file yet has been asked nothing by a new key.
            **{
                what: None
                if asked is None or role is not Role.QUERIES
                else asked.get(name, {}).get(what, 0)
                for what in COUNTED
            },
            "old_key": _old_key(name, asked, old_token),
        }
        for (name, weight, role), keys in {
            **Counter((key.name, key.weight, key.role) for key in found),
            ("", 1.0, Role.QUERIES): 0,
        }.items()
        if name or (asked and "" in asked)
    ]
    if old_token and client_keys.is_older_token(found, settings.api_token):
        typer.echo(OWN_IS_OLDER, err=True)
    emit(rows, output, lambda: _table(rows))


@keys.command("add")
def add_key(
    name: Name,
    weight: Annotated[
        float, typer.Option("--weight", metavar="W", help="Its share is in proportion to this.")
    ] = 1.0,
    role: Annotated[
        Role,
        typer.Option("--role", help="What it opens: queries, or /metrics alone, for Prometheus."),
    ] = Role.QUERIES,
    state_dir: StateDir = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a key. It is shown this once; the file keeps its digest.

    \b
    modelless keys add shop --weight 2
    """
    settings = read_settings(state_dir=state_dir)
    if is_elsewhere(settings):  # else it may be one that has not been started yet
        installed(settings)
    key = key_changes.add(settings.client_keys_path, name, weight, role)
    wait_until_known(settings)
    row = {"name": name, "weight": weight, "role": role, "key": key}
    emit(row, output, lambda: typer.echo(row["key"]))


@keys.command("rotate")
def rotate_key(
    name: Name,
    finish: Annotated[
        bool, typer.Option("--finish", help="Take the old key back; the new one stays.")
    ] = False,
    yes: YesOption = False,
    url: UrlOption = "",
    state_dir: StateDir = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Make a second key; the old one opens the same until --finish.

    On a terminal --finish asks before, where the old one was used since then. Share and counts
    stay the client's own. The key is shown this once. The name `api-token` makes a second one of
    MODELLESS_API_TOKEN, the operator's.

    \b
    modelless keys rotate shop
    modelless keys rotate shop --finish
    """
    settings = read_settings(state_dir=state_dir)
    file = settings.client_keys_path
    if finish:
        _ask_before(name, yes, url)
        key_changes.end_rotation(file, name)
        wait_until_known(settings)
        said = f"the old key of {name} is taken back"
        emit({"name": name}, output, lambda: typer.echo(printable(said)))
        return
    if name == TOKEN:
        key = key_changes.rotate_token(file, settings.api_token)
        wait_until_known(settings)
        told = (
            "Both tokens hold. Write this one to MODELLESS_API_TOKEN wherever the"
            f" old one stands, then end that one with `modelless keys rotate {TOKEN} --finish`."
        )
        typer.echo(told, err=True)
    else:
        key = key_changes.rotate(file, name)
        wait_until_known(settings)
    row = {"name": name, "key": key}
    emit(row, output, lambda: typer.echo(row["key"]))


@keys.command("remove")
def remove_key(
    name: Name,
    yes: YesOption = False,
    state_dir: StateDir = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Take a key back: gateways refuse it from then on.

    It is asked before on a terminal. A script is not: a key that somebody else has must go at once.
    """
    settings = read_settings(state_dir=state_dir)
    file = settings.client_keys_path
    known = any(key.name == name for key in client_keys.read(file))
    if known and sys.stdin.isatty():
        because = "whoever uses it is refused at once"
        if name == TOKEN:
            because = "MODELLESS_API_TOKEN holds again, as the gateways were started with it"
        confirm(f"Take the key {name} back?", yes, because=because, refused="it is still there")
    key_changes.remove(file, name)
    wait_until_known(settings)
    emit({"name": name}, output, lambda: typer.echo(printable(f"the key {name} is taken back")))


def _ask_before(name: str, yes: bool, url: str) -> None:
    """Say how the old key was used, and on a terminal ask, where it was. A script is not asked."""
    old = _old_key(name, *_counted(url))
    if old is None or old["used_at"] is None:
        return
    because = f"it was {_old_key_words(old)}; who uses it is refused within seconds"
    if not sys.stdin.isatty():
        typer.echo(printable(f"the old key of {name}: {because}"), err=True)
        return
    confirm(f"Take the old key of {name} back?", yes, because=because, refused="both hold")


def _counted(url: str) -> tuple[dict[str, Row] | None, Row | None]:
    """What the gateways have counted by name, and how the operator's older token is used; None
    while none runs."""
    try:
        with connect(url) as client:
            told = client.get("/v1/clients")
            return {row["name"]: row for row in told["clients"]}, told.get("old_token")
    except (NotRunning, ModellessError):
        return None, None


def _old_key(name: str, asked: Mapping[str, Row] | None, old_token: Row | None) -> Row | None:
    """How the older key of a name is used; None where it has one, or nothing is known."""
    if name == TOKEN:
        return old_token
    used: Row | None = (asked or {}).get(name, {}).get("old_key")
    return used


# -- for people ---------------------------------------------------------------------------------


def _table(rows: Sequence[Row]) -> None:
    changing = any(row["old_key"] for row in rows)
    shown = [
        [
            row["name"] or WITHOUT_KEY,
            row["role"] if row["keys"] < 2 else f"{row['role']}, {row['keys']} keys",
            f"{row['weight']:g}" if row["role"] == Role.QUERIES else "",
            *("" if row[what] is None else str(row[what]) for what in COUNTED),
            *([_old_key_words(row["old_key"])] if changing else ()),
        ]
        for row in rows
    ]
    heads = ["NAME", "ROLE", "WEIGHT", *(what.upper() for what in COUNTED)]
    table(
        [*heads, "OLD KEY"] if changing else heads,
        shown,
        empty="There are no keys; `modelless keys add NAME` makes one.",
    )


def _old_key_words(old: Row | None) -> str:
    """Whether `keys rotate NAME --finish` would refuse somebody."""
    if old is None:
        return ""
    if old["used_at"] is not None:
        count = counted(old["requests"], "request") if old.get("requests") else ""
        return f"used {duration(_since_s(old['used_at']))} ago" + (count and f", by {count}")
    return f"not used for {duration(_since_s(old['watched_since']))}"


def _since_s(at: str) -> float:
    return (datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds()
