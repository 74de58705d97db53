"""``query`` and ``explain``: ask for a task within an SLO, and why the answer is what it is."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from controlplane.cli.asking.rows import read_inputs
from controlplane.cli.asking.shown_answers import answer_lines
from controlplane.cli.gateway_client import Client, UrlOption, at, connect
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
from controlplane.client.exchange import asked_about, query_document
from controlplane.client.pictures import picture_bytes, picture_query
from planner.sentences import CHOSEN
from variants.errors import InvalidInput
from variants.figures import accuracy_floor, counted, figure
from variants.images import numbers_in
from variants.types import Prefer

Row = Mapping[str, Any]

MARKS = {"chosen": "→", "fits": "✓", "stopped": "✗"}
"""By what becomes of a variant."""

TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="Name of a task.")]
LatencyOption = Annotated[
    float | None, typer.Option("--latency-ms", metavar="MS", min=0, help="Deadline, end to end.")
]
AccuracyOption = Annotated[
    float | None,
    typer.Option("--accuracy", min=0, max=1, metavar="SHARE", help="Floor, from 0 to 1."),
]
CostOption = Annotated[
    float | None,
    typer.Option("--cost", min=0, metavar="USD", help="Ceiling, USD per 1,000 queries."),
]
PreferOption = Annotated[
    Prefer | None, typer.Option("--prefer", help="What to optimise among what fits.")
]
BestEffortOption = Annotated[
    bool, typer.Option("--best-effort", help="Answer with the nearest when nothing fits.")
]
VariantOption = Annotated[
    str | None, typer.Option("--variant", metavar="VARIANT", help="Ask this variant and no other.")
]
ModelVersionOption = Annotated[
    str | None,
    typer.Option(
        "--model-version", metavar="VERSION", help="Ask this version of a model: encoder-v1."
    ),
]
PriorityOption = Annotated[
    int | None,
    typer.Option(
        "--priority", min=0, metavar="N",
        help="1 is refused last; without, or 0, it is 100.",
    ),
]  # fmt: skip


PictureMeanOption = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBERS",
        help="How this picture becomes numbers, (value / 255 - mean) / std: '0.5', or one for each"
        " channel; else as the task says.",
    ),
]
PictureStdOption = Annotated[str | None, typer.Option(metavar="NUMBERS", help="Likewise.")]


TextOption = Annotated[
    list[str] | None,
    typer.Option("--text", metavar="TEXT", help="A text in place of a row; may be repeated."),
]
TextPairOption = Annotated[
    list[str] | None,
    typer.Option(
        "--text-pair",
        metavar="TEXT",
        help="A second text beside it, for models that read two; one for each --text.",
    ),
]
TruncateOption = Annotated[
    bool, typer.Option("--truncate", help="Cut off texts that have too many tokens.")
]


def query(
    task: TaskArgument,
    latency_ms: LatencyOption = None,
    accuracy: AccuracyOption = None,
    cost: CostOption = None,
    prefer: PreferOption = None,
    best_effort: BestEffortOption = False,
    variant: VariantOption = None,
    model_version: ModelVersionOption = None,
    priority: PriorityOption = None,
    input: Annotated[
        str | None,
        typer.Option("--input", "-i", metavar="FILE", help="Rows as .json or .npz; - reads JSON."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option(
            "--row",
            metavar="N",
            help="Only this row of the file, counted from 0; of .npz else the first.",
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", metavar="FILE", help="A picture in place of rows: PNG or JPEG."),
    ] = None,
    image_mean: PictureMeanOption = None,
    image_std: PictureStdOption = None,
    text: TextOption = None,
    text_pair: TextPairOption = None,
    truncate: TruncateOption = False,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask for a task: the system picks the variant, the worker and the batch.

    Its SLO (service level objective) is what the answer has to keep: a deadline, a floor of
    accuracy, a ceiling of cost. What is not said is the task's default.

    Without --input it asks with a row of zeros, which shows the path but means nothing.

    \b
    modelless query digits --latency-ms 50 --accuracy 0.97 --input rows.json
    modelless query digits --image three.png
    modelless query sentiment --text "a great film"
    modelless query implies --text "a man eats" --text-pair "somebody eats"

    `modelless feedback REQUEST LABEL` says what was right, by the request that it shows.
    """
    if row is not None and input is None:
        raise InvalidInput("--row picks a row of a file: name it by --input")
    if image is not None and input is not None:
        raise InvalidInput("a query is of rows or of a picture: --input or --image, not both")
    if text is not None and (image is not None or input is not None):
        other = "--image" if input is None else "--input"
        raise InvalidInput(f"a query of texts has nothing else: {other} or --text, not both")
    if truncate and text is None and input is None:
        raise InvalidInput("--truncate is for texts: give them by --text")
    texts = _texts(text, text_pair)
    scale = _scale(image, image_mean, image_std)
    needs: dict[str, Any] = {
        "latency_ms": latency_ms, "accuracy": accuracy, "cost": cost, "prefer": prefer,
        "best_effort": best_effort, "model_version": model_version, "priority": priority,
    }  # fmt: skip
    with connect(url) as client:
        if image is not None:
            asked = picture_query(task, image, needs, variant=variant, **scale)
            reply, reason, place = client.ask_at(*asked)
            emit(reply, output, lambda: _show(reply, reason, place))
            return
        rows = asked_about(texts or _rows(client, task, input, row), truncate=truncate)
        document = query_document(task, rows, variant=variant, **needs)
        reply, reason, place = client.ask(document)
    emit(reply, output, lambda: _show(reply, reason, place, texts))


def _texts(texts: Sequence[str] | None, seconds: Sequence[str] | None) -> list[Any]:
    """Texts as a query has them: alone, or each with a second one; none where none are given.

    Raises:
        InvalidInput: there are not as many of both.
    """
    if not seconds:
        return list(texts or ())
    if len(texts or ()) != len(seconds):
        raise InvalidInput(
            f"--text and --text-pair go together: there are {len(texts or ())} and {len(seconds)}"
        )
    return [list(pair) for pair in zip(texts or (), seconds, strict=True)]


def _rows(client: Client, task: str, source: str | None, row: int | None) -> Any:
    """Rows of numbers, or what a file has in their place."""
    specs = client.get(at("v1", "tasks", task))["inputs"]
    if source is None:
        print("no --input: asking with a row of zeros", file=sys.stderr)
    return read_inputs(source, specs, row)


def explain(
    task: TaskArgument,
    latency_ms: LatencyOption = None,
    accuracy: AccuracyOption = None,
    cost: CostOption = None,
    prefer: PreferOption = None,
    best_effort: BestEffortOption = False,
    variant: VariantOption = None,
    model_version: ModelVersionOption = None,
    priority: PriorityOption = None,
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
    text: TextOption = None,
    text_pair: TextPairOption = None,
    truncate: TruncateOption = False,
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
    if text is not None and (image is not None or rows != 1 or length is not None):
        raise InvalidInput("texts say themselves how many and how long they are: --text alone")
    if truncate and text is None:
        raise InvalidInput("--truncate is for texts: give them by --text")
    asked: Any = {"rows": rows} if length is None else {"rows": rows, "length": length}
    if texts := _texts(text, text_pair):
        asked = asked_about(texts, truncate=truncate)
    document = query_document(
        task, asked, latency_ms=latency_ms, accuracy=accuracy, cost=cost, prefer=prefer,
        best_effort=best_effort, variant=variant, model_version=model_version, priority=priority,
    )  # fmt: skip
    with connect(url) as client:
        if image is not None and client.get(at("v1", "tasks", task)).get("image") is None:
            raise InvalidInput(f"task {task!r} takes no pictures")
        told = client.post("/v1/explain", document)
    emit(told, Output.JSON if json else output, lambda: _show_explanation(told))


def _scale(
    image: str | None, mean: str | None, std: str | None
) -> dict[str, tuple[float, ...] | None]:
    """How a picture becomes numbers, as far as it is said.

    Raises:
        InvalidInput: a text is no number, or there is no picture.
    """
    if image is None and (mean is not None or std is not None):
        raise InvalidInput("--image-mean and --image-std are of a picture: name it by --image")
    texts = {"mean": mean, "std": std}
    return {
        name: None if text is None else numbers_in(text, f"--image-{name}")
        for name, text in texts.items()
    }


def _show(reply: Mapping[str, Any], reason: str, place: str, texts: Sequence[Any] = ()) -> None:
    details(
        [
            *answer_lines(reply, texts),
            ("variant", f"{reply['variant']} of {reply['model_version']}"),
            *([("chosen", CHOSEN.get(reason, reason))] if reason else []),
            ("worker", reply["worker"]),
            *([("answered", place)] if place else []),
            ("batch", str(reply["batch_size"])),
            ("queue, run", f"{ms(reply['queue_ms'])} ms, {ms(reply['run_ms'])} ms"),
            ("accuracy", percent(reply["accuracy"])),
            ("cost", f"{usd_per_million(reply['cost_usd_per_1k'])} USD per million queries"),
            ("slo met", "yes" if reply["slo_met"] else "no"),
            *([("request", reply["request_id"])] if reply.get("request_id") else []),
        ]
    )


def _show_explanation(told: Row) -> None:
    """Print what ``/v1/explain`` says."""
    answer, refusal = told["answer"], told["refusal"]
    pairs = [("asked", asked_words(told))]
    if answer is not None:
        pairs += _answer(answer)
    else:
        pairs += [("refused", f"{refusal['code']}: {refusal['error']}")]
        if refusal["retry_after_s"] is not None:
            pairs.append(("come back", f"in {refusal['retry_after_s']:.1f} s"))
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
