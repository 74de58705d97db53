"""``export``: what an installation knows, as the files that planning and simulating read.

The columns are the contract's (``controlplane.files``), so that `modelless simulate` plays what
runs: a catalog has the variants of live versions, with what their batches take in the median, and
demand and trace have what was asked of the gateways.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from controlplane.cli.commands.residency.durations import duration_s
from controlplane.cli.gateway_client import Client, UrlOption, at, connect
from controlplane.views.history import LONGEST_S, STEP_S
from variants.errors import InvalidInput
from variants.figures import counted

Row = Mapping[str, Any]
To = Annotated[
    Path | None,
    typer.Option("--to", metavar="FILE", help="Write it there; else to standard output."),
]

Last = Annotated[
    str,
    typer.Option(
        "--last", metavar="DURATION", help="How far back to go: 10m, 1h, which is the most."
    ),
]
OfTask = Annotated[str, typer.Option("--task", metavar="TASK", help="This one only, else all.")]

export = typer.Typer(
    help="Catalog, devices and what was asked as files, for `simulate` and `plan solve`.",
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


@export.command("demand")
def export_demand(
    to: To = None, last: Last = "10m", task: OfTask = "", url: UrlOption = ""
) -> None:
    """Queries a second by SLO class, in the mean of the last minutes."""
    with connect(url) as client:
        asked, floors = _asked(client, last, task)
    _write(demand_rows(asked, floors), to)


@export.command("trace")
def export_trace(to: To = None, last: Last = "1h", task: OfTask = "", url: UrlOption = "") -> None:
    """What was asked over the last hour, as a trace of rates."""
    with connect(url) as client:
        asked, floors = _asked(client, last, task)
    _write(trace_rows(asked, floors), to)


def _asked(client: Client, last: str, task: str) -> tuple[Row, dict[tuple[str, str], float]]:
    """What was asked, and the accuracies of variants that queries named.

    Raises:
        InvalidInput: nothing was, or ``last`` is no duration that is known.
    """
    seconds = duration_s("--last", last)
    if not STEP_S <= seconds <= LONGEST_S:
        raise InvalidInput(f"--last {last[:40]!r} is not from {STEP_S:g}s to 1h")
    query = {"seconds": f"{seconds:g}"} | ({"task": task} if task else {})
    asked = client.get(f"/v1/demand?{urlencode(query)}")
    if not any(rows for one in asked["classes"] for rows in one["rows"]):
        raise InvalidInput(f"nothing was asked in the last {last}, as far as gateways have told")
    named = {one["task"] for one in asked["classes"] if one["variant"]}
    floors = {
        (name, row["name"]): float(row["accuracy"])
        for name in sorted(named)
        for row in client.get(at("v1", "tasks", name, "variants"))["variants"]
    }
    pinned = sum(sum(filter(None, one["rows"])) for one in asked["classes"] if one["variant"])
    if pinned:
        typer.echo(
            f"note: {counted(pinned, 'row')} named a variant; here they ask for its accuracy",
            err=True,
        )
    return asked, floors


def demand_rows(asked: Row, floors: Mapping[tuple[str, str], float]) -> list[dict[str, object]]:
    """The rows of a demand file: what was asked in the mean.

    Args:
        floors: the accuracy of each variant that queries named, by task and variant.
    """
    rates: dict[tuple[str, float, float | None], float] = {}
    for one in asked["classes"]:
        key = (one["task"], one["latency_ms"], _floor(one, floors))
        known = [rows for rows in one["rows"] if rows is not None]
        rates[key] = rates.get(key, 0.0) + sum(known) / (len(known) * asked["step_s"])
    return [
        {"task": task, "qps": round(qps, 4), "latency_slo_ms": latency_ms, "min_accuracy": floor}
        for (task, latency_ms, floor), qps in rates.items()
        if qps > 0
    ]


def trace_rows(asked: Row, floors: Mapping[tuple[str, str], float]) -> list[dict[str, object]]:
    """The rows of a trace of rates, from the first query on; within a step they are even."""
    steps = range(len(asked["classes"][0]["rows"]))
    first = next(step for step in steps if any(one["rows"][step] for one in asked["classes"]))
    length = round(asked["step_s"])
    rates: dict[tuple[int, str, float, float | None], float] = {}
    for step in steps[first:]:
        for one in asked["classes"]:
            key = (step - first, one["task"], one["latency_ms"], _floor(one, floors))
            rates[key] = rates.get(key, 0.0) + (one["rows"][step] or 0) / length
    return [
        {
            "second": step * length + second,
            "task": task,
            "requests": round(rate, 4),
            "latency_slo_ms": latency_ms,
            "min_accuracy": floor,
        }
        for (step, task, latency_ms, floor), rate in rates.items()
        if rate > 0
        for second in range(length)
    ]


def _floor(one: Row, floors: Mapping[tuple[str, str], float]) -> float | None:
    if one["variant"]:
        return floors.get((one["task"], one["variant"]))
    floor = one["accuracy"]
    return None if floor is None else float(floor)


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
