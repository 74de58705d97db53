"""Answers for each position of a row: as files of them have them, and as they are shown."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controlplane.cli.asking.connections import Answer
from controlplane.cli.asking.shown_answers import answer_lines
from controlplane.cli.batching.answers_files import write_answers
from controlplane.cli.batching.journal import Journal
from controlplane.cli.batching.row import Row
from controlplane.cli.batching.rows_query import (
    Batched,
    error_line,
    query_of,
    read_answer,
    row_lengths,
    whole_outputs,
)
from controlplane.cli.commands.asking.query import show_reply

TASK: dict[str, Any] = {
    "lengths": {
        "buckets": {"2": "tags.2", "4": "tags.4"},
        "axes": [{"input": "ids", "axis": 0, "pad": 0.0}],
        "outputs": [{"output": "tags", "axis": 0}],
    },
    "outputs": [
        {"name": "tags", "dtype": "float32", "shape": [-1, 2]},
        {"name": "whole", "dtype": "float32", "shape": [1]},
    ],
}
TAGS = Batched(
    task="tags",
    inputs=[{"name": "ids", "dtype": "int64", "shape": [-1]}],
    labels=["out", "in"],
    **row_lengths(TASK)._asdict(),
)
SCORES = np.array([[[1, 2], [4, 3], [5, 6]], [[8, 7], [0, 0], [0, 0]]], np.float32)
MADE = {"variant": "v", "accuracy": 0.9, "run_ms": 1.0}


def rows() -> list[Row]:
    """The first is three long and the second one."""
    return [Row(number=n, values={"ids": np.ones(size, np.int64)}) for n, size in enumerate((3, 1))]


def answered() -> list[bytes]:
    """Their lines: both were asked in one query, as long as the longer one."""
    entries, raw = [], b""
    for name, values in (("tags", SCORES), ("whole", np.array([[0.5], [1.5]], np.float32))):
        size = {"binary_data_size": values.nbytes}
        entry = {"name": name, "datatype": "FP32", "shape": list(values.shape), "parameters": size}
        entries.append(entry)
        raw += values.tobytes()
    head = json.dumps({"outputs": entries, "parameters": MADE}).encode()
    headers = {b"inference-header-content-length": b"%d" % len(head)}
    answer = Answer(status=200, headers=headers, body=head + raw, sent_s=0.0, done_s=1.0)
    return read_answer(TAGS, rows(), answer).lines


def test_a_line_has_what_is_of_its_row() -> None:
    first, second = map(json.loads, answered())
    assert first["outputs"] == {"tags": [[1, 2], [4, 3], [5, 6]], "whole": [0.5]}
    assert (first["labels"], first["scores"]) == (["in", "out", "in"], [2.0, 4.0, 6.0])
    assert second["outputs"]["tags"] == [[8.0, 7.0]]
    assert (second["labels"], second["scores"]) == (["out"], [8.0])


def test_an_array_of_answers_is_as_long_as_the_longest_rows_may_be(tmp_path: Path) -> None:
    output = tmp_path / "answers.npz"
    with Journal(output, {}, resume=False) as journal:
        lines = [*answered(), error_line(Row(number=2, values={}), "INVALID_INPUT", "no")]
        journal.note(range(3), lines)
        whole = whole_outputs(TASK["outputs"], row_lengths(TASK))
        write_answers(journal, output, whole, 3, TAGS.following)
    with np.load(output) as found:
        assert found["tags"].tolist() == [
            [[1, 2], [4, 3], [5, 6], [0, 0]],
            [[8, 7], [0, 0], [0, 0], [0, 0]],
            [[0, 0]] * 4,
        ]
        assert found["whole"].tolist() == [[0.5], [1.5], [0.0]]
        assert found["code"].tolist() == ["", "", "INVALID_INPUT"]
        # What is a row's own, and what is said of it.
        assert found["positions"].tolist() == [3, 1, 0]
        assert found["label"].tolist() == [["in", "out", "in"], ["out", "", ""], ["", "", ""]]
        np.testing.assert_array_equal(
            found["score"], [[2.0, 4.0, 6.0], [8.0, np.nan, np.nan], [np.nan] * 3]
        )
        assert "spans" not in found


def test_an_array_says_where_the_tokens_of_texts_stand(tmp_path: Path) -> None:
    output = tmp_path / "answers.npz"
    said = [
        {"row": 0, "outputs": [[1.0, 2.0]] * 3, "labels": ["in"] * 3, "scores": [2.0] * 3,
         "spans": [[0, 0], [0, 4], [0, 0]]},
        {"row": 1, "outputs": [[3.0, 4.0]], "labels": ["in"], "scores": [4.0], "spans": [[0, 2]]},
    ]  # fmt: skip
    spec = {"name": "label", "dtype": "float32", "shape": [4, 2]}
    with Journal(output, {}, resume=False) as journal:
        journal.note(range(2), [json.dumps(one | {"variant": "v"}).encode() for one in said])
        write_answers(journal, output, [spec], 2, TAGS.following)
    with np.load(output) as found:
        assert found["spans"].tolist() == [[[0, 0], [0, 4], [0, 0]], [[0, 2], [0, 0], [0, 0]]]
        assert found["output_label"].shape == (2, 4, 2)
        assert found["variant"].tolist() == ["v", "v"]
        assert found["positions"].tolist() == [3, 1]


def test_an_output_may_be_a_part_of_its_row() -> None:
    halves = {"output": "tags", "axis": 0, "step": 2, "offset": 1}
    known = TASK | {"lengths": TASK["lengths"] | {"outputs": [halves]}}
    asked = Batched(task="tags", inputs=TAGS.inputs, labels=[], **row_lengths(known)._asdict())
    made = {"outputs": [], "parameters": MADE}
    entry = {"name": "tags", "datatype": "FP32", "shape": [2, 2, 1], "data": [1, 2, 3, 4]}
    body = json.dumps(made | {"outputs": [entry]}).encode()
    answer = Answer(status=200, headers={}, body=body, sent_s=0.0, done_s=1.0)
    first, second = map(json.loads, read_answer(asked, rows(), answer).lines)
    assert (first["outputs"], second["outputs"]) == ([[1], [2]], [[3]])
    assert whole_outputs(known["outputs"], row_lengths(known))[0]["shape"] == [2, 2]


@pytest.mark.parametrize("count", [2, 25])
def test_labels_of_positions_are_shown_row_by_row(
    capsys: pytest.CaptureFixture[str], count: int
) -> None:
    reply = {
        "outputs": [[[0.1, 0.9]]] * count,
        "labels": [["in", "out"], ["in"] * 30] * (count // 2) + [["out"]] * (count % 2),
        "scores": [[0.9, 0.8], [0.5] * 30] * (count // 2) + [[0.7]] * (count % 2),
        "variant": "v", "model_version": "m-v1", "worker": "w", "batch_size": 1, "queue_ms": 0.0,
        "run_ms": 1.0, "accuracy": 0.9, "cost_usd_per_1k": 0.1, "slo_met": True,
    }  # fmt: skip
    show_reply(reply, "", "")
    shown = capsys.readouterr().out
    assert "in (0.9), out (0.8)" in shown
    assert "in (0.5), ..." in shown
    assert ("... 5 more rows" in shown) is (count == 25)


def test_texts_come_back_with_where_their_tokens_stand() -> None:
    asked = Batched(
        task="names", inputs=[], labels=["out", "in"], texts=True, spans=True, variant="v"
    )
    both = [Row(number=n, values={"text": (one,)}) for n, one in enumerate(("bob", "in rome"))]
    body, _ = query_of(asked, both)
    document = json.loads(body)
    assert (asked.path, document["inputs"]) == ("/v1/query", ["bob", "in rome"])
    assert (document["priority"], document["variant"]) == (65_535, "v")
    said = MADE | {
        "outputs": [[[1, 2]], [[3, 4], [6, 5]]],
        "labels": [["in"], ["in", "out"]],
        "scores": [[2], [4, 6]],
        "spans": [[[0, 3]], [[0, 2], [3, 7]]],
    }
    answer = Answer(status=200, headers={}, body=json.dumps(said).encode(), sent_s=0.0, done_s=1.0)
    first, second = map(json.loads, read_answer(asked, both, answer).lines)
    assert (first["row"], first["outputs"], first["spans"]) == (0, [[1, 2]], [[0, 3]])
    assert (second["labels"], second["spans"]) == (["in", "out"], [[0, 2], [3, 7]])
    several = said | {"outputs": {"start": [[1], [2, 3]], "end": [[4], [5, 6]]}}
    answer = answer._replace(body=json.dumps(several).encode())
    lines = [json.loads(one) for one in read_answer(asked, both, answer).lines]
    assert lines[1]["outputs"] == {"start": [2, 3], "end": [5, 6]}
    for wrong in (b"{}", json.dumps(said | {"outputs": 7}).encode()):
        with pytest.raises(ValueError, match="what answered is not modelless"):
            read_answer(asked, both, answer._replace(body=wrong))


def test_labels_of_tokens_stand_beside_them() -> None:
    reply = {
        "labels": [["O", "PER", "LOC", "O"], ["O", "PER", "O", "LOC"]],
        "scores": [[0.1, 0.9, 0.8, 0.1], [0.1, 0.5, 0.1, 0.7]],
        "spans": [
            [[0, 0], [0, 3], [4, 8], [0, 0]],
            [[0, 0, 0], [0, 4, 0], [0, 0, 0], [0, 4, 1]],
        ],
    }
    [(_, shown)] = answer_lines(reply, ["bob rome", ["anna", "oslo"]])
    assert shown.splitlines() == ["bob PER (0.9), rome LOC (0.8)", "anna PER (0.5), oslo LOC (0.7)"]
    [(_, shown)] = answer_lines(reply | {"spans": None}, ["bob rome", ["anna", "oslo"]])
    assert shown.startswith("O (0.1), PER (0.9)")
