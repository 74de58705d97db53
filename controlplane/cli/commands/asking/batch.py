"""``modelless batch``: the rows of a file, answered with whatever capacity is free."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli.asking.query_options import (
    AccuracyOption,
    CostOption,
    ModelVersionOption,
    PreferOption,
    TruncateOption,
    VariantOption,
)
from controlplane.cli.commands.names import TaskArgument
from controlplane.cli.gateway_client import Client, UrlOption, access_to, at, connected
from controlplane.cli.outcome import INTERRUPTED, REFUSED, Output, emit, remember_json
from controlplane.cli.progress import (
    ProgressOption,
    ProgressStyle,
    shown,
    steps_of,
    termination_as_interrupt,
)
from controlplane.cli.render import console, details, percent, printable, seconds, table
from controlplane.client.exchange import query_document
from variants.errors import InvalidInput, ModellessError
from variants.figures import counted

if TYPE_CHECKING:
    from controlplane.cli.batching.asker import Asker, RowsPerQuery
    from controlplane.cli.batching.journal import Journal
    from controlplane.cli.batching.row import RowsFile
    from controlplane.cli.batching.rows_query import Batched

FORMATS = (".npz", ".jsonl")
"""Of rows of numbers, and of answers."""
MOST_MS = 10.0
"""A query has as many rows as take so long, unless that is said: who comes meanwhile waits for the
batch that runs."""
IN_FLIGHT = 2
"""One that runs and one on its way."""

InputOption = Annotated[
    Path,
    typer.Option(
        "--input",
        "-i",
        metavar="FILE",
        help="Rows, as .npz or .jsonl, a folder of pictures, or texts as .csv, .tsv or .jsonl.",
    ),
]
AnswersOption = Annotated[
    Path, typer.Option("--output", metavar="FILE", help="Their answers, as .npz or .jsonl.")
]
RowsOption = Annotated[
    int | None,
    typer.Option(
        "--rows-per-query",
        metavar="N",
        min=1,
        max=65_536,
        help="Rows of one query; else as many as the variant that would answer runs in 10 ms.",
    ),
]
InFlightOption = Annotated[
    int, typer.Option("--in-flight", metavar="N", min=1, max=1_000, help="Queries under way.")
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Go on with a run that was interrupted.")
]
OverwriteOption = Annotated[
    bool, typer.Option("--overwrite", help="Replace a file that is there already.")
]
JsonOption = Annotated[
    bool,
    typer.Option("--json", callback=remember_json, help="Say what came of it as JSON."),
]


def batch(
    task: TaskArgument,
    input: InputOption,
    answers: AnswersOption,
    accuracy: AccuracyOption = None,
    cost: CostOption = None,
    prefer: PreferOption = None,
    variant: VariantOption = None,
    model_version: ModelVersionOption = None,
    truncate: TruncateOption = False,
    rows_per_query: RowsOption = None,
    in_flight: InFlightOption = IN_FLIGHT,
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
    url: UrlOption = "",
    json: JsonOption = False,
    progress: ProgressOption = ProgressStyle.AUTO,
) -> None:
    """Answer all rows of a file with whatever capacity is free.

    Its queries have the lowest priority and a long deadline, so that others go first; what is
    refused for now is asked again when the gateway says. A row that is refused for good has its
    error in the output, and the others go on.

    \b
    modelless batch digits --input rows.npz --output answers.jsonl
    modelless batch digits --input pictures/ --output answers.jsonl
    modelless batch sentiment --input texts.csv --output answers.jsonl
    """
    from controlplane.cli.batching.answers_files import write_answers
    from controlplane.cli.batching.asker import Asker
    from controlplane.cli.batching.journal import Journal
    from controlplane.cli.batching.rows_query import Batched, row_lengths, whole_outputs
    from controlplane.cli.batching.text_rows import TextRows

    _check(input, answers, replaced=resume or overwrite)
    access = access_to(url)
    with connected(access) as client:
        known = client.get(at("v1", "tasks", task))
        rows, lengths = _rows_in(input, known), row_lengths(known)
        texts = isinstance(rows, TextRows)
        if truncate and not texts:
            raise InvalidInput(f"--truncate is for texts, and {input} has none")
        asked = Batched(
            task=task, inputs=known["inputs"], labels=known["labels"], accuracy=accuracy,
            cost=cost, prefer=None if prefer is None else prefer.value, variant=variant,
            model_version=model_version, texts=texts, truncate=truncate,
            spans=texts and bool(lengths.following), **({} if texts else lengths._asdict()),
        )  # fmt: skip
        if resume and answers.exists() and not _begun(answers):
            print(f"{answers} is finished", file=sys.stderr)
            return
        in_query = _in_query(client, asked, rows_per_query)
    began_s = time.monotonic()
    with Journal(answers, _about(asked, input), resume=resume) as journal:
        before = len(journal.done)
        asker = Asker(asked, journal, access, rows_per_query=in_query, in_flight=in_flight)
        with _ends_early(journal, rows.count, answers):
            _ask(asker, journal, rows, progress)
            whole = whole_outputs(known["outputs"], lengths)
            write_answers(journal, answers, whole, rows.count, lengths.following)
        journal.remove()
    done = Batch(
        rows=rows.count, refused=journal.refused, resumed=before, rows_per_query=in_query.now,
        seconds=time.monotonic() - began_s, variants=dict(asker.variants.most_common()),
        waits=dict(asker.waits.most_common()),
    )  # fmt: skip
    emit(done.as_json(), Output.JSON if json else Output.TABLE, lambda: done.show(answers))
    if journal.refused:
        raise typer.Exit(REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What came of a file of rows."""

    rows: int
    refused: int
    """Rows that have an error in place of an answer."""
    resumed: int
    """Rows that were done before this run."""
    rows_per_query: int
    seconds: float
    variants: Mapping[str, int]
    """How many rows each answered in this run."""
    waits: Mapping[str, int]
    """How often a query was asked again, by the code of its refusal."""

    def as_json(self) -> dict[str, Any]:
        """Everything as plain JSON values."""
        return {**asdict(self), "answered": self.rows - self.refused}

    def show(self, answers: Path) -> None:
        """Print it."""
        now = self.rows - self.resumed
        pairs = [
            ("answered", f"{self.rows - self.refused:,} of {counted(self.rows, 'row')}"),
            ("in", f"{seconds(self.seconds)}, {counted(self.rows_per_query, 'row')} in a query"),
        ]
        if self.resumed:
            pairs.append(("before", f"{self.resumed:,} of them by a run that was interrupted"))
        if self.refused:
            pairs.append(("refused", f"{self.refused:,}; their errors are in the file"))
        if self.waits:
            said = ", ".join(f"{code} {count:,} times" for code, count in self.waits.items())
            pairs.append(("asked again", said))
        details([*pairs, ("file", str(answers))])
        if self.variants:
            console().print()
            rows = (
                [name, f"{count:,}", percent(count / now)] for name, count in self.variants.items()
            )
            table(["ANSWERED BY", ">ROWS", ">OF ALL NOW"], rows, empty="")


def _check(input: Path, answers: Path, *, replaced: bool) -> None:
    for option, path, formats in (
        ("--input", input, (*FORMATS, ".csv", ".tsv")),
        ("--output", answers, FORMATS),
    ):
        if path.suffix not in formats and not (path is input and path.is_dir()):
            *others, last = formats
            raise InvalidInput(f"{option} {path} must end in {', '.join(others)} or {last}")
    if input.resolve() == answers.resolve():
        raise InvalidInput(f"--output {answers} is the file of the rows: name another file")
    if answers.exists() and not replaced:
        raise InvalidInput(f"{answers} is there already: name another file, or --overwrite it")


def _rows_in(input: Path, task: Mapping[str, Any]) -> "RowsFile":
    """The rows of a file, or the pictures of a folder.

    Args:
        task: as ``/v1/tasks`` has it.
    """
    from controlplane.cli.batching.pictures_folder import PictureRows
    from controlplane.cli.batching.rows_files import rows_file

    if input.is_dir():
        return PictureRows(input, task["inputs"], task.get("image"))
    return rows_file(input, task["inputs"], texts=task.get("text") is not None)


def _begun(answers: Path) -> bool:
    return answers.with_name(answers.name + ".part").exists()


def _about(asked: "Batched", input: Path) -> dict[str, Any]:
    """What has to be the same where an interrupted run is gone on with."""
    from controlplane.cli.batching.pictures_folder import pictures_in

    files = pictures_in(input) if input.is_dir() else [input]
    found = [file.stat() for file in files]
    return {
        "task": asked.task,
        "needs": [asked.accuracy, asked.cost, asked.prefer],
        "variant": asked.variant,
        **({"truncate": True} if asked.truncate else {}),
        **({"model_version": asked.model_version} if asked.model_version is not None else {}),
        "file": input.name,
        "bytes": sum(one.st_size for one in found),
        "changed": max(one.st_mtime_ns for one in found),
    }


def _in_query(client: Client, asked: "Batched", given: int | None) -> "RowsPerQuery":
    """How many rows a query has: as many as were given, else as run in a time that others can wait,
    and one where that is not known."""
    from controlplane.cli.batching.asker import RowsPerQuery, rows_that_fit
    from controlplane.cli.batching.rows_query import DEADLINE_MS

    if given is not None:
        return RowsPerQuery(given)
    document = query_document(
        asked.task, {"rows": 1}, latency_ms=DEADLINE_MS, accuracy=asked.accuracy,
        cost=asked.cost, prefer=asked.prefer, variant=asked.variant,
        model_version=asked.model_version,
    )  # fmt: skip
    explained = client.post("/v1/explain", document)
    profiles = client.get("/v1/profiles", task=explained.get("task", asked.task))["profiles"]
    return RowsPerQuery(rows_that_fit(explained, profiles, MOST_MS), most_ms=MOST_MS)


def _ask(asker: "Asker", journal: "Journal", rows: "RowsFile", style: ProgressStyle) -> None:
    """Ask all rows.

    Raises:
        KeyboardInterrupt: it was interrupted.
        ModellessError: the rest cannot be answered.
    """
    with shown(style) as show:
        tell = _told(asker, journal, rows.count, steps_of(style), show)
        asyncio.run(asker.ask(rows.rows(), tell))


@contextmanager
def _ends_early(journal: "Journal", total: int, answers: Path) -> Iterator[None]:
    """Say what is done where not all is.

    Raises:
        typer.Exit: it was interrupted.
    """
    try:
        with termination_as_interrupt():
            yield
    except KeyboardInterrupt:
        print(f"interrupted: {_so_far(journal, total, answers)}", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    except ModellessError:
        print(_so_far(journal, total, answers), file=sys.stderr)
        raise


def _so_far(journal: "Journal", total: int, answers: Path) -> str:
    return (
        f"{len(journal.done):,} of {counted(total, 'row')} {'is' if total == 1 else 'are'} "
        "done; `--resume` goes on, and"
        f" {printable(str(journal.path))} has their answers until {printable(str(answers))} is"
        " there"
    )


def _told(
    asker: "Asker", journal: "Journal", total: int, steps: int, show: Callable[[Any], None]
) -> Callable[[], None]:
    from controlplane.building.types import Progress

    def tell() -> None:
        done = len(journal.done)
        message = f"{done:,} of {counted(total, 'row')}"
        if journal.refused:
            message += f", {journal.refused:,} refused"
        if asker.waiting_for:
            message += f", waiting: {asker.waiting_for}"
        show(Progress(step="batch", message=message, done=steps * done // total, total=steps))

    return tell
