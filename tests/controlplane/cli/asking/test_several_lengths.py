"""Rows of several lengths in files: which are read, and which go into one query."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controlplane.cli.asking.rows import fits, query_rows, read_inputs
from controlplane.cli.batching.asker import Asker, RowsPerQuery
from controlplane.cli.batching.journal import Journal
from controlplane.cli.batching.row import Row
from controlplane.cli.batching.rows_files import rows_file
from controlplane.cli.batching.rows_query import Batched, query_of
from controlplane.cli.commands.status import print_tasks
from controlplane.cli.gateway_client import Access
from controlplane.cli.model_options.texts import parse_lengths, parse_pads
from controlplane.cli.render.task_words import length_words
from variants.errors import InvalidInput

IDS: dict[str, Any] = {"name": "ids", "dtype": "int64", "shape": [-1]}
MASK: dict[str, Any] = {"name": "mask", "dtype": "int64", "shape": [-1]}
TEXTS = Batched(
    task="texts",
    inputs=[IDS, MASK],
    labels=[],
    axes=[{"input": "ids", "axis": 0, "pad": 9.0}, {"input": "mask", "axis": 0, "pad": 0.0}],
    lengths=[2, 4],
)


def row(number: int, length: int) -> Row:
    ids = np.full(length, number, np.int64)
    return Row(number=number, values={"ids": ids, "mask": np.ones_like(ids)})


@pytest.mark.parametrize(
    ("shape", "wanted", "is_one"),
    [
        ([3], [-1], True),
        ([0], [-1], False),
        ([3, 2], [-1, 2], True),
        ([3, 3], [-1, 2], False),
        ([3], [-1, 2], False),
        ([], [], True),
    ],
)
def test_an_open_axis_takes_any_size(shape: list[int], wanted: list[int], is_one: bool) -> None:
    assert fits(shape, wanted) is is_one


def test_without_a_file_one_value_of_zero_is_asked() -> None:
    assert read_inputs(None, [IDS, MASK], None) == {"ids": [[0]], "mask": [[0]]}


def test_rows_of_a_file_keep_their_lengths(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"ids": [[1], [2, 3]], "mask": [[1], [1, 1]]}))
    assert read_inputs(str(path), [IDS, MASK], 1) == {"ids": [[2, 3]], "mask": [[1, 1]]}
    rows = query_rows(str(path), [IDS, MASK])
    assert json.loads(rows.inputs(1)) == {"ids": [[2, 3]], "mask": [[1, 1]]}
    path.write_text("[5, 6, 7]")
    assert read_inputs(str(path), [IDS], None) == [[5, 6, 7]]


def test_files_for_batch_may_hold_rows_of_any_length(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"ids": [1], "mask": [1]}\n{"ids": [1, 2], "mask": [1, 1]}\n{"ids": []}\n')
    found = list(rows_file(path, [IDS, MASK]).rows())
    assert [len(one.values.get("ids", ())) for one in found] == [1, 2, 0]
    assert [bool(one.wrong) for one in found] == [False, False, True]
    np.savez(tmp_path / "rows.npz", ids=np.ones((2, 3), np.int64), mask=np.ones((2, 3), np.int64))
    assert rows_file(tmp_path / "rows.npz", [IDS, MASK]).count == 2


@pytest.mark.parametrize(("length", "bucket"), [(1, 2), (2, 2), (3, 4), (5, 5)])
def test_a_row_is_of_the_bucket_that_holds_it(length: int, bucket: int) -> None:
    assert TEXTS.bucket(row(0, length)) == bucket


def test_rows_of_one_query_are_as_long_as_its_longest() -> None:
    body, length = query_of(TEXTS, [row(1, 1), row(2, 2)])
    document = json.loads(body[:length])
    assert [one["shape"] for one in document["inputs"]] == [[2, 2], [2, 2]]
    values = np.frombuffer(body[length:], np.int64).reshape(2, 2, 2).tolist()
    assert values == [[[1, 9], [2, 2]], [[1, 0], [1, 1]]]


def chunks(tmp_path: Path, rows: list[Row], most: int) -> list[list[int]]:
    access = Access(url="http://127.0.0.1:9")
    with Journal(tmp_path / "answers.jsonl", {}, resume=False) as journal:
        asker = Asker(TEXTS, journal, access, rows_per_query=RowsPerQuery(most), in_flight=1)
        return [[one.number for one in chunk] for chunk in asker._chunks(iter(rows))]


def test_rows_of_one_bucket_go_together(tmp_path: Path) -> None:
    rows = [row(number, length) for number, length in enumerate([1, 3, 2, 4, 1, 4])]
    assert chunks(tmp_path, rows, 2) == [[0, 2], [1, 3], [4], [5]]


def test_a_rare_length_does_not_wait_for_the_end_of_the_file(tmp_path: Path) -> None:
    rare, often = [5, 6, 7, 8], [1] * 8
    rows = [row(number, length) for number, length in enumerate([*rare, *often])]
    # Of each bucket there is one row so far, so no query is full, but four times one are waiting.
    assert chunks(tmp_path, rows[:4], 2) == [[0], [1], [2], [3]]
    found = chunks(tmp_path, rows, 2)
    assert found.index([0]) < len(found) - 1
    assert sorted(number for chunk in found for number in chunk) == list(range(12))


def test_lengths_and_padding_as_they_are_written() -> None:
    assert parse_lengths("16, 64,256") == (16, 64, 256)
    assert parse_lengths(None) is None
    assert parse_pads("1") == (("", 1.0),)
    assert parse_pads("ids=1, mask=0") == (("ids", 1.0), ("mask", 0.0))
    assert parse_pads(None) == ()
    for text in ("", "16,", "a", "-1", "1.5"):
        with pytest.raises(InvalidInput, match="--lengths are whole numbers"):
            parse_lengths(text)
    for text in ("", "ids=", "ids=x"):
        with pytest.raises(InvalidInput, match="--pad"):
            parse_pads(text)


def test_status_counts_the_tasks_that_answer_and_not_the_name_that_they_share(
    capsys: pytest.CaptureFixture[str],
) -> None:
    held: dict[str, Any] = {"loaded": 2, "variants": 2}
    shared = {"name": "texts", "lengths": {"buckets": {"2": "texts.2"}}, **held}
    tasks = [{"name": "digits", "lengths": None, **held}, shared, {"name": "texts.2", **held}]

    print_tasks(tasks, [{"task": "texts.2", "requests": 3, "late": 0, "refused": 0}])

    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines() if " of 2" in line]
    assert rows == ["digits", "texts.2"]


def test_a_task_says_which_outputs_are_as_long_as_its_rows() -> None:
    lengths: dict[str, Any] = {
        "buckets": {"2": "tags.2", "4": "tags.4"},
        "axes": [{"input": "ids", "axis": 0, "pad": 1.0}],
    }
    shared = "ids with 1 up to the shortest of tags.2, tags.4"
    assert length_words({"lengths": lengths}) == shared  # as older gateways have it
    following = {**lengths, "outputs": [{"output": "tags", "axis": 0}]}
    assert length_words({"lengths": following}) == f"{shared}; as long as each row: tags"
