"""Looking at what there is: ``models``, ``variants``, ``plan``.

Each is a group with ``list`` and, where one thing has a name, ``get``. ``-o json`` and ``-o yaml``
print what the control API sends, unchanged: a list for ``list``, an object for ``get``.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controlplane.cli.commands.models.answer_words import answer_words
from controlplane.cli.commands.models.build import build
from controlplane.cli.commands.models.judge import judge
from controlplane.cli.commands.models.variant_table import (
    LIVE,
    live_cells,
    said_accuracy,
    variant_table,
)
from controlplane.cli.commands.names import (
    AnyTaskArgument,
    ModelArgument,
    TaskArgument,
    VariantArgument,
)
from controlplane.cli.commands.planning.solve import solve
from controlplane.cli.gateway_client import UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import (
    clock,
    clock_cell,
    details,
    interval,
    joules,
    mib,
    ms,
    note,
    percent,
    rate,
    table,
    wanted_words,
    what_is_new,
)
from variants.figures import counted

TaskOption = Annotated[str | None, typer.Option("--task", metavar="TASK", help="The same as TASK.")]
Row = Mapping[str, Any]
MOST_TICKS = 1_000
BUSY = ">BUSY MS"
"""Of the same where one batch follows on another, which plans count with."""
OF_BUSY = (
    "LIVE is of the batches of now, which come after pauses where little is asked. BUSY is of those"
    " that follow on one another, by which it is counted what workers could serve; ± is its"
    " standard deviation."
)


SHARE = (
    "Share when full: of the worker's time, as the plan divides it where more is asked for than it"
    " can do."
)


def _group(help: str) -> typer.Typer:
    return typer.Typer(help=help, no_args_is_help=True, rich_markup_mode=None)


models = _group("Models and their versions.")
variants = _group("Variants: accuracy, latency, price and memory.")
plan = _group("The plan and its reasons, or one for a demand from files.")


@models.command("list")
def list_models(
    of: AnyTaskArgument = None,
    task: TaskOption = None,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """All models, or those of a task."""
    task = of or task
    with connect(url) as client:
        rows = client.get(at("v1", "tasks", task, "models") if task else "/v1/models")["models"]
    emit(rows, output, lambda: _version_table(rows))


@models.command("get")
def get_model(
    task: TaskArgument,
    model: ModelArgument,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """One model with its versions."""
    with connect(url) as client:
        row = client.get(at("v1", "models", task, model))
    emit(row, output, lambda: _version_table([row]))


@variants.command("list")
def list_variants(
    task: AnyTaskArgument = None,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Variants, fastest first; `*` marks those that no other one beats.

    A latency with `~` was predicted; one with `?` was measured before this machine changed.
    """
    with connect(url) as client:
        names = [task] if task else _own_names(client.get("/v1/tasks")["tasks"])
        rows = [
            row
            for name in names
            for row in client.get(at("v1", "tasks", name, "variants"))["variants"]
        ]
    emit(rows, output, lambda: variant_table(rows))


@variants.command("get")
def get_variant(
    task: TaskArgument,
    variant: VariantArgument,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """One variant, with its latency for each batch size."""
    with connect(url) as client:
        row = client.get(at("v1", "variants", task, variant))
        profiles = client.get("/v1/profiles", task=task, variant=variant)["profiles"]
    emit({**row, "profiles": profiles}, output, lambda: _variant_details(row, profiles))


@plan.command("get")
def get_plan(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """The newest plan, with its reasons."""
    with connect(url) as client:
        row = client.get("/v1/plan")
    emit(row, output, lambda: _plan_details(row))


@plan.command("list")
def list_ticks(
    limit: Annotated[
        int, typer.Option(min=1, max=MOST_TICKS, metavar="N", help="At most so many.")
    ] = 20,
    every: Annotated[
        bool, typer.Option("--all", help="Also those in which nothing did but rates.")
    ] = False,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Turns of the control loop in which something changed, newest first.

    Of each the table has the reasons that the turn below it has not; `-o json` has all.
    """
    with connect(url) as client:
        # One more, so that the table knows what is new in the last one.
        many = min(limit + 1, MOST_TICKS)
        rows = client.get("/v1/ticks", limit=many, changes=None if every else True)["ticks"]
    emit(rows[:limit], output, lambda: _tick_table(rows, limit))


plan.command("solve")(solve)
variants.command("build")(build)
variants.command("judge")(judge)


# -- for people ---------------------------------------------------------------------------------


def _own_names(tasks: list[Row]) -> list[str]:
    """All tasks, but for the shared names of buckets, which have no variants of their own."""
    return [row["name"] for row in tasks if row.get("lengths") is None]


def _version_table(rows: list[Row]) -> None:
    table(
        ["TASK", "MODEL", ">VERSION", "STAGE", ">VARIANTS", "REGISTERED (UTC)"],
        (
            [
                version["task"],
                row["model"],
                str(version["version"]),
                version["stage"],
                str(len(version["variants"])),
                clock_cell(version["created_at"]),
            ]
            for row in rows
            for version in row["versions"]
        ),
        empty="There are no models; `modelless register` adds one.",
    )


def _variant_details(row: Row, profiles: list[Row]) -> None:
    details(
        [
            ("variant", row["name"]),
            ("model version", f"{row['model_version']} ({row['stage']})"),
            ("runtime", f"{row['runtime']}, {row['precision']}"),
            (
                "accuracy",
                f"{percent(row['accuracy'])} on {counted(row['accuracy_rows'], 'row')}"
                f"{interval(row)}",
            ),
            ("live accuracy", said_accuracy(row) or "-"),
            *([("answers", said)] if (said := answer_words(row.get("answers"))) else []),
            ("as in fp32", "-" if row["agreement"] is None else percent(row["agreement"])),
            ("options", ", ".join(f"{k}={v}" for k, v in row["options"].items()) or "-"),
            ("note", row["note"] or "-"),
            *(
                ("measured", _measured(profile))
                for profile in profiles
                if profile.get("measured_at")
            ),
            *(
                ("stale", f"{device['stale']}, on {device['device_kind']}")
                for device in row["devices"]
                if device.get("stale")
            ),
            ("size", f"{mib(row['size_bytes'] / 2**20)} MiB"),
            ("artifact", row["artifact"]),
        ]
    )
    _points(profiles)


def _points(profiles: list[Row]) -> None:
    """What was measured and seen of each batch size, with the columns that have something."""
    points = [point for one in profiles for point in one["points"]]
    energy = any(point.get("energy_j") is not None for point in points)
    live = any(point.get("live_ms") is not None for point in points)
    busy = any(point.get("busy_ms") is not None for point in points)
    print()
    table(
        [
            *("DEVICE", ">BATCH", ">P50 MS", ">P95 MS", ">P99 MS"),
            *(LIVE if live else ()),
            *((BUSY,) if busy else ()),
            ">ROWS/S",
            *([">J"] if energy else []),
            "KNOWN",
        ],
        (
            [
                profile["device_kind"],
                str(point["batch_size"]),
                ms(point["p50_ms"]),
                ms(point["p95_ms"]),
                ms(point["p99_ms"]),
                *(live_cells(point) if live else ()),
                *((_busy(point),) if busy else ()),
                rate(1_000 * point["batch_size"] / max(point["p50_ms"], 1e-3)),
                *([joules(point["energy_j"])] if energy else []),
                f"within {100 * point['error']:.0f} %" if point["error"] else profile["source"],
            ]
            for profile in profiles
            for point in profile["points"]
        ),
        empty="It has no profile.",
        alike=("DEVICE", "KNOWN"),
        spare=(LIVE[1], ">P99 MS"),
    )
    if busy:
        print()
        note(OF_BUSY)


def _busy(point: Row) -> str:
    """``13 ± 5 %``: what it takes where one batch follows on another, and how sure that is."""
    busy_ms = point.get("busy_ms")
    return "-" if busy_ms is None else f"{ms(busy_ms)} ± {100 * point['busy_error']:.0f} %"


def _measured(profile: Row) -> str:
    """``cpu-2: 2026-01-01 12:00:00 on node-3 (10.0.0.3)``."""
    words = f"{profile['device_kind']}: {clock(profile['measured_at'])}"
    words += f" on {profile['measured_on']}" if profile.get("measured_on") else ""
    words += ", beside other work" if profile.get("beside_load") else ""
    return words + (", confirmed by no batch yet" if profile.get("unconfirmed") else "")


def _plan_details(row: Row) -> None:
    if not row["version"]:
        details([("now", row["standing"]["sentence"]), ("plan", "nothing has been planned yet")])
        return
    standing = row["standing"]
    details(
        [
            ("now", standing["sentence"]),
            ("workers", "; ".join(map(wanted_words, standing["kinds"])) or "none"),
            *((("headroom", row["headroom"]["sentence"]),) if row.get("headroom") else ()),
            ("plan", f"version {row['version']}, epoch {row['epoch']}"),
            *(("rules" if i == 0 else "", text) for i, text in enumerate(row.get("rules", ()))),
            ("made", clock(row["created_at"])),
            *(("why then" if i == 0 else "", text) for i, text in enumerate(row["explanation"])),
        ]
    )
    print()
    table(
        ["WORKER", "TASK", "VARIANT", ">SHARE WHEN FULL", "NOW"],
        (
            [
                one["worker"],
                one["task"],
                one["variant"],
                percent(one["share"]),
                one["state"].replace("_", " "),
            ]
            for one in row["placements"]
        ),
        empty="It places nothing.",
        alike=("WORKER", "NOW"),
    )
    if row["placements"]:
        print()
        note(SHARE)


def _tick_table(rows: list[Row], limit: int) -> None:
    reasons = [[str(why) for why in row["body"].get("explanation") or ()] for row in rows]
    table(
        ["AT (UTC)", ">PLAN", ">WORKERS", ">ACTIONS", "WHY"],
        (
            [
                clock_cell(row["at"]),
                str(row["plan_version"]),
                _count(row["body"], "workers"),
                _count(row["body"], "actions"),
                " ".join((*_changed(row, before), *why)),
            ]
            for row, before, why in zip(
                rows[:limit], (*rows[1:], None), what_is_new(reasons), strict=False
            )
        ),
        empty="The control loop has not turned yet.",
    )


def _changed(row: Row, before: Row | None) -> tuple[str, ...]:
    """What differs from the plan before; nothing where that one stayed, or was of old."""
    changes = row["body"].get("changes")
    if changes:
        return (f"Changed: {'; '.join(map(str, changes))}.",)
    stays = before is None or before["plan_version"] == row["plan_version"]
    return () if stays or changes is None else ("Only planned rates differ.",)


def _count(body: Row, name: str) -> str:
    """How many there are, in the tick's body or in its observation."""
    value = body.get(name, (body.get("observation") or {}).get(name))
    return str(len(value)) if isinstance(value, list | dict) else "-"
