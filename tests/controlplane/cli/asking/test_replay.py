"""``modelless replay``: a trace against a gateway, each query at its time."""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from controlplane.cli.asking.rows import QueryRows
from controlplane.cli.commands.asking.replay import rows_of, words_of_nothing
from controlplane.cli.gateway_client import Client
from controlplane.cli.replaying.comparison import lead_of
from controlplane.cli.replaying.held_texts import MOST_LOOKED_AT, held_by_some
from controlplane.cli.replaying.replay_results import differences_of
from tests.controlplane.builders import variant
from tests.controlplane.cli.asking.answering import Answering, Asked
from tests.controlplane.cli.gateway import ANSWER
from tests.controlplane.cli.shell import Shell
from tests.variants.catalog_builders import set_slo
from tests.workers.builders import until
from variants.errors import DeadlineExceeded, InvalidInput, ModellessError, Overloaded
from variants.types import LengthBucket, ModelVersion, OpenAxis, Registration, Slo, Stage, TaskName

QUERIES = "arrival_s,task,latency_slo_ms,min_accuracy,max_cost_usd_per_1k\n"
RATES = "second,task,requests,latency_slo_ms,min_accuracy\n"
PATIENT_MS = 60_000
"""No answer of a test is later, however busy the machine is."""


def trace_of(tmp_path: Path, *rows: str, header: str = QUERIES) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(header + "".join(f"{row}\n" for row in rows))
    return str(path)


def played(shell: Shell, gateway: Answering, *arguments: str) -> dict[str, Any]:
    ended = shell("replay", *arguments, "-o", "json", "--progress", "none", url=gateway.url)
    assert ended.code == 0, ended.err
    found: dict[str, Any] = ended.json()
    return found


def test_each_query_is_sent_with_its_slo_and_the_next_row(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    rows = np.arange(128, dtype=np.float32).reshape(2, 64)
    np.savez(tmp_path / "rows.npz", pixels=rows)
    trace = trace_of(
        tmp_path,
        f"0.02,digits,{PATIENT_MS},0.9,0.5",
        f"0,digits,{PATIENT_MS},,",
        f"0.04,digits,{PATIENT_MS},,",
    )

    found = played(shell, gateway, trace, "--input", f"{tmp_path}/rows.npz")

    asked = sorted(gateway.asked, key=lambda one: (one["inputs"], len(one["slo"])))
    patient = {"latency_ms": PATIENT_MS}
    assert [one["slo"] for one in asked] == [
        patient,
        patient,
        patient | {"accuracy": 0.9, "cost": 0.5},
    ]
    first, second = rows[:1].tolist(), rows[1:].tolist()
    assert [one["inputs"] for one in asked] == [first, first, second]
    assert all("via" in headers for headers in gateway.headers), "else refusals would be held"
    assert (found["requests"], found["in_time"], found["late"], found["rejected"]) == (3, 3, 0, 0)
    assert found["effective_accuracy"] == pytest.approx(0.97)
    assert found["variants"] == {"mlp-v1-onnx-int8": 3}
    assert found["latency_ms"]["p50"] > 0
    assert found["unsent"] == 0


def test_no_query_waits_for_the_one_before(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    """An open loop: the first is answered only once the last has been asked."""

    async def decide(number: int, asked: Asked) -> dict[str, Any]:
        await until(lambda: len(gateway.asked) == 3)
        return ANSWER

    gateway.decide = decide
    found = played(
        shell, gateway, trace_of(tmp_path, *[f"0.0{n},digits,{PATIENT_MS},," for n in (1, 2, 3)])
    )
    assert found["in_time"] == 3


def test_what_was_not_answered_in_time_is_late_or_rejected(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    ends: list[dict[str, Any] | ModellessError] = [
        ANSWER,
        ANSWER | {"slo_met": False, "variant": "slow-v1-onnx-fp32", "accuracy": 0.95},
        DeadlineExceeded("too late"),
        Overloaded("the queues are too long"),
        InvalidInput("no rows"),
    ]

    async def decide(number: int, asked: Asked) -> dict[str, Any] | ModellessError:
        return ends[number]

    gateway.decide = decide
    trace = trace_of(tmp_path, *[f"{n / 100},digits,{PATIENT_MS},," for n in range(5)])

    found = played(shell, gateway, trace)

    words = ("requests", "in_time", "late", "rejected", "violation_ratio")
    assert [found[name] for name in words] == [5, 2, 1, 2, 0.6]
    assert [found["by_gateway"][name] for name in words] == [5, 1, 2, 2, 0.8]
    assert found["by_gateway"]["effective_accuracy"] == pytest.approx(0.97)
    assert found["refused"] == {"DEADLINE_EXCEEDED": 1, "OVERLOADED": 1, "INVALID_INPUT": 1}
    table = shell("replay", trace, "--progress", "none", url=gateway.url)
    assert table.code == 0


def test_an_answer_that_comes_after_its_slo_is_late_by_the_clock_of_the_client(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    async def decide(number: int, asked: Asked) -> dict[str, Any]:
        await asyncio.sleep(0.05)
        return ANSWER

    gateway.decide = decide
    found = played(shell, gateway, trace_of(tmp_path, "0,digits,20,,"))

    assert (found["in_time"], found["late"]) == (0, 1)
    assert found["by_gateway"]["in_time"] == 1
    assert found["latency_ms"]["p50"] >= 50


def test_a_client_that_falls_behind_says_so(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    """With one connection the second query waits for the first: that is not the gateway's fault."""

    async def decide(number: int, asked: Asked) -> dict[str, Any]:
        await asyncio.sleep(0.1)
        return ANSWER

    gateway.decide = decide
    trace = trace_of(tmp_path, *[f"0,digits,{PATIENT_MS},,"] * 4)

    found = played(shell, gateway, trace, "--connections", "1")
    shown = shell("replay", trace, "--connections", "1", "--progress", "none", url=gateway.url)

    assert found["client"]["fell_behind"] is True
    assert found["client"]["waited_for_connection"] == 3
    assert found["client"]["behind_ms"]["most"] >= 300
    assert found["in_time"] == 4
    assert found["client"]["sent_late"] >= 3
    assert found["notes"][0].startswith("The client itself fell behind: ")
    assert "The client itself fell behind" in shown.out
    assert "All connections (1) were busy for 3 of them" in shown.out


def test_no_floor_in_the_trace_is_none_also_where_the_task_has_one(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    set_slo(gateway.catalog, TaskName("digits"), Slo(latency_ms=50, accuracy=0.9, cost=0.1))
    played(shell, gateway, trace_of(tmp_path, f"0,digits,{PATIENT_MS},,"))
    assert gateway.asked[0]["slo"] == {"latency_ms": PATIENT_MS, "accuracy": 0.0, "cost": 1e9}


def test_a_trace_of_rates_is_drawn_by_its_seed_and_may_be_cut_and_hastened(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    trace = trace_of(
        tmp_path, f"0,digits,5,{PATIENT_MS},", f"9,digits,500,{PATIENT_MS},", header=RATES
    )
    cut = ("--speed", "10", "--for", "0.5", "--seed", "3")

    first = played(shell, gateway, trace, *cut)
    second = played(shell, gateway, trace, *cut)

    drawn = np.random.default_rng(3).poisson([5.0, 500.0])[0]
    assert first["requests"] == second["requests"] == drawn > 0
    assert first["unsent"] == 0


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (["0,faces,50,,"], (), "trace.csv, line 2, column task: 'faces' is unknown"),
        (["0,digits,fast,,"], (), "line 2, column latency_slo_ms: 'fast' is not a number"),
        (["0,digits,50,,"], ("--input", "none.npz"), "none.npz cannot be read"),
        (["0,digits,50,,"], ("--input", "faces=rows.json"), "faces=rows.json cannot be read"),
        (["0,digits,50,,"], ("--speed", "0"), "--speed 0 is not possible"),
        (["0,digits,50,,"], ("--for", "nan"), "--for nan is not possible"),
        (
            ["9,digits,50,,"],
            ("--for", "2"),
            "no query comes within --for 2 s; the first comes at 9",
        ),
        ([], (), "the file holds a header and no rows"),
    ],
)
def test_what_cannot_be_played_is_one_sentence(
    gateway: Answering,
    shell: Shell,
    tmp_path: Path,
    rows: list[str],
    options: tuple[str, ...],
    said: str,
) -> None:
    ended = shell("replay", trace_of(tmp_path, *rows), *options, url=gateway.url)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert gateway.asked == []


def test_rows_that_are_none_of_the_task_are_refused(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    trace = trace_of(tmp_path, "0,digits,50,,")
    np.savez(tmp_path / "faces.npz", faces=np.zeros((2, 3)))
    (tmp_path / "none.json").write_text("[]")
    for file, said in (
        ("faces.npz", "has no array 'pixels'"),
        ("none.json", "row 0 of the input 'pixels' has the shape [0], not [64]"),
    ):
        ended = shell("replay", trace, "-i", f"{tmp_path}/{file}", url=gateway.url)
        assert (ended.code, said in ended.err) == (2, True), ended.err


def test_tasks_of_texts_are_asked_with_texts(tmp_path: Path) -> None:
    numbers = [{"name": "ids", "dtype": "int64", "shape": [-1]}]
    single: dict[str, Any] = {"inputs": numbers, "text": {"pairs": False}}
    tasks: dict[str, dict[str, Any]] = {
        "opinions": single,
        "pairs": {"inputs": numbers, "text": {"pairs": True}},
        "numbers": {"inputs": numbers, "text": None},
    }
    rows = rows_of((), set(tasks), tasks)
    assert [json.loads(rows[name].inputs(0)) for name in ("opinions", "pairs")] == [
        ["a text"],
        [["a text", "another one"]],
    ]
    assert words_of_nothing(tasks.values()) == "rows of zeros and the text 'a text'"
    table, lines = tmp_path / "texts.csv", tmp_path / "texts.jsonl"
    table.write_text('text,label\n"good, and ""bad""",pos\nfilm,neg\n')
    lines.write_text('{"text": "a", "text_pair": "b"}\n')
    given = [f"opinions={table}", f"pairs={lines}"]
    rows = rows_of(given, {"opinions", "pairs"}, tasks)
    asked = [json.loads(rows["opinions"].inputs(number)) for number in range(3)]
    assert asked == [['good, and "bad"'], ["film"], ['good, and "bad"']]
    assert json.loads(rows["pairs"].inputs(5)) == [["a", "b"]]
    np.savez(tmp_path / "ids.npz", ids=np.ones((1, 3), np.int64))
    rows = rows_of([f"{tmp_path}/ids.npz"], {"opinions"}, tasks)
    assert json.loads(rows["opinions"].inputs(0)) == [[1, 1, 1]]
    table.write_text("words\ngood\n")
    lines.write_text('{"text": 3}\n')
    for file, said in (
        (table, "lacks the column 'text'"),
        (lines, "row 0: text is no text"),
        (tmp_path / "no.csv", "cannot be read"),
        (tmp_path / "no.jsonl", "cannot be read"),
    ):
        with pytest.raises(InvalidInput, match=said):
            rows_of([str(file)], {"opinions"}, tasks)


class Explaining:
    """A gateway of which a model takes no text of more than ten characters, and none one of 20."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def post(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(document)
        [text] = document["inputs"]
        if len(text) > 20:
            raise InvalidInput("text 0 has 21 tokens")
        return {"too_long_for": ["small-v1-fp32"] if len(text) > 10 else []}


def test_texts_that_only_some_models_hold_are_told_where_it_is_compared() -> None:
    def said(texts: list[str], others: Sequence[str] = ("d1",)) -> str:
        task = {"name": "opinions", "text": {"pairs": False, "others": list(others)}}
        return held_by_some(cast("Client", client), task, QueryRows({"text": texts}))

    client = Explaining()
    assert said(["x" * 12], others=()) == ""
    assert client.asked == []
    assert said(["x" * 3, "x" * 21]) == ""
    assert said(["x" * 3, "x" * 12, "x" * 11]) == (
        "Of 3 texts, 2 of opinions are held by some of its variants only, and not by small-v1-fp32."
        " The simulator has every variant answer every query, so it may find room that there is"
        " not."
    )
    client.asked.clear()
    assert said(["x" * 12] * 250).startswith("Of 84 texts that were looked at, of 250, 84 of opini")
    assert len(client.asked) == 84 <= MOST_LOOKED_AT


def test_without_a_gateway_nothing_is_played(shell: Shell, tmp_path: Path) -> None:
    ended = shell("replay", trace_of(tmp_path, "0,digits,50,,"), url="http://127.0.0.1:1")
    assert (ended.code, ended.out) == (3, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_prints_what_was_done_so_far(
    gateway: Answering, shell: Shell, tmp_path: Path, number: signal.Signals
) -> None:
    ended_by: list[int] = []

    async def decide(at: int, asked: Asked) -> dict[str, Any]:
        if at == 1:
            os.kill(os.getpid(), number)
            await until(lambda: bool(ended_by))
        return ANSWER

    gateway.decide = decide
    trace = trace_of(tmp_path, *[f"{at_s},digits,{PATIENT_MS},," for at_s in (0, 0.2, 3_000)])

    ended = shell("replay", trace, "-o", "json", "--progress", "none", url=gateway.url)
    ended_by.append(ended.code)

    assert ended.code == 130
    found = json.loads(ended.out)
    known = found["requests"]
    assert (found["in_time"], found["unsent"]) == (known, 3 - known)
    assert f"interrupted: 2 of 3 queries were sent, and of {known} it is known" in ended.err


@pytest.mark.slow
def test_the_simulator_plays_the_same_queries_beside_it(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    trace = trace_of(tmp_path, *[f"{n / 100},digits,{PATIENT_MS},0.9," for n in range(20)])

    found = played(shell, gateway, trace, "--compare")
    shown = shell("replay", trace, "--compare", "--progress", "none", url=gateway.url)

    simulated = found["simulated"]
    assert (simulated["requests"], simulated["in_time"]) == (20, 20)
    assert found["difference"]["in_time"] == 0
    assert found["simulated_lead_s"] == 5.0
    words = [line.split() for line in shown.out.splitlines()]
    assert ["BY", "CLIENT", "BY", "GATEWAY", "SIMULATED", "DIFFERENCE"] in words
    assert ["in", "time", "20", "20", "20", "+0"] in words
    assert "its fleet starts empty, so the first query comes 5 s later there" in shown.out


def test_the_simulator_has_to_know_how_long_rows_are(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    [digits] = gateway.catalog.snapshot().tasks
    bucket = LengthBucket(
        of=TaskName("lines"), length=64, axes=(OpenAxis(input=digits.inputs[0].name, axis=0),)
    )
    one = variant("m", accuracy=0.9)
    task = replace(digits, name=TaskName("lines.64"), bucket=bucket)
    version = ModelVersion(
        task=task.name, model=one.model, version=1, stage=Stage.LIVE, source=one.artifact,
        created_at="2026-01-01T00:00:00+00:00",
    )  # fmt: skip
    given = (replace(one, task=task.name),)
    gateway.catalog.register(Registration(task=task, version=version, variants=given, profiles=()))
    for name, said in (
        ("lines", "rows of task lines differ in length, and the simulator does not know how long"),
        ("lines.64", "task lines.64 has no live variant that was measured"),
    ):
        ended = shell("replay", trace_of(tmp_path, f"0,{name},50,,"), "--compare", url=gateway.url)
        assert (ended.code, f"--compare: {said}" in ended.err) == (2, True), ended.err


def test_no_difference_has_no_sign_of_a_loss() -> None:
    counts = {"in_time": 0, "late": 0, "rejected": 0}
    tiny = {"violation_ratio": -1e-6, "effective_accuracy": 1e-6, "cost_usd": -1e-9}
    assert differences_of(counts | tiny) == [
        "", "+0", "+0", "+0", "+0.00 points", "+0.00 points", "+0.000000",
    ]  # fmt: skip


def test_the_simulated_fleet_may_load_the_variants_of_all_tasks_first() -> None:
    """Two tasks may have variants of one name, and each has a row for every size of batch."""
    rows = [
        {"task": task, "variant": "cnn", "device_kind": "cpu-2", "batch_size": size, "load_s": 10.0}
        for task in ("digits", "letters")
        for size in (1, 8)
    ]
    assert lead_of(rows) == 20.0
    assert lead_of([{**row, "load_s": None} for row in rows]) == 5.0
