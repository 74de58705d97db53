"""Files of rows, folders of pictures and files of answers, as ``modelless batch`` takes them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from controlplane.cli.batching.journal import Journal
from controlplane.cli.batching.rows_files import rows_file
from tests.controlplane.cli.asking.answering import Answering
from tests.controlplane.cli.asking.batched import TWO, answers_of, batch, rows_jsonl, rows_npz
from tests.controlplane.cli.shell import Shell
from variants.errors import InvalidInput


def picture(folder: Path, name: str, grey: int) -> None:
    Image.new("RGB", (20, 30), (grey, grey, grey)).save(folder / name)


def test_the_pictures_of_a_folder_are_rows(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    # What a pixel becomes is its value and a quarter.
    scale = (f"--image-std={1 / 255}", "--image-mean=-0.001")
    assert shell("tasks", "set", "digits", *scale, url=gateway.url).code == 0
    folder, answers = tmp_path / "pictures", tmp_path / "answers.jsonl"
    folder.mkdir()
    picture(folder, "b.png", 3)
    picture(folder, "a.JPG", 7)
    (folder / "c.png").write_bytes(b"no picture")
    (folder / "notes.txt").write_text("no row")

    ended = batch(shell, gateway, folder, answers, "--rows-per-query", "4", "--json")

    assert ended.code == 1
    assert [one["rows"] for one in gateway.asked] == [[7, 3]]
    found = answers_of(answers)
    assert [(one["row"], one["file"]) for one in found] == [
        (0, "a.JPG"),
        (1, "b.png"),
        (2, "c.png"),
    ]
    assert [one.get("label") for one in found] == ["7", "3", None]
    assert found[2]["error"] == "the body is no image of these formats: PNG, JPEG"


def test_a_folder_without_pictures_is_refused(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    (tmp_path / "pictures").mkdir()
    ended = batch(shell, gateway, tmp_path / "pictures", tmp_path / "answers.jsonl")
    assert ended.code == 2
    assert "has no pictures: .jpeg, .jpg, .png" in ended.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.txt", b"", "must end in .npz, .jsonl, .csv or .tsv"),
        ("rows.csv", b"text\na\n", "is a table of texts, and the task takes none"),
        ("rows.npz", None, "cannot be read: No such file"),
        ("rows.npz", b"PK no archive", "cannot be read as .npz"),
        ("rows.jsonl", b"\n\n", "holds no rows"),
    ],
)
def test_files_that_are_none_are_refused_in_a_sentence(
    gateway: Answering, shell: Shell, tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    ended = batch(shell, gateway, tmp_path / name, tmp_path / "answers.jsonl")
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert list(tmp_path.glob("answers*")) == []


def test_arrays_of_other_shapes_and_types_are_refused(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    arrays: dict[str, dict[str, Any]] = {
        "has no array 'pixels'": {"faces": np.zeros((2, 3))},
        "has rows of [3], not [64]": {"pixels": np.zeros((2, 3))},
        "at least one": {"pixels": np.zeros((0, 64))},
        "is stored column by column": {"pixels": np.asfortranarray(np.zeros((2, 64)))},
    }
    for said, of_file in arrays.items():
        np.savez(tmp_path / "rows.npz", **of_file)
        ended = batch(shell, gateway, tmp_path / "rows.npz", tmp_path / "answers.jsonl")
        assert (ended.code, said in ended.err) == (2, True), ended.err


def test_answers_are_not_written_over_the_rows(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    rows = rows_npz(tmp_path, 1)
    ended = batch(shell, gateway, rows, rows)
    assert (ended.code, ended.err) == (
        2,
        f"error: --output {rows} is the file of the rows: name another file\n",
    )


def test_answers_that_are_there_are_replaced_only_if_asked(
    gateway: Answering, shell: Shell, tmp_path: Path
) -> None:
    rows, answers = rows_npz(tmp_path, 2), tmp_path / "answers.jsonl"
    answers.write_text("of another run")

    refused = batch(shell, gateway, rows, answers)
    assert refused.code == 2
    assert f"{answers.name} is there already: name another file, or --overwrite it" in refused.err
    assert (answers.read_text(), gateway.asked) == ("of another run", [])

    assert batch(shell, gateway, rows, answers, "--overwrite").code == 0
    assert [one["row"] for one in answers_of(answers)] == [0, 1]


def test_rows_of_several_inputs_are_objects_and_wrong_ones_say_why(tmp_path: Path) -> None:
    path = rows_jsonl(
        tmp_path,
        '{"age": 3, "marks": [1, 2.5]}',
        '{"age": 3.5, "marks": [1, 2]}',
        '{"age": 3000000000, "marks": [1, 2]}',
        '{"age": 3, "marks": [[1], [1, 2]]}',
        "[1, 2]",
    )
    found = list(rows_file(path, TWO).rows())

    first = found[0]
    assert (first.values["age"].dtype, first.values["marks"].tolist()) == ("int32", [1.0, 2.5])
    assert [one.wrong for one in found[1:]] == [
        "age holds something else than numbers of the type int32",
        "age holds a number that int32 does not",
        "marks has lists of several lengths side by side",
        "the line must hold an object with age, marks",
    ]


def test_an_array_is_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlplane.cli.batching.rows_files.BLOCK_BYTES", 24)
    marks = np.arange(22, dtype=np.float64).reshape(11, 2)
    np.savez(tmp_path / "rows.npz", age=np.arange(11), marks=marks)
    found = rows_file(tmp_path / "rows.npz", TWO)
    assert found.count == 11
    assert [one.values["age"].item() for one in found.rows()] == list(range(11))
    assert np.array_equal([one.values["marks"] for one in found.rows()], marks)


def test_a_damaged_archive_says_so_when_it_is_met(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, age=np.arange(2_000), marks=np.ones((2_000, 2)))
    data = bytearray(path.read_bytes())
    data[4_000] ^= 255
    path.write_bytes(data)
    with pytest.raises(InvalidInput, match=r"rows\.npz is damaged"):
        list(rows_file(path, TWO).rows())


def test_only_one_run_writes_to_a_file(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "a.jsonl", {}, resume=False),
        pytest.raises(InvalidInput, match="another run writes"),
    ):
        Journal(tmp_path / "a.jsonl", {}, resume=True)
