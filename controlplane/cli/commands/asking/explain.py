"""``modelless explain``: why a query would be answered as it would."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from controlplane.cli.asking.query_options import NeedsOptions, TextOptions
from controlplane.cli.commands.names import TaskArgument
from controlplane.cli.gateway_client import UrlOption, at, connect
from controlplane.cli.option_groups import with_groups
from controlplane.cli.outcome import JsonOption, Output, OutputOption, emit
from controlplane.cli.render import (
    console,
    details,
    half_interval,
    ms,
    percent,
    printable,
    table,
    usd_per_million,
)
from controlplane.client.exchange import asked_about
from controlplane.client.pictures import picture_bytes
from planner.sentences import CHOSEN
from variants.errors import InvalidInput
from variants.figures import accuracy_floor, counted, figure

Row = Mapping[str, Any]

MARKS = {"chosen": "→", "fits": "✓", "stopped": "✗"}
"""By what becomes of a variant."""


@with_groups
def explain(
    task: TaskArgument,
    needs: NeedsOptions,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=1, help="Rows that the query has.")
    ] = 1,
    length: Annotated[
        int | None,
        typer.Option(
            "--length",
            metavar="N",
            min=1,
            help="How long these are, of a task for rows of several lengths; else the longest.",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="FILE", help="Of a query by this picture: one row."),
    ] = None,
    *,
    texts: TextOptions,
    url: UrlOption = "",
    json: JsonOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Why a query would be answered as it would: what is chosen now, and why not the others.

    Nothing is run. It takes what `modelless query` takes, and says what a query like it would get
    at this moment, by the same decision.

    \b
    modelless explain digits --latency-ms 50 --accuracy 0.97
    """
    if image is not None:
        if rows != 1:
            raise InvalidInput("a picture is one row: --rows or --image, not both")
        picture_bytes(image)  # refused now if it is none that can be read
    if texts.text is not None and (image is not None or rows != 1 or length is not None):
        raise InvalidInput("texts say themselves how many and how long they are: --text alone")
    if texts.truncate and texts.text is None:
        raise InvalidInput("--truncate is for texts: give them by --text")
    asked: Any = {"rows": rows} if length is None else {"rows": rows, "length": length}
    if given := texts.given():
        asked = asked_about(given, truncate=texts.truncate)
    document = needs.document(task, asked)
    with connect(url) as client:
        if image is not None and client.get(at("v1", "tasks", task)).get("image") is None:
            raise InvalidInput(f"task {task!r} takes no pictures")
        told = client.post("/v1/explain", document)
    emit(told, Output.JSON if json else output, lambda: _show_explanation(told))


def _show_explanation(told: Row) -> None:
    """Print what ``/v1/explain`` says."""
    answer, refusal = told["answer"], told["refusal"]
    pairs = [("asked", asked_words(told))]
    if answer is not None:
        pairs += _answer(answer)
    else:
        pairs += [("refused", f"{refusal['code']}: {refusal['error']}")]
        if refusal["retry_after_s"] is not None:
            pairs.append(("come back", f"in {refusal['retry_after_s']:,.1f} s"))
        nearest = [
            f"{one['variant']}: accuracy {percent(one['accuracy'])}, {ms(one['latency_ms'])} ms, "
            f"{usd_per_million(one['cost_usd_per_1k'])} USD per million ({one['reason']})"
            for one in refusal["alternatives"]
        ]
        if nearest:
            pairs.append(("closest", "\n".join(nearest)))
    pairs.append(("plan", told["plan"]))
    if told.get("cores"):  # older: none
        pairs.append(("cores", told["cores"]))
    details([*pairs, *_doubt(told)])
    console().print()
    table(
        ["", "VARIANT", "DEVICE", ">ACCURACY", ">± %", ">RUN MS", ">USD/MILLION", ">LOADED", "WHY"],
        (_row(one) for one in told["variants"]),
        empty="The task has no variants.",
        alike=("DEVICE", ">LOADED"),
        spare=(">± %",),
    )
    if any(one["verdict"] == "fits" for one in told["variants"]):
        console().print("→ chosen, ✓ would meet the SLO as well, ✗ would not", style="dim")


def _doubt(told: Row) -> list[tuple[str, str]]:
    """Where accuracies decide that differ by no more than chance; an older gateway says nothing."""
    return [("doubt", told["doubt"])] if told.get("doubt") else []


def asked_words(told: Row) -> str:
    """What was asked for, the task's defaults filled in."""
    said = [f"{told['task']} within {figure(told['latency_ms'], 3)} ms"]
    if told["accuracy"] is not None:
        said.append(f"accuracy at least {accuracy_floor(told['accuracy'])}")
    if told["cost"] is not None:
        said.append(f"at most {usd_per_million(told['cost'])} USD per million queries")
    said.append(f"preferring {told['prefer']}")
    if told["pinned"] is not None:
        said.append(f"of {told['pinned']} alone")
    elif told.get("model_version") is not None:
        said.append(f"of {told['model_version']} alone")
    if told["best_effort"]:
        said.append("else the nearest")
    return printable(f"{', '.join(said)}; {counted(told['rows'], 'row')}")


def _answer(answer: Row) -> list[tuple[str, str]]:
    loading = "" if answer["loaded"] else "loading, "
    timing = (
        f"{ms(answer['predicted_ms'])} ms: {loading}waiting {ms(answer['wait_ms'])} ms, "
        f"running {ms(answer['run_ms'])} ms at most 95 times of 100, and the way"
    )
    pairs = [
        ("answered by", f"{answer['variant']} of {answer['model_version']}"),
        ("because", CHOSEN.get(answer["reason"], str(answer["reason"]))),
        ("on", f"{answer['worker']} ({answer['device_kind']})"),
        ("expected", timing),
        ("accuracy", percent(answer["accuracy"])),
        ("cost", f"{usd_per_million(answer['price_usd_per_1k'])} USD per million queries"),
    ]
    if answer["zone"]:
        pairs.append(("zone", answer["zone"]))
    if not answer["slo_met"]:
        pairs.append(("slo met", "no: nothing meets it, and best effort was asked for"))
    return pairs


def _row(one: Row) -> list[str]:
    return [
        MARKS.get(one["verdict"], ""),
        one["variant"],
        one["device_kind"] or "-",
        percent(one["accuracy"]),
        half_interval(one),
        ms(one["run_ms"]),
        usd_per_million(one["price_usd_per_1k"]),
        counted(one["loaded_on"], "worker") if one["loaded_on"] else "-",
        one["why"],
    ]
