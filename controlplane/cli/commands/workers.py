"""``workers``: which run, what they have loaded, how many are wanted; ``devices``: their kinds;
``nodes``: the machines of a cluster.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from controlplane.cli.commands.residency.operator import WhyOption, operator
from controlplane.cli.gateway_client import Client, UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import clock, mib, printable, table, usd, wanted_words
from variants.errors import NotFound

Row = Mapping[str, Any]
ASKED = "an operator asked for it"
DeadlineOption = Annotated[
    float | None,
    typer.Option(
        "--deadline-s",
        metavar="S",
        min=0,
        help="Of a node: seconds until it goes, whether it is done or not.",
    ),
]
AllowGapOption = Annotated[
    bool,
    typer.Option("--allow-gap", help="Of a worker: also where no other could answer meanwhile."),
]

workers = typer.Typer(
    help="Workers: what they have loaded, and how many there are.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

devices = typer.Typer(
    help="Device kinds: what a worker of each is and costs.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

nodes = typer.Typer(
    help="Nodes of a cluster; drain one that is about to go.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@devices.command("list")
def list_devices(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """All device kinds, with their nodes and workers.

    FROM says whether a kind was found by looking at the nodes, or set.
    """
    with connect(url) as client:
        found = client.get("/v1/devices")
        nodes = nodes_of(client)
        counts = {row["device_kind"]: row for row in client.get("/v1/inventory")["inventory"]}
        there = client.workers()
    zones = {(row["device_kind"], row.get("zone", "")) for row in there}
    rows = [
        {
            **kind,
            "wanted": counts.get(kind["name"], {}).get("wanted", 0),
            "running": counts.get(kind["name"], {}).get("running", 0),
            "zones": sorted({zone for of, zone in zones if of == kind["name"] and zone}),
        }
        for kind in found["devices"]
    ]
    autoscaler = [autoscaler_words(nodes)] if nodes["nodes"] else []
    advice = [*found.get("advice", ()), *autoscaler]
    emit(rows, output, lambda: _device_table(rows, advice))


@workers.command("list")
def list_workers(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """All workers, and where fewer or more are wanted than run."""
    with connect(url) as client:
        rows = client.workers()
        plan = client.get("/v1/plan") if output is Output.TABLE else {}
    emit(rows, output, lambda: _list(rows, plan))


@workers.command("get")
def get_worker(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Name of a worker.")],
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """One worker and the variants on it."""
    with connect(url) as client:
        rows = client.workers()
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
    stay pending, which is said.
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


@nodes.command("list")
def list_nodes(url: UrlOption = "", output: OutputOption = Output.TABLE) -> None:
    """Nodes that are alive, and what the autoscaler is asked for."""
    with connect(url) as client:
        found = client.get("/v1/nodes")
    emit(found["nodes"], output, lambda: _node_table(found))


@nodes.command("drain")
def drain_node(
    node: Annotated[
        str,
        typer.Argument(
            metavar="NODE", help="Its id, the beginning of it, its host name or its address."
        ),
    ],
    deadline_s: DeadlineOption = None,
    why: Annotated[
        str, typer.Option("--why", metavar="TEXT", help="The reason, for the event.")
    ] = ASKED,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Drain a node that is about to go.

    What it has is loaded elsewhere, and its workers finish and leave. The hook of a cloud that
    gives notice of a spot machine calls this, or the control API. It cannot be taken back.
    """
    with connect(url) as client:
        row = client.post(at("v1", "nodes", node, "drain"), {"why": why, "deadline_s": deadline_s})
    emit(row, output, lambda: typer.echo(printable(_drains(row))))


@workers.command("drain")
def drain_worker(
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Name of a worker.")],
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
    """
    with connect(url) as client:
        there = [row["worker"] for row in client.workers()]
        nodes = [] if name in there else client.get("/v1/nodes")["nodes"]
        if name not in there and not nodes:
            raise NotFound(f"there is no worker {name!r}; there are: {', '.join(there) or 'none'}")
        if name in there:
            row = _drained(client, name, allow_gap, why)
        else:
            notice = {"why": why or ASKED, "deadline_s": deadline_s}
            row = client.post(at("v1", "nodes", name, "drain"), notice)
    said = _leaves(row) if name in there else _drains(row)
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


def _device_table(rows: Sequence[Row], advice: Sequence[str]) -> None:
    zoned = any(row["zones"] for row in rows)
    numbers = [">CORES", ">MIB", ">USD/H", ">IDLE W", ">WANTED", ">RUNNING"]
    table(
        ["DEVICE", "FROM", *numbers, *(["ZONES"] if zoned else []), "NODES"],
        (
            [
                row["name"],
                row.get("source") or "-",
                str(row["cores"]),
                mib(row["memory_mib"]),
                usd(row["usd_per_hour"]),
                "-" if row["idle_w"] is None else f"{row['idle_w']:.1f}",
                str(row["wanted"]),
                str(row["running"]),
                *([", ".join(row["zones"]) or "-"] if zoned else []),
                ", ".join(row.get("nodes", ())) or "-",
            ]
            for row in rows
        ),
        empty="Nothing was measured yet, on no device kind.",
    )
    for sentence in advice:
        typer.echo("\n" + printable(sentence))


def _node_table(found: Row) -> None:
    table(
        ["NODE", "HOST", "ADDRESS", ">CORES", ">GPUS", "KINDS", "STATE"],
        (
            [
                row["id"][:12],
                row["host"] + (" (head)" if row["head"] else ""),
                row["address"],
                str(row["cores"]),
                str(row["gpus"]),
                ", ".join(row["kinds"]) or "-",
                _node_state(row),
            ]
            for row in found["nodes"]
        ),
        empty="There are no nodes of a cluster.",
    )
    typer.echo("\n" + printable(autoscaler_words(found)))
    for sentence in found["remarks"]:
        typer.echo(printable(sentence))


def nodes_of(client: Client) -> Row:
    """What a gateway says of nodes; an older one says nothing."""
    try:
        found: Row = client.get("/v1/nodes")
    except NotFound:
        return {"autoscaler": "not known", "missing": {}, "remarks": [], "nodes": []}
    return found


def autoscaler_words(found: Row) -> str:
    """What may start nodes, and for what it is asked."""
    said = f"Autoscaling: {found['autoscaler']}."
    if not found["missing"]:
        return said
    missing = ", ".join(f"{count}x {kind}" for kind, count in sorted(found["missing"].items()))
    return f"{said} It is asked for nodes for workers that are missing: {missing}."


def node_news(found: Row) -> list[str]:
    """What is asked for, and which nodes go: nothing where all is as it should be."""
    told = [autoscaler_words(found)] if found["missing"] else []
    going = [row for row in found["nodes"] if row["draining"]]
    told += [f"node {row['host']} ({row['address']}) drains" for row in going]
    return told + list(found["remarks"])


def _node_state(row: Row) -> str:
    if not row["draining"]:
        return "alive"
    return f"draining until {clock(row['drains_until'])}" if row["drains_until"] else "draining"


def _leaves(row: Row) -> str:
    return f"{row['worker']}: {row['sentence']}"


def _drains(row: Row) -> str:
    when = f"goes at {clock(row['drains_until'])}" if row["drains_until"] else "goes when done"
    return f"node {row['id'][:12]} ({row['host']}, {row['address']}) {when}"


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
        return f"silent for {row['silent_s']:.0f} s"
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
