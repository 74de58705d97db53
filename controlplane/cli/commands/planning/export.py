"""``export``: what an installation knows, as the files that planning and simulating read.

The columns are the contract's (``controlplane.files``), so that `modelless simulate` plays what
runs: a catalog has the variants of live versions, with what their batches take in the median.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.cli.gateway_client import Client, UrlOption, connect
from variants.errors import InvalidInput

Row = Mapping[str, Any]
To = Annotated[
    Path | None,
    typer.Option("--to", metavar="FILE", help="Write it there; else to standard output."),
]

export = typer.Typer(
    help="Catalog and devices as files, for `simulate` and `plan solve`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@export.command("catalog")
def export_catalog(to: To = None, url: UrlOption = "") -> None:
    """Live variants, with what was measured of them on each kind."""
    with connect(url) as client:
        rows = known_catalog(client)
    _write(rows, to)


@export.command("devices")
def export_devices(to: To = None, url: UrlOption = "") -> None:
    """The device kinds, and how many workers of each were asked for."""
    with connect(url) as client:
        kinds = client.get("/v1/devices")["devices"]
        inventory = client.get("/v1/inventory")["inventory"]
    _write(device_rows(kinds, inventory), to)


def known_catalog(client: Client) -> list[dict[str, object]]:
    """The rows of the catalog file of what a gateway knows."""
    tasks = [row["name"] for row in client.get("/v1/tasks")["tasks"]]
    variants = [
        row for task in tasks for row in client.get(f"/v1/tasks/{task}/variants")["variants"]
    ]
    return catalog_rows(variants, client.get("/v1/profiles")["profiles"])


def catalog_rows(variants: Iterable[Row], profiles: Iterable[Row]) -> list[dict[str, object]]:
    """The rows of a catalog file: of live versions, for each batch size that was profiled."""
    known = {(row["task"], row["name"]): row for row in variants if row["stage"] == "live"}
    return [
        {
            "task": profile["task"],
            "model": variant["model_version"],
            "variant": profile["variant"],
            "accuracy": variant["accuracy"],
            "device_kind": profile["device_kind"],
            "batch_size": point["batch_size"],
            "latency_ms": point["p50_ms"],
            "memory_mib": _counted_mib(variant, profile),
            "load_s": profile["load_s"],
            "energy_j": point.get("energy_j"),
        }
        for profile in profiles
        if (variant := known.get((profile["task"], profile["variant"]))) is not None
        for point in profile["points"]
    ]


def _counted_mib(variant: Row, profile: Row) -> object:
    """What plans count it with: without what the variants of a worker share."""
    devices = {one["device_kind"]: one["memory_mib"] for one in variant.get("devices", ())}
    return devices.get(profile["device_kind"], profile["memory_mib"])


def device_rows(kinds: Iterable[Row], inventory: Iterable[Row]) -> list[dict[str, object]]:
    """The rows of a devices file; kinds of which no worker was asked for count none.

    Those on which nothing was measured are left out: the catalog file knows nothing of them.
    """
    asked = {row["device_kind"]: row["asked"] for row in inventory}
    return [
        {
            "device_kind": kind["name"],
            "count": asked.get(kind["name"], 0),
            "memory_mib": kind["memory_mib"],
            "usd_per_hour": kind["usd_per_hour"],
            "idle_w": kind["idle_w"],
            "carbon_g_per_kwh": " ".join(map(str, kind["carbon_g_per_kwh"])),
        }
        for kind in kinds
        if kind.get("measured", True)
    ]


def _write(rows: Sequence[Row], to: Path | None) -> None:
    if not rows:
        raise InvalidInput("there is nothing to export: no variant was registered")
    text = planning_text(rows)
    if to is None:
        typer.echo(text, nl=False)
        return
    try:
        to.write_text(text)
    except OSError as error:
        raise InvalidInput(f"{to} cannot be written: {error.strerror}") from error


def planning_text(rows: Sequence[Row]) -> str:
    """Rows, at least one, as a planning file has them."""
    text = StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
