"""``workers``: which run, what they have loaded, how many are wanted; and ``drain``."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer

from controlplane.cli.commands.names import WorkerArgument
from controlplane.cli.commands.nodes import ASKED, DeadlineOption, Row, drains_words
from controlplane.cli.commands.residency.operator import WhyOption, operator
from controlplane.cli.gateway_client import Client, UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import mib, printable, table, wanted_words

AllowGapOption = Annotated[
    bool,
    typer.Option("--allow-gap", help="Of a worker: also where no other could answer meanwhile."),
]

workers = typer.Typer(
    help="Workers: what they have loaded, and how many there are.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@workers.command("list")
def list_workers(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """All workers, and where fewer or more are wanted than run."""
    with connect(url) as client:
        rows = client.workers()
        plan = client.get("/v1/plan") if output is Output.TABLE else {}
    emit(rows, output, lambda: _list(rows, plan))


@workers.command("get")
def get_worker(
    worker: WorkerArgument,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """One worker and the variants on it."""
    with connect(url) as client:
        row = client.get(at("v1", "workers", worker))
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
    stay pending, which is said.

    \b
    modelless workers scale cpu-4 3
    """
    with connect(url) as client:
        row = client.put(at("v1", "inventory", kind), {"count": count})
        kinds = [] if count else client.get("/v1/inventory")["inventory"]
    lack = row.get("lack", "")  # older: not told
    said = f"{wanted_words(row)}; not all can start: {lack}" if lack else wanted_words(row)
    if kinds and not any(one["asked"] for one in kinds):
        said += (
            "; no worker is wanted any more, so no query can be answered:"
            f" `modelless workers scale {kind} 1` asks for one"
        )
    emit(row, output, lambda: typer.echo(printable(said)))


@workers.command("drain")
def drain_worker(
    worker: WorkerArgument,
    allow_gap: AllowGapOption = False,
    why: WhyOption = "",
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Have a worker leave, and another take its place.

    It takes no more queries and answers those that it has, as with `modelless drain`.
    """
    with connect(url) as client:
        row = _drained(client, worker, allow_gap, why)
    emit(row, output, lambda: typer.echo(printable(_leaves(row))))


def drain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A worker; or a node: its id, the beginning of it, its host name or its address.",
        ),
    ],
    allow_gap: AllowGapOption = False,
    deadline_s: DeadlineOption = None,
    why: WhyOption = "",
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Have a worker leave, and another take its place; or a node go.

    It takes no more queries and answers those that it has. `modelless workers scale` has fewer
    workers run.

    \b
    modelless drain cpu-4-k2x8m1q0
    """
    with connect(url) as client:
        is_worker = any(row["worker"] == name for row in client.workers())
        # Without nodes it can be no other than a worker: the gateway says which there are.
        if is_worker or not client.get("/v1/nodes")["nodes"]:
            row = _drained(client, name, allow_gap, why)
            said = _leaves(row)
        else:
            notice = {"why": why or ASKED, "deadline_s": deadline_s}
            row = client.post(at("v1", "nodes", name, "drain"), notice)
            said = drains_words(row)
    emit(row, output, lambda: typer.echo(printable(said)))


def _drained(client: Client, worker: str, allow_gap: bool, why: str) -> Row:
    """What the gateway says when a worker is told to leave."""
    body = {"allow_gap": allow_gap, "why": why, "by": operator()}
    found: Row = client.post(at("v1", "workers", worker, "drain"), body)
    return found


# -- for people ---------------------------------------------------------------------------------


def _list(rows: Sequence[Row], plan: Row) -> None:
    _worker_table(rows)
    _warnings(rows)
    standing = plan["standing"]
    typer.echo("\n" + printable(standing["sentence"]))
    for sentence in plan.get("zones", ()):
        typer.echo(printable(sentence))
    differ = [row for row in standing["kinds"] if row["wanted"] != row["running"]]
    if differ:
        typer.echo("; ".join(map(wanted_words, differ)))


def _leaves(row: Row) -> str:
    return f"{row['worker']}: {row['sentence']}"


def _worker_table(rows: Sequence[Row]) -> None:
    where, places = places_of(rows)
    own = ["CORES"] if any(row.get("cores") for row in rows) else []
    table(
        ["WORKER", "DEVICE", *where, *own, "STATE", ">BUSY", ">MIB", ">OF", ">READY", ">OTHER"],
        (
            [
                row["worker"],
                row["device_kind"],
                *place,
                *(cores_words(row.get("cores", ())) for _ in own),
                state_of(row),
                f"{100 * row['busy_ratio']:.0f} %",
                mib(row["reserved_mib"]),
                mib(row["memory_mib"]),
                str(Counter(one["state"] for one in row["replicas"])["ready"]),
                str(sum(one["state"] != "ready" for one in row["replicas"])),
            ]
            for row, place in zip(rows, places, strict=True)
        ),
        empty="No worker is running.",
    )


def state_of(row: Row) -> str:
    """A worker in one word or two."""
    if row.get("silent_s") is not None:
        return f"silent for {row['silent_s']:,.0f} s"
    if row["draining"]:
        return "draining"
    return "slow" if row.get("slowness") is not None else "ready"


def cores_words(cores: Sequence[int]) -> str:
    """The cores of a worker, neighbours as ranges: ``0-3,8``."""
    ranges: list[tuple[int, int]] = []
    for core in sorted(cores):
        if ranges and core == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], core)
        else:
            ranges.append((core, core))
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges) or "any"


def places_of(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Columns that say where workers are, and what stands in them; none where nothing is known of
    zones and all are near."""
    if not any(row.get("zone") or row.get("round_trip_ms") for row in rows):
        return [], [[] for _ in rows]
    return ["ZONE", ">MS AWAY"], [[row.get("zone") or "-", _away(row)] for row in rows]


def _away(row: Row) -> str:
    away_ms = row.get("round_trip_ms")
    return "-" if away_ms is None else f"{away_ms:.0f}"


def _warnings(rows: Sequence[Row]) -> None:
    for row in rows:
        for warning in row.get("warnings", ()):
            typer.echo(printable(f"{row['worker']}: {warning}"))


def _replica_table(row: Row) -> None:
    _worker_table([row])
    _warnings([row])
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
