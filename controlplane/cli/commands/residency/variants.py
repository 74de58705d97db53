"""``pin``, ``forbid`` and ``evict``: what stays loaded, what may not run, what leaves now."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controlplane.cli.commands.names import TaskArgument
from controlplane.cli.commands.residency.operator import WhyOption, operator
from controlplane.cli.gateway_client import UrlOption, connect
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import printable

Row = Mapping[str, Any]
Variant = Annotated[
    str, typer.Argument(metavar="VARIANT", help="A variant, as `modelless variants list` has it.")
]
Kind = Annotated[
    str, typer.Option("--kind", metavar="KIND", help="Only on workers of this device kind.")
]


def pin(
    task: TaskArgument,
    variant: Variant,
    kind: Kind = "",
    replicas: Annotated[
        int, typer.Option("--replicas", metavar="N", min=1, help="Workers that hold it at least.")
    ] = 1,
    why: WhyOption = "",
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Have a variant stay loaded, whatever else is asked for.

    Saying it again changes the number of replicas. `modelless rules remove ID` takes it back.

    \b
    modelless pin churn churn-v2-onnx-int8 --replicas 2
    """
    body = {"rule": "pin", "task": task, "variant": variant, "device_kind": kind}
    _order({**body, "replicas": replicas, "why": why}, url, output)


def forbid(
    task: TaskArgument,
    variant: Variant,
    kind: Kind = "",
    why: WhyOption = "",
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Have a variant answer nothing and be loaded nowhere.

    It is unloaded within seconds. `modelless rules remove ID` takes it back.

    \b
    modelless forbid churn churn-v1-onnx-int8 --why 'wrong on the new rows'
    """
    body = {"rule": "forbid", "task": task, "variant": variant, "device_kind": kind, "why": why}
    _order(body, url, output)


def evict(
    task: TaskArgument,
    variant: Variant,
    worker: Annotated[
        str, typer.Option("--worker", metavar="WORKER", help="From this worker; else from all.")
    ] = "",
    why: WhyOption = "",
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Unload a variant now, once. The plan may load it again.

    Queries that it has are answered first. `modelless forbid` has it stay away.
    """
    body = {"task": task, "variant": variant, "worker": worker, "why": why, "by": operator()}
    with connect(url) as client:
        row = client.post("/v1/evictions", body)
    emit(row, output, lambda: typer.echo(printable(_evicted(row))))


def _order(body: Row, url: str, output: Output) -> None:
    with connect(url) as client:
        row = client.post("/v1/rules", {**body, "by": operator()})
    emit(row, output, lambda: typer.echo(printable(said(row))))


def said(row: Row) -> str:
    """A rule and what has become of it, in one line."""
    where = f" on {row['device_kind']}" if row["device_kind"] else ""
    named = f"{row['task']}/{row['variant']}{where}"
    return f"rule {row['id']}: {row['rule']} {named}. {row['standing']}"


def _evicted(row: Row) -> str:
    named = f"{row['task']}/{row['variant']}"
    return f"{named} was unloaded from {', '.join(row['workers'])}. {row['sentence']}"
