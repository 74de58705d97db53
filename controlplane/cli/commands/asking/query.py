"""``modelless query``: ask for a task within an SLO."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from controlplane.cli.asking.example_digit import THREE, is_example
from controlplane.cli.asking.query_options import NeedsOptions, TextOptions
from controlplane.cli.asking.rows import read_inputs
from controlplane.cli.asking.shown_answers import answer_lines
from controlplane.cli.commands.names import TaskArgument
from controlplane.cli.gateway_client import Client, UrlOption, at, connect
from controlplane.cli.option_groups import with_groups
from controlplane.cli.outcome import Output, OutputOption, emit
from controlplane.cli.render import details, ms, percent, usd_per_million
from controlplane.client.exchange import asked_about
from controlplane.client.pictures import picture_query
from planner.sentences import CHOSEN
from variants.errors import InvalidInput
from variants.images import numbers_in

PictureMeanOption = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBERS",
        help="How this picture becomes numbers, (value / 255 - mean) / std: '0.5', or one for each"
        " channel; else as the task says.",
    ),
]
PictureStdOption = Annotated[str | None, typer.Option(metavar="NUMBERS", help="Likewise.")]


@with_groups
def query(
    task: TaskArgument,
    needs: NeedsOptions,
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
    *,
    texts: TextOptions,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask for a task: the system picks the variant, the worker and the batch.

    Its SLO (service level objective) is what the answer has to keep: a deadline, a floor of
    accuracy, a ceiling of cost. What is not said is the task's default.

    Without --input it asks with a row of zeros, which shows the path but means nothing; the example
    task digits with a handwritten 3.

    \b
    modelless query digits --latency-ms 50 --accuracy 0.97
    modelless query churn --latency-ms 20 --input held_out.npz --row 0
    modelless query digits --image three.png
    modelless query sentiment --text "a great film"
    modelless query implies --text "a man eats" --text-pair "somebody eats"

    `modelless feedback REQUEST LABEL` says what was right, by the request that it shows.
    """
    _check_asked(texts, input=input, row=row, image=image)
    given = texts.given()
    scale = _scale(image, image_mean, image_std)
    with connect(url) as client:
        if image is not None:
            sent = picture_query(task, image, asdict(needs), variant=needs.variant, **scale)
            reply, reason, place = client.ask_at(*sent)
        else:
            rows = given or _rows(client, task, input, row)
            asked = asked_about(rows, truncate=texts.truncate)
            reply, reason, place = client.ask(needs.document(task, asked))
    emit(reply, output, lambda: show_reply(reply, reason, place, given))


def _check_asked(
    texts: TextOptions, *, input: str | None, row: int | None, image: str | None
) -> None:
    """Refuse what a query cannot be of at once.

    Raises:
        InvalidInput: there is more than one of rows, a picture and texts, or an option of what is
            not there.
    """
    if row is not None and input is None:
        raise InvalidInput("--row picks a row of a file: name it by --input")
    if image is not None and input is not None:
        raise InvalidInput("a query is of rows or of a picture: --input or --image, not both")
    if texts.text is not None and (image is not None or input is not None):
        other = "--image" if input is None else "--input"
        raise InvalidInput(f"a query of texts has nothing else: {other} or --text, not both")
    if texts.truncate and texts.text is None and input is None:
        raise InvalidInput("--truncate is for texts: give them by --text")


def _rows(client: Client, task: str, source: str | None, row: int | None) -> Any:
    """Rows of numbers, or what a file has in their place."""
    specs = client.get(at("v1", "tasks", task))["inputs"]
    if source is None and is_example(task, specs):
        print("no --input: asking with a handwritten 3", file=sys.stderr)
        return [list(THREE)]
    if source is None:
        print("no --input: asking with a row of zeros", file=sys.stderr)
    return read_inputs(source, specs, row)


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


def show_reply(
    reply: Mapping[str, Any], reason: str, place: str, texts: Sequence[Any] = ()
) -> None:
    """Print an answer, with what it cost and where it was made."""
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
