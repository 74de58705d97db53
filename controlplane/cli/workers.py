"""``workers``: who runs, what they have loaded, and how many there shall be."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from controlplane.cli.client import UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import mib, printable, table
from variants.errors import NotFound

Row = Mapping[str, Any]

workers = typer.Typer(
    help="Workers: what they have loaded, and how many there are.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@workers.command("list")
def list_workers(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """All workers, and where fewer or more are wanted than run."""
    with connect(url) as client:
        rows = client.get("/v1/workers")["workers"]
        kinds = client.get("/v1/inventory")["inventory"] if output is Output.TABLE else []
    emit(rows, output, lambda: _list(rows, kinds))


@workers.command("get")
def get_worker(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Name of a worker.")],
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """One worker and the variants on it."""
    with connect(url) as client:
        rows = client.get("/v1/workers")["workers"]
    row = next((row for row in rows if row["worker"] == worker), None)
    if row is None:
        known = ", ".join(row["worker"] for row in rows) or "none"
        raise NotFound(f"there is no worker {worker!r}; there are: {known}")
    emit(row, output, lambda: _replica_table(row))


@workers.command("scale")
def scale(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="A device kind, such as cpu-4.")],
    count: Annotated[
        int,
        typer.Argument(metavar="COUNT", min=0, help="How many there shall be; 0 ends them all."),
    ],
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask for a number of workers of a device kind.

    The number is kept and wins over MODELLESS_WORKERS. Workers that the machines have no room for
    stay pending.
    """
    with connect(url) as client:
        row = client.put(at("v1", "inventory", kind), {"count": count})
    emit(row, output, lambda: typer.echo(_wanted(row)))


# -- for people ---------------------------------------------------------------------------------


def _list(rows: Sequence[Row], kinds: Sequence[Row]) -> None:
    _worker_table(rows)
    differ = [row for row in kinds if row["wanted"] != row["running"]]
    if differ:
        typer.echo("\n" + "; ".join(map(_wanted, differ)))


def _wanted(row: Row) -> str:
    return printable(f"{row['device_kind']}: {row['wanted']} wanted, {row['running']} running")


def _worker_table(rows: Sequence[Row]) -> None:
    table(
        ["WORKER", "DEVICE", "STATE", ">BUSY", ">MIB", ">OF", ">READY", ">OTHER"],
        (
            [
                row["worker"],
                row["device_kind"],
                "draining" if row["draining"] else "serving",
                f"{100 * row['busy_ratio']:.0f} %",
                mib(row["reserved_mib"]),
                mib(row["memory_mib"]),
                str(Counter(one["state"] for one in row["replicas"])["ready"]),
                str(sum(one["state"] != "ready" for one in row["replicas"])),
            ]
            for row in rows
        ),
        empty="No worker has reported yet.",
    )


def _replica_table(row: Row) -> None:
    _worker_table([row])
    print()
    table(
        ["TASK", "VARIANT", "STATE", ">MIB", ">QUEUED", ">IDLE S", "MESSAGE"],
        (
            [
                one["task"],
                one["variant"],
                one["state"],
                mib(one["memory_mib"]),
                str(one["queued"]),
                f"{one['idle_s']:.0f}",
                one["message"],
            ]
            for one in row["replicas"]
        ),
        empty="It has nothing loaded.",
    )
