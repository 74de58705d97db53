"""``nodes``: the machines of a cluster; ``devices``: the kinds of workers that they have."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from controlplane.cli.gateway_client import Client, UrlOption, at, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import clock, mib, printable, table, usd
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
    emit(row, output, lambda: typer.echo(printable(drains_words(row))))


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


def drains_words(row: Row) -> str:
    """That a node drains, and when it goes."""
    when = f"goes at {clock(row['drains_until'])}" if row["drains_until"] else "goes when done"
    return f"node {row['id'][:12]} ({row['host']}, {row['address']}) {when}"
