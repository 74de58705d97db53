"""``artifacts``: what is stored and no catalog names."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli.commands.residency.durations import duration_s
from controlplane.cli.confirmation import YesOption, confirm
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import clock, mib, table
from controlplane.cli.state_settings import StateDir, installed, read_settings
from controlplane.timestamps import timestamp_of
from variants.errors import InvalidInput
from variants.figures import counted

if TYPE_CHECKING:
    from controlplane.registry.leftover_artifacts import UnusedArtifacts
    from controlplane.settings import Settings
    from variants.catalog.protocol import Catalog

artifacts = typer.Typer(
    help="Stored artifacts that nothing registered uses.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@artifacts.callback()
def group() -> None:
    """Stored artifacts that nothing registered uses."""


@artifacts.command("unused")
def unused(
    older_than: Annotated[
        str,
        typer.Option("--older-than", metavar="TIME", help="Stored at least so long ago: 12h, 2d."),
    ] = "1d",
    also_used_by: Annotated[
        list[str] | None,
        typer.Option(
            "--also-used-by",
            metavar="DATABASE_URL",
            help="Another catalog whose artifacts are in the same place; repeat it for each.",
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Delete them.")] = False,
    alone: Annotated[
        bool,
        typer.Option("--alone", help="No other catalog keeps artifacts in the same place."),
    ] = False,
    yes: YesOption = False,
    state_dir: StateDir = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List the artifacts that no catalog names.

    Registrations that were killed may have left them. What was stored within the last day is not
    listed: a registration may be about to name it. In a bucket nobody knows which other catalogs
    keep artifacts there: --remove wants them named, or to be told that there are none.

    \b
    modelless artifacts unused
    modelless artifacts unused --also-used-by postgresql://db/other --remove
    """
    from controlplane.cluster.head import store_of
    from controlplane.registry.leftover_artifacts import delete_unused, look_for_unused

    settings = installed(read_settings(state_dir=state_dir))
    others = also_used_by or []
    if alone and others:
        raise InvalidInput(
            "--alone says that there is no other catalog, and --also-used-by names one"
        )
    least_s = duration_s("--older-than", older_than)
    store = store_of(settings)
    with ExitStack() as stack:
        catalogs = _opened(settings, others, stack)
        found = look_for_unused(store, catalogs, before_s=time.time() - least_s)
        gone: tuple[str, ...] = ()
        if remove and found.unused:
            _refuse_in_doubt(settings, found, told=alone or bool(others))
            many = counted(len(found.unused), "artifact")
            size_mib = mib(sum(one.size_bytes for one in found.unused) / 2**20)
            confirm(f"Delete {many} ({size_mib} MiB) at {_where(settings)}?", yes)
            gone = delete_unused(store, catalogs, found.unused)
    body = _body(found, gone)
    emit(body, output, lambda: _table(body, older_than, removed=remove))


def _opened(settings: "Settings", others: Sequence[str], stack: ExitStack) -> "tuple[Catalog, ...]":
    """The catalog of this installation, and others as they are."""
    from variants.catalog.database import is_newest, parse_url, shown
    from variants.catalog.sql import SqlCatalog, open_catalog

    for url in others:
        if not is_newest(url):
            raise InvalidInput(
                f"--also-used-by {shown(parse_url(url))}: it does not answer, or holds no catalog"
                " of this version of modelless"
            )
    catalogs: list[Catalog] = [open_catalog(settings.catalog_url)]
    catalogs += (SqlCatalog(url) for url in others)
    return tuple(stack.enter_context(closing(catalog)) for catalog in catalogs)


def _refuse_in_doubt(settings: "Settings", found: "UnusedArtifacts", *, told: bool) -> None:
    """Raise ``InvalidInput`` unless it is known what else uses the store."""
    from controlplane.cluster.head import notes_of

    notes = notes_of(settings)
    if not told and (notes is None or notes.shared()):
        known = "is not known" if notes is None else "is not known, and something does"
        raise InvalidInput(
            f"which other catalogs keep artifacts at {_where(settings)} {known}: name the database"
            " of each by --also-used-by, or say by --alone that there is none. Nothing was removed"
        )
    if not found.named:
        raise InvalidInput(
            f"none of {counted(found.stored, 'artifact')} at {_where(settings)} is named by the"
            " catalog, so they are hardly its own. Nothing was removed"
        )


def _where(settings: "Settings") -> str:
    from controlplane.cluster.head import sees_artifacts

    if settings.artifacts_url:
        return settings.artifacts_url.partition("?")[0]
    return str(settings.artifacts_dir) if sees_artifacts(settings) else "the cluster's head"


def _body(found: "UnusedArtifacts", gone: Sequence[str]) -> dict[str, Any]:
    """What was found, as plain JSON values."""
    removed = set(gone)
    return {
        "stored": found.stored,
        "named": found.named,
        "younger": found.younger,
        "unused": [
            {
                "artifact": one.digest,
                "size_bytes": one.size_bytes,
                "stored_at": timestamp_of(one.stored_s),
                "removed": one.digest in removed,
            }
            for one in found.unused
        ],
    }


def _table(body: dict[str, Any], older_than: str, *, removed: bool) -> None:
    rows = body["unused"]
    if rows:
        table(
            ("ARTIFACT", "MIB", "STORED", *(("REMOVED",) if removed else ())),
            [
                (
                    row["artifact"],
                    mib(row["size_bytes"] / 2**20),
                    clock(row["stored_at"]),
                    *((("yes" if row["removed"] else "no"),) if removed else ()),
                )
                for row in rows
            ],
            empty="",
        )
    said = f"{counted(body['stored'], 'artifact')} stored, {body['named']:,} of them named"
    if body["younger"]:
        said += f", {body['younger']:,} not named yet and stored within {older_than}"
    typer.echo(f"{said}; {len(rows):,} unused" if rows else f"{said}; none is unused")
