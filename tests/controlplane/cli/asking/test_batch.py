"""``modelless batch``: a file of rows, answered row by row whatever comes between."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controlplane.cli.batching.asker import GROWS_AFTER, Asker, RowsPerQuery, rows_that_fit
from controlplane.cli.batching.journal import Journal
from controlplane.cli.batching.row import Row
from controlplane.cli.batching.rows_query import Batched
from controlplane.cli.gateway_client import Access
from controlplane.cli.outcome import NotRunning
from tests.controlplane.cli.asking.answering import Answering, Asked
from tests.controlplane.cli.asking.batched import TWO, answers_of, batch, row, rows_jsonl, rows_npz
from tests.controlplane.cli.gateway import ANSWER
from tests.controlplane.cli.shell import Shell
from tests.disks import fill, small_disk
from tests.workers.builders import until
from variants.errors import (
    DeadlineExceeded,
    InvalidInput,
    ModellessError,
    Overloaded,
    SloInfeasible,
)


def test_every_row_gets_its_answer_in_its_place(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    answers = tmp_path / "answers.jsonl"

    ended = batch(
        shell, gateway, rows_npz(tmp_path, 10), answers, "--rows-per-query", "4", "--accuracy",
        "0.9", "--json",
    )  # fmt: skip

    assert (ended.code, ended.err) == (0, "")
    assert sorted(one["rows"] for one in gateway.asked) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    asked = gateway.asked[0]
    assert (asked["priority"], asked["latency_ms"], asked["accuracy"]) == (65_535, 30_000, 0.9)
    found = answers_of(answers)
    assert [one["row"] for one in found] == list(range(10))
    assert [one["label"] for one in found] == [str(number) for number in range(10)]
    assert found[3] == {
        "row": 3,
        "outputs": [0.75 * (number == 3) for number in range(10)],
        "label": "3",
        "score": 0.75,
        "variant": "mlp-v1-onnx-int8",
        "accuracy": 0.97,
    }
    said = ended.json()
    assert (said["rows"], said["answered"], said["refused"]) == (10, 10, 0)
    assert said["variants"] == {"mlp-v1-onnx-int8": 10}
    assert sorted(path.name for path in tmp_path.glob("answers*")) == ["answers.jsonl"]


def test_answers_as_arrays_have_every_row(gateway: Answering, shell: Shell, tmp_path: Path) -> None:
    rows = rows_jsonl(tmp_path, row(7), "[1, 2]", "", row(3))
    answers = tmp_path / "answers.npz"

    ended = batch(shell, gateway, rows, answers)

    assert ended.code == 1
    found = np.load(answers)
    assert found["scores"].dtype == np.float32
    assert found["scores"].argmax(axis=1).tolist() == [7, 0, 3]
    assert not found["scores"][1].any()
    assert found["label"].tolist() == ["7", "", "3"]
    assert found["variant"].tolist() == ["mlp-v1-onnx-int8", "", "mlp-v1-onnx-int8"]
    assert found["code"].tolist() == ["", "INVALID_INPUT", ""]
    assert found["error"][1] == "pixels has the shape [2], not [64]"
    assert found["accuracy"][[0, 2]].tolist() == [0.97, 0.97]


def test_a_row_that_is_refused_stands_alone_with_its_error(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    async def decide(number: int, asked: Asked) -> dict[str, Any] | ModellessError:
        return InvalidInput("the model knows no 5") if 5 in asked["rows"] else ANSWER

    gateway.decide = decide
    rows = rows_jsonl(tmp_path, *[row(number) for number in range(8)], "no JSON")
    answers = tmp_path / "answers.jsonl"

    ended = batch(shell, gateway, rows, answers, "--rows-per-query", "8")

    assert ended.code == 1
    assert "8 of 9 rows" not in ended.out
    assert "7 of 9 rows" in ended.out
    found = answers_of(answers)
    assert [one["row"] for one in found] == list(range(9))
    refused = {one["row"]: (one["code"], one["error"]) for one in found if "error" in one}
    assert refused[5] == ("INVALID_INPUT", "the model knows no 5")
    assert refused[8][1].startswith("the line is not JSON")
    assert set(refused) == {5, 8}


def test_what_is_said_of_a_row_has_its_number_in_the_file(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    async def decide(number: int, asked: Asked) -> dict[str, Any] | ModellessError:
        numbered = [at for at, value in enumerate(asked["rows"]) if value in (5, 6)]
        if not numbered:
            return ANSWER
        return InvalidInput(f"text {numbered[0]} has 9 tokens; row {numbered[0]} of text 07")

    gateway.decide = decide
    rows = rows_jsonl(tmp_path, *[row(number) for number in range(8)])
    answers = tmp_path / "answers.jsonl"

    assert batch(shell, gateway, rows, answers, "--rows-per-query", "8").code == 1

    assert {one["row"]: one["error"] for one in answers_of(answers) if "error" in one} == {
        number: f"text {number} has 9 tokens; row {number} of text 07" for number in (5, 6)
    }


def test_what_is_refused_for_now_is_asked_again(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    async def decide(number: int, asked: Asked) -> dict[str, Any] | ModellessError:
        busy = Overloaded("the queues are too long")
        busy.retry_after_s = 0.01
        late = DeadlineExceeded("too late")
        late.retry_after_s = 0.01
        return ANSWER if number >= 3 else [busy, late, busy][number]

    gateway.decide = decide
    answers = tmp_path / "answers.jsonl"

    ended = batch(shell, gateway, rows_npz(tmp_path, 2), answers, "--in-flight", "1", "--json")

    assert ended.code == 0
    assert [one["rows"] for one in gateway.asked] == [[0], [0], [0], [0], [1]]
    assert ended.json()["waits"] == {"OVERLOADED": 2, "DEADLINE_EXCEEDED": 1}
    assert [one["label"] for one in answers_of(answers)] == ["0", "1"]


def test_answers_that_come_out_of_order_are_put_in_order(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    async def decide(number: int, asked: Asked) -> dict[str, Any]:
        if asked["rows"] == [0]:
            await until(lambda: len(gateway.asked) == 6)
        return ANSWER

    gateway.decide = decide
    answers = tmp_path / "answers.jsonl"

    assert batch(shell, gateway, rows_npz(tmp_path, 6), answers).code == 0
    assert [one["row"] for one in answers_of(answers)] == list(range(6))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_gone_on_with_and_nothing_asked_twice(
    gateway: Answering, shell: Shell, tmp_path: Path, number: signal.Signals
) -> None:
    ended_by: list[int] = []

    async def decide(at: int, asked: Asked) -> dict[str, Any]:
        if asked["rows"] == [3]:
            os.kill(os.getpid(), number)
            await until(lambda: bool(ended_by))
        return ANSWER

    gateway.decide = decide
    rows, answers = rows_npz(tmp_path, 8), tmp_path / "answers.jsonl"
    one = ("--in-flight", "1")

    interrupted = batch(shell, gateway, rows, answers, *one)
    ended_by.append(interrupted.code)
    assert (interrupted.code, interrupted.out) == (130, "")
    assert "interrupted: 3 of 8 rows are done; `--resume` goes on" in interrupted.err
    assert not answers.exists()

    again = batch(shell, gateway, rows, answers, *one)
    assert again.code == 2
    assert "has the answers of a run that was interrupted: --resume goes on with it" in again.err
    other = batch(shell, gateway, rows, answers, *one, "--resume", "--accuracy", "0.5")
    assert other.code == 2
    assert "is of another run (needs)" in other.err

    # A process that was killed may have left a part of a line.
    with (tmp_path / "answers.jsonl.part").open("a") as part:
        part.write('{"row":3,"outp')
    gateway.decide = answer_all
    gateway.asked.clear()
    resumed = batch(shell, gateway, rows, answers, *one, "--resume", "--json")

    assert (resumed.code, resumed.err) == (0, "")
    assert [one["rows"] for one in gateway.asked] == [[3], [4], [5], [6], [7]]
    assert (resumed.json()["resumed"], resumed.json()["rows"]) == (3, 8)
    assert [one["label"] for one in answers_of(answers)] == list("01234567")
    finished = batch(shell, gateway, rows, answers, "--resume")
    assert (finished.code, finished.err) == (0, f"{answers} is finished\n")


async def answer_all(number: int, asked: Asked) -> dict[str, Any]:
    return ANSWER


@pytest.mark.slow
def test_a_full_disk_is_said_and_the_run_is_gone_on_with(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    """That was a traceback."""
    rows = rows_npz(tmp_path, 8)
    with small_disk(64) as disk:
        answers = disk / "answers.jsonl"

        async def decide(number: int, asked: Asked) -> dict[str, Any]:
            if asked["rows"] == [3]:
                fill(disk)
                # What is left of the block of the lines.
                with (disk / "answers.jsonl.part").open("ab") as part:
                    part.write(bytes(4_000))
            return ANSWER

        gateway.decide = decide
        full = batch(shell, gateway, rows, answers, "--in-flight", "1")
        assert full.code == 1
        assert "3 of 8 rows are done; `--resume` goes on" in full.err
        assert f"error: {answers}.part cannot be written: No space left on device" in full.err

        (disk / "filler").unlink()
        gateway.decide = answer_all
        assert batch(shell, gateway, rows, answers, "--resume").code == 0
        assert [one["label"] for one in answers_of(answers)] == list("01234567")


@pytest.mark.parametrize("before", [{"task": "t", "truncate": True}, {"task": "t"}])
def test_texts_that_were_cut_off_are_another_run(tmp_path: Path, before: dict[str, Any]) -> None:
    with Journal(tmp_path / "a.jsonl", before, resume=False) as journal:
        journal.note([0], [b'{"row":0}'])
    now = {"task": "t"} if "truncate" in before else {"task": "t", "truncate": True}
    with pytest.raises(InvalidInput, match=r"is of another run \(truncate\)"):
        Journal(tmp_path / "a.jsonl", now, resume=True)
    with Journal(tmp_path / "a.jsonl", before, resume=True) as journal:
        assert len(journal.done) == 1


def test_what_can_never_be_answered_ends_it_and_keeps_what_was(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    async def decide(number: int, asked: Asked) -> dict[str, Any] | ModellessError:
        return ANSWER if number == 0 else SloInfeasible("none fits", reasons={}, alternatives=())

    gateway.decide = decide
    answers = tmp_path / "answers.jsonl"
    ended = batch(shell, gateway, rows_npz(tmp_path, 4), answers, "--in-flight", "1")
    assert (ended.code, ended.out) == (1, "")
    assert "1 of 4 rows are done; `--resume` goes on" in ended.err
    assert "error: none fits" in ended.err
    assert not answers.exists()


def test_a_pinned_variant_is_asked(gateway: Answering, shell: Shell, tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    rows = rows_npz(tmp_path, 1)
    assert batch(shell, gateway, rows, answers, "--variant", "mlp-v1-onnx-fp32").code == 0
    assert gateway.asked[-1]["variant"] == "mlp-v1-onnx-fp32"


def test_no_answer_is_far_from_its_place_while_one_is_waited_for(
    gateway: Answering, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else putting all answers in order would take the memory of all."""
    monkeypatch.setattr("controlplane.cli.batching.asker.LEAST_WINDOW", 1)
    answers = tmp_path / "answers.jsonl"
    part = tmp_path / "answers.jsonl.part"
    kept: list[list[int]] = []

    async def decide(at: int, asked: Asked) -> dict[str, Any]:
        if asked["rows"] == [0]:
            await until(lambda: part.read_text().count("\n") >= WINDOW)
            await asyncio.sleep(0.05)  # time for more, if there were
            kept.append([json.loads(line)["row"] for line in part.read_text().splitlines()])
        return ANSWER

    gateway.decide = decide
    rows = rows_jsonl(tmp_path, row(0), *["wrong"] * 20, row(1), *["wrong"] * 20, row(2))
    assert batch(shell, gateway, rows, answers).code == 1
    assert kept == [list(range(1, WINDOW + 1))]
    assert [one["row"] for one in answers_of(answers)] == list(range(43))


WINDOW = 16
"""Eight times two queries of one row."""


async def test_a_gateway_that_never_comes_back_ends_it(tmp_path: Path) -> None:
    asked = Batched(task="digits", inputs=TWO, labels=())
    values = {"age": np.int32(1), "marks": np.zeros(2, np.float32)}
    rows = [Row(number=0, values=values)]
    with Journal(tmp_path / "a.jsonl", {}, resume=False) as journal:
        asker = Asker(
            asked, journal, Access(url="http://127.0.0.1:1"),
            rows_per_query=RowsPerQuery(1), in_flight=2, patience_s=0.0,
        )  # fmt: skip
        with pytest.raises(NotRunning, match="no gateway answers"):
            await asyncio.wait_for(asker.ask(iter(rows), lambda: None), 60)


def test_a_query_has_as_many_rows_as_run_in_the_time() -> None:
    points = [{"batch_size": size, "p95_ms": 2.0 * size} for size in (1, 4, 16)]
    profile = {"variant": "v", "device_kind": "cpu-1", "points": points}
    explained = {"answer": {"variant": "v", "device_kind": "cpu-1"}}
    assert rows_that_fit(explained, [profile], 10.0) == 4
    assert rows_that_fit(explained, [profile], 1.0) == 1
    assert rows_that_fit({"answer": None}, [profile], 10.0) == 1


def test_a_query_has_fewer_rows_while_batches_take_long() -> None:
    rows = RowsPerQuery(8, most_ms=10.0)
    found = []
    for run_ms in (15.0, 25.0, 25.0, 5.0):
        rows.ran(run_ms)
        found.append(rows.now)
    assert found == [8, 4, 2, 2]
    for _ in range(GROWS_AFTER):
        rows.ran(1.0)
    assert rows.now == 4
    given = RowsPerQuery(8)
    given.ran(10_000.0)
    assert given.now == 8
