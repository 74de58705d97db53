"""``query`` and ``explain``: ask for a task within an SLO, and why the answer is what it is."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from controlplane.cli.gateway_client import UrlOption, at, connect
from controlplane.cli.outcome import JsonOption, Output, OutputOption, emit
from controlplane.cli.render import (
    console,
    details,
    ms,
    percent,
    printable,
    table,
    usd_per_million,
)
from variants.errors import InvalidInput
from variants.figures import counted
from variants.types import Prefer

Spec = Mapping[str, Any]
Row = Mapping[str, Any]

CHOSEN = {
    "planned": "the plan sends such queries there",
    "cheapest_that_fits": "the cheapest that fits",
    "most_accurate_that_fits": "the most accurate that fits",
    "earliest_completion": "of those that fit it is done first",
    "least_energy_that_fits": "the one with least energy that fits",
    "energy_not_measured": "the cheapest that fits: no energy was measured",
    "pinned": "the query names it",
    "loaded_on_demand": "it was loaded for this query",
    "canary": "a new version proves itself on a share of the queries",
    "best_effort": "none fits, this is the nearest",
    "cached": "it had answered the same before",
}
"""Why a variant was chosen, by the values of ``planner.types.Reason``."""
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


def query(
    task: TaskArgument,
    latency_ms: LatencyOption = None,
    accuracy: AccuracyOption = None,
    cost: CostOption = None,
    prefer: PreferOption = None,
    best_effort: BestEffortOption = False,
    variant: VariantOption = None,
    input: Annotated[
        str | None,
        typer.Option("--input", "-i", metavar="FILE", help="Rows as .json or .npz; - reads JSON."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option("--row", metavar="N", help="Only this row of the file, counted from 0."),
    ] = None,
    url: UrlOption = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask for a task: the system picks the variant, the worker and the batch.

    Its SLO (service level objective) is what the answer has to keep: a deadline, a floor of
    accuracy, a ceiling of cost. What is not said is the task's default.

    Without --input it asks with a row of zeros, which shows the path but means nothing.

    \b
    modelless query digits --latency-ms 50 --accuracy 0.97 --input rows.json
    """
    if row is not None and input is None:
        raise InvalidInput("--row picks a row of a file: name it by --input")
    slo = {"latency_ms": latency_ms, "accuracy": accuracy, "cost": cost, "prefer": prefer}
    body = _body(task, slo, best_effort, variant)
    with connect(url) as client:
        specs = client.get(at("v1", "tasks", task))["inputs"]
        if input is None:
            print("no --input: asking with a row of zeros", file=sys.stderr)
        body["inputs"] = read_inputs(input, specs, row)
        reply, reason, place = client.ask(body)
    emit(reply, output, lambda: _show(reply, reason, place))


def explain(
    task: TaskArgument,
    latency_ms: LatencyOption = None,
    accuracy: AccuracyOption = None,
    cost: CostOption = None,
    prefer: PreferOption = None,
    best_effort: BestEffortOption = False,
    variant: VariantOption = None,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=1, help="Rows that the query has.")
    ] = 1,
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
    slo = {"latency_ms": latency_ms, "accuracy": accuracy, "cost": cost, "prefer": prefer}
    with connect(url) as client:
        told = client.post("/v1/explain", _body(task, slo, best_effort, variant) | {"rows": rows})
    emit(told, Output.JSON if json else output, lambda: _show_explanation(told))


def _body(
    task: str, slo: Mapping[str, Any], best_effort: bool, variant: str | None
) -> dict[str, Any]:
    """A query without its inputs."""
    body: dict[str, Any] = {"task": task}
    if any(value is not None for value in slo.values()):
        body["slo"] = {name: value for name, value in slo.items() if value is not None}
    if best_effort:
        body["best_effort"] = True
    if variant is not None:
        body["variant"] = variant
    return body


def read_inputs(source: str | None, specs: Sequence[Spec], row: int | None) -> Any:
    """The rows to send: a list for a task with one input, else input names to lists.

    Raises:
        InvalidInput: the file cannot be read or does not hold rows of this task.
    """
    if source is None:
        return _named({spec["name"]: _zeros(spec["shape"]) for spec in specs})
    if source.endswith(".npz"):
        return _named(_from_npz(source, specs, 0 if row is None else row))
    rows = _from_json(source, specs)
    if row is None:
        return rows
    if isinstance(rows, dict):
        return {name: [_pick(some, row, source)] for name, some in rows.items()}
    return [_pick(rows, row, source)]


def _named(rows: Mapping[str, Any]) -> Any:
    """A single input may be given without its name."""
    return next(iter(rows.values())) if len(rows) == 1 else dict(rows)


def _zeros(shape: Sequence[int]) -> Any:
    rows: Any = 0
    for size in reversed((1, *shape)):
        rows = [rows] * size
    return rows


def _from_json(source: str, specs: Sequence[Spec]) -> Any:
    try:
        text = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{source} cannot be read: {error.strerror}") from error
    where = "standard input" if source == "-" else source
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{where} is not JSON: {error}") from error
    if isinstance(data, dict) and "inputs" in data:
        data = data["inputs"]
    if not isinstance(data, list | dict):
        raise InvalidInput(f"{where} holds no rows: a list of rows is needed")
    # A single row may stand without the list around it.
    if isinstance(data, list) and len(specs) == 1 and _depth(data) == len(specs[0]["shape"]):
        return [data]
    return data


def _depth(data: Any) -> int:
    depth = 0
    while isinstance(data, list):
        depth += 1
        data = data[0] if data else None
    return depth


def _pick(rows: Any, row: int, source: str) -> Any:
    if not isinstance(rows, list) or not 0 <= row < len(rows):
        count = len(rows) if isinstance(rows, list) else 0
        raise InvalidInput(f"{source} has no row {row}; it has {count} rows")
    return rows[row]


def _from_npz(source: str, specs: Sequence[Spec], row: int) -> dict[str, Any]:
    """One row of each input. Arrays are found by the input's name, a single one by its shape."""
    arrays = _arrays(source)
    rows = {}
    for spec in specs:
        shape = tuple(spec["shape"])
        fitting = [name for name, array in arrays.items() if array.shape[1:] == shape]
        name = spec["name"]
        if name not in arrays and len(specs) == 1 and len(fitting) == 1:
            name = fitting[0]
        if name not in arrays:
            has = ", ".join(sorted(arrays)) or "none of numbers"
            raise InvalidInput(f"{source} has no array {name!r}; it has: {has}")
        if not 0 <= row < len(arrays[name]):
            raise InvalidInput(f"{source} has no row {row}; it has {len(arrays[name])} rows")
        rows[spec["name"]] = arrays[name][row : row + 1].tolist()
    return rows


def _arrays(source: str) -> dict[str, Any]:
    """The arrays of an ``.npz`` that may hold rows of numbers, by name.

    Raises:
        InvalidInput: it cannot be read, or is none.
    """
    import numpy as np

    try:
        with Path(source).open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            arrays = {} if isinstance(loaded, np.ndarray) else dict(loaded)
    except OSError as error:
        raise InvalidInput(f"{source} cannot be read: {error.strerror or error}") from error
    except Exception as error:
        # Damage shows as zlib.error, struct.error, BadZipFile and more, without a common base.
        raise InvalidInput(f"{source} cannot be read as .npz: {error}") from error
    if isinstance(loaded, np.ndarray):
        raise InvalidInput(f"{source} cannot be read as .npz: it is a single array")
    return {
        name: array
        for name, array in arrays.items()
        if isinstance(array, np.ndarray) and array.ndim and array.dtype.kind in "biuf"
    }


def _show(reply: Mapping[str, Any], reason: str, place: str) -> None:
    answers: list[tuple[str, str]] = []
    if reply.get("labels"):
        scores = reply.get("scores") or [None] * len(reply["labels"])
        pairs = zip(reply["labels"], scores, strict=True)
        texts = [label if score is None else f"{label} ({score:.4g})" for label, score in pairs]
        answers.append(("label", ", ".join(texts[:20]) + (", ..." if len(texts) > 20 else "")))
    else:
        text = orjson.dumps(reply["outputs"]).decode()
        answers.append(("outputs", text if len(text) <= 400 else text[:400] + "..."))
    details(
        [
            *answers,
            ("variant", f"{reply['variant']} of {reply['model_version']}"),
            *([("chosen", CHOSEN.get(reason, reason))] if reason else []),
            ("worker", reply["worker"]),
            *([("answered", place)] if place else []),
            ("batch", str(reply["batch_size"])),
            ("queue, run", f"{ms(reply['queue_ms'])} ms, {ms(reply['run_ms'])} ms"),
            ("accuracy", percent(reply["accuracy"])),
            ("cost", f"{usd_per_million(reply['cost_usd_per_1k'])} USD per million queries"),
            ("slo met", "yes" if reply["slo_met"] else "no"),
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
    details([*pairs, ("plan", told["plan"])])
    console().print()
    table(
        ["", "VARIANT", "DEVICE", ">ACCURACY", ">RUN MS", ">USD/MILLION", ">LOADED", "WHY"],
        (_row(one) for one in told["variants"]),
        empty="The task has no variants.",
    )
    if any(one["verdict"] == "fits" for one in told["variants"]):
        console().print("→ chosen, ✓ would meet the SLO as well, ✗ would not", style="dim")


def asked_words(told: Row) -> str:
    """What was asked for, the task's defaults filled in."""
    said = [f"{told['task']} within {told['latency_ms']:g} ms"]
    if told["accuracy"] is not None:
        said.append(f"accuracy at least {told['accuracy']:g}")
    if told["cost"] is not None:
        said.append(f"at most {usd_per_million(told['cost'])} USD per million queries")
    said.append(f"preferring {told['prefer']}")
    if told["pinned"] is not None:
        said.append(f"of {told['pinned']} alone")
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
        ms(one["run_ms"]),
        usd_per_million(one["price_usd_per_1k"]),
        counted(one["loaded_on"], "worker") if one["loaded_on"] else "-",
        one["why"],
    ]
