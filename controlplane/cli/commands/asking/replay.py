"""``modelless replay``: a trace against the running installation, as an open loop."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controlplane.cli.asking.rows import QueryRows, query_rows
from controlplane.cli.gateway_client import Access, UrlOption, access_to, connected
from controlplane.cli.outcome import INTERRUPTED, Output, OutputOption, emit
from controlplane.cli.progress import (
    ProgressOption,
    ProgressStyle,
    shown,
    steps_of,
    termination_as_interrupt,
)
from variants.errors import InvalidInput
from variants.figures import counted
from variants.texts.inputs import TEXT

if TYPE_CHECKING:
    from controlplane.building.types import Progress
    from controlplane.cli.replaying.comparison import Fleet, Known
    from controlplane.cli.replaying.outcomes import Outcomes
    from controlplane.cli.replaying.player import Player
    from controlplane.cli.replaying.replay_results import Replayed
    from planner.simulation.trace import Trace

MOST_CONNECTIONS = 256
Show = Callable[["Progress"], None]

TraceArgument = Annotated[
    Path, typer.Argument(metavar="TRACE", help="Queries, or their rates, over time, as CSV.")
]
InputOption = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="FILE",
        help="Rows to ask with, as .json or .npz, of texts also .csv, .tsv and .jsonl, one after "
        "the other; TASK=FILE for one of several tasks. Else zeros, or a text.",
    ),
]
SpeedOption = Annotated[
    float, typer.Option("--speed", metavar="FACTOR", help="How many times as fast as the trace.")
]
ForOption = Annotated[
    float | None,
    typer.Option("--for", metavar="S", help="Play for so many seconds; else the whole trace."),
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="The same seed, the same queries.")
]
CompareOption = Annotated[
    bool,
    typer.Option("--compare", help="Show beside it what the simulator makes of the same trace."),
]
ConnectionsOption = Annotated[
    int,
    typer.Option(
        "--connections", metavar="N", min=1, max=10_000, help="Connections to the gateway at most."
    ),
]


def replay(
    trace: TraceArgument,
    input: InputOption = None,
    speed: SpeedOption = 1.0,
    most_s: ForOption = None,
    seed: SeedOption = 0,
    compare: CompareOption = False,
    connections: ConnectionsOption = MOST_CONNECTIONS,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
    progress: ProgressOption = ProgressStyle.AUTO,
) -> None:
    """Play a trace against what runs: each query at its time, whatever becomes of the others.

    It counts as `modelless simulate` does, by this client's own clock and by what the answers
    say. The queries are real ones: they are demand, and take their place beside others.

    With --compare the simulator plays the same queries on the catalog, the workers and the
    objective of the installation, and both stand side by side.

    \b
    modelless replay trace.csv --input held_out.npz --for 60 --compare
    """
    from controlplane.cli.replaying.comparison import fleet_of, known_of
    from controlplane.cli.replaying.player import Bodies, Player

    _check(speed, most_s)
    access = access_to(url)
    with connected(access) as client:
        tasks = {row["name"]: row for row in client.get("/v1/tasks")["tasks"]}
        played = read_part(trace, tasks, seed=seed, speed=speed, most_s=most_s)
        asked = {str(played.tasks[index]) for index in set(played.task)}
        rows = rows_of(input or (), asked, tasks)
        if input is None:
            words = words_of_nothing(tasks[name] for name in asked)
            print(f"no --input: asking with {words}", file=sys.stderr)
        known = known_of(client, asked, tasks, rows) if compare else None
        fleet = fleet_of(client) if known is None else known.fleet
    bodies = Bodies(played, rows, {name: row["slo"] for name, row in tasks.items()})
    player = Player(played, bodies, access, connections)
    stopped = _play(player, progress)
    found = _found(player, connections, access, fleet)
    if known is not None and not stopped:
        found, stopped = _compared(found, known, seed, progress)
    emit(found.as_json(), output, found.show)
    if stopped:
        _say_interrupted(player.outcomes)
        raise typer.Exit(INTERRUPTED)


PAIR = ("a text", "another one")
"""What tasks of texts are asked with for want of a file, or the first of it."""


def _check(speed: float, most_s: float | None) -> None:
    if not (isfinite(speed) and speed > 0):
        raise InvalidInput(f"--speed {speed:g} is not possible; it has to be above 0")
    if most_s is not None and not (isfinite(most_s) and most_s > 0):
        raise InvalidInput(f"--for {most_s:g} is not possible; it has to be above 0 s")


def read_part(
    path: Path, tasks: Mapping[str, Any], *, seed: int, speed: float, most_s: float | None
) -> "Trace":
    """The queries of a trace file that are played, at the times when they are.

    Raises:
        InvalidInput: the file is none, asks for a task that is not there, or for nothing so soon.
    """
    from controlplane.cli.replaying.outcomes import played_part
    from controlplane.files.demand import read_trace

    if not tasks:
        raise InvalidInput("no task is registered, so nothing can be asked")
    whole = read_trace(path, tasks, seed=seed)
    played = played_part(whole, speed=speed, most_s=inf if most_s is None else most_s)
    if not len(played):
        first_s = whole.arrival_s[0] / speed
        raise InvalidInput(
            f"no query comes within --for {most_s:,g} s; the first comes at {first_s:,g} s"
        )
    return played


def rows_of(
    given: Sequence[str], asked: set[str], tasks: Mapping[str, Mapping[str, Any]]
) -> dict[str, QueryRows]:
    """The rows to ask each task with, by what ``--input`` said.

    Raises:
        InvalidInput: a file cannot be read or has no rows of its task; or it is not clear whose
            rows they are.
    """
    files: dict[str, str] = {}
    for text in given:
        task, is_named, file = text.partition("=")
        if not is_named or task not in tasks:
            if len(asked) > 1:
                raise InvalidInput(
                    f"--input {text}: the trace asks for {', '.join(sorted(asked))}; say for which"
                    " of them, as TASK=FILE"
                )
            [task], file = asked, text
        if task in files:
            raise InvalidInput(f"--input names two files for task {task}")
        files[task] = file
    if unasked := sorted(files.keys() - asked):
        raise InvalidInput(f"--input names task {unasked[0]}, which the trace does not ask for")
    return {task: _rows(files.get(task), tasks[task]) for task in sorted(asked)}


def _rows(file: str | None, task: Mapping[str, Any]) -> QueryRows:
    """Texts from a table, or one for want of a file, of a task that takes them; else numbers."""
    from controlplane.cli.batching.text_rows import TextRows, has_texts

    text = task.get("text")
    if text is None:
        return query_rows(file, task["inputs"])
    if file is None:
        return QueryRows({TEXT: [list(PAIR) if text["pairs"] else PAIR[0]]})
    path = Path(file)
    lines = path.suffix == ".jsonl" and path.is_file()
    if path.suffix not in (".csv", ".tsv") and not (lines and has_texts(path)):
        return query_rows(file, task["inputs"])
    found = []
    for row in TextRows(path).rows():
        if row.wrong:
            raise InvalidInput(f"{path}: row {row.number}: {row.wrong}")
        parts = list(row.values[TEXT])
        found.append(parts if len(parts) > 1 else parts[0])
    return QueryRows({TEXT: found})


def words_of_nothing(tasks: Iterable[Mapping[str, Any]]) -> str:
    """What tasks are asked with for want of a file."""
    are = {task.get("text") is not None for task in tasks}
    words = {False: "rows of zeros", True: f"the text {PAIR[0]!r}"}
    return " and ".join(words[one] for one in sorted(are))


def _play(player: "Player", style: ProgressStyle) -> bool:
    """Play the trace; whether it was interrupted."""
    total = len(player.outcomes.trace)
    try:
        with termination_as_interrupt(), shown(style) as show:
            asyncio.run(player.play(_told(show, total, steps_of(style))))
    except KeyboardInterrupt:
        return True
    return False


def _told(show: Show, total: int, steps: int) -> "Callable[[Outcomes], None]":
    from controlplane.building.types import Progress

    def tell(outcomes: "Outcomes") -> None:
        message = f"{outcomes.sent:,} of {counted(total, 'query')} sent, {outcomes.ended:,} ended"
        done = steps * outcomes.ended // total
        show(Progress(step="replay", message=message, done=done, total=steps))

    return tell


def _found(player: "Player", connections: int, access: Access, fleet: "Fleet") -> "Replayed":
    """What came of it; it cost something known where the same workers run still."""
    from controlplane.cli.replaying.comparison import same_fleet
    from controlplane.cli.replaying.replay_results import Replayed

    with connected(access) as client:
        same = same_fleet(client, fleet)
    cost_usd = fleet.cost_usd(player.outcomes.end_s) if same else None
    return Replayed(outcomes=player.outcomes, connections=connections, cost_usd=cost_usd)


def _compared(
    found: "Replayed", known: "Known", seed: int, style: ProgressStyle
) -> "tuple[Replayed, bool]":
    """The same with what the simulator says; whether that was interrupted, and is not there."""
    from controlplane.building.types import Progress
    from controlplane.cli.replaying.comparison import simulated

    steps = steps_of(style)
    try:
        with termination_as_interrupt(), shown(style) as show:

            def tell(part: float) -> None:
                done = int(steps * part)
                show(Progress(step="simulate", message="simulating", done=done, total=steps))

            report, lead_s = simulated(known, found.outcomes.trace, seed, tell)
    except KeyboardInterrupt:
        return found, True
    notes = list(known.notes)
    if found.cost_usd is None:
        notes.append("The number of workers changed meanwhile, so what they cost is not known.")
    return replace(found, simulated=report, lead_s=lead_s, notes=notes), False


def _say_interrupted(outcomes: "Outcomes") -> None:
    total = len(outcomes.trace)
    print(
        f"interrupted: {outcomes.sent:,} of {counted(total, 'query')} "
        f"{'was' if total == 1 else 'were'} sent, and of"
        f" {outcomes.ended:,} it is known what became of them",
        file=sys.stderr,
    )
