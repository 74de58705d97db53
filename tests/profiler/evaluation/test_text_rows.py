"""Files of texts as rows of numbers: every form of them, and what is said of wrong ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.evaluation.text_rows import Fitted, fit_texts, may_have_texts
from tests.texts import BAD, BEGIN, END, FILM, GOOD, PAD, text_input, tokenizer_json
from variants.errors import InvalidArtifact
from variants.texts.tokenising import Tokeniser

TOKENIZER = tokenizer_json()
TEXT = text_input(TOKENIZER, types="token_type_ids")
DTYPES = {"input_ids": "int64", "attention_mask": "int32", "token_type_ids": "int64"}


def fitted(path: Path, **given: Any) -> tuple[Fitted, dict[str, Any]]:
    target = path.with_name("fitted.npz")
    found = fit_texts(path, target, Tokeniser(TOKENIZER, "t"), TEXT, DTYPES, **given)
    with np.load(target) as arrays:
        return found, {name: arrays[name] for name in arrays.files}


def write(path: Path, lines: str) -> Path:
    path.write_text(lines, encoding="utf-8")
    return path


def two_texts(folder: Path, kind: str) -> Path:
    """The same two texts in every form."""
    path = folder / f"rows.{kind}"
    match kind:
        case "npz":
            np.savez(path, text=np.array(["good", "bad, bad film"]), labels=np.array([1, 0]))
        case "jsonl":
            rows = [{"text": "good", "label": 1}, {"text": "bad, bad film", "label": 0, "id": 7}]
            write(path, "\n".join(map(json.dumps, rows)) + "\n\n")
        case "csv":
            write(path, '\ufeffid,text,label\n1,good,1\n2,"bad, bad film",0\n')
        case "tsv":
            write(path, "label\ttext\n1\tgood\n0\tbad, bad film\n")
    return path


@pytest.mark.parametrize("kind", ["npz", "jsonl", "csv", "tsv"])
def test_every_form_gives_the_same_rows(tmp_path: Path, kind: str) -> None:
    path = two_texts(tmp_path, kind)
    assert may_have_texts(path)
    found, arrays = fitted(path)
    unknown = 1  # the comma
    assert arrays["input_ids"].tolist() == [
        [BEGIN, GOOD, END, PAD, PAD, PAD],
        [BEGIN, BAD, unknown, BAD, FILM, END],
    ]
    assert arrays["attention_mask"].tolist() == [[1, 1, 1, 0, 0, 0], [1] * 6]
    assert arrays["token_type_ids"].tolist() == [[0] * 6] * 2
    assert arrays["labels"].tolist() == [1, 0]
    assert [arrays[name].dtype.name for name in DTYPES] == [*DTYPES.values()]
    assert found == Fitted(rows=2, left_out=0, longest=6, highest=FILM, pairs=False)


def test_rows_have_the_length_that_is_asked_for_and_longer_ones_are_left_out(
    tmp_path: Path,
) -> None:
    found, arrays = fitted(two_texts(tmp_path, "csv"), longest=5, width=5)
    assert arrays["input_ids"].tolist() == [[BEGIN, GOOD, END, PAD, PAD]]
    assert arrays["labels"].tolist() == [1]
    assert (found.rows, found.left_out) == (1, 1)
    with pytest.raises(InvalidArtifact, match="the shortest of its 2 texts has 3 tokens, and rows"):
        fitted(two_texts(tmp_path, "csv"), longest=2)


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_pairs_are_read_together(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"pairs.{kind}"
    if kind == "npz":
        np.savez(path, text=np.array([["good", "bad"]]), labels=np.array(["pos"]))
    else:
        write(path, "text,text_pair,label\ngood,bad,pos\n")
    _, arrays = fitted(path)
    assert arrays["input_ids"].tolist() == [[BEGIN, GOOD, END, BAD, END]]
    assert arrays["token_type_ids"].tolist() == [[0, 0, 0, 1, 1]]
    assert arrays["labels"].tolist() == ["pos"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ('{"text": "a", "target": 0.5}\n{"text": "b", "target": 2}', [0.5, 2.0]),
        ('{"text": "a", "targets": [1, 2]}\n{"text": "b", "targets": [3, 4]}', [[1, 2], [3, 4]]),
    ],
)
def test_targets_are_numbers(tmp_path: Path, lines: str, expected: list[Any]) -> None:
    _, arrays = fitted(write(tmp_path / "rows.jsonl", lines))
    assert arrays["targets"].tolist() == expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([["O", "F"], ["F"]], [["", "O", "F", "", "", ""], ["", "F", "", "", "", ""]]),
        ([[0, 2], [2]], [[-100, 0, 2, -100, -100, -100], [-100, 2, *[-100] * 4]]),
    ],
)
def test_the_first_token_of_a_word_has_its_label(
    tmp_path: Path, labels: list[Any], expected: list[Any]
) -> None:
    words = [["good", "film-film"], ["film"]]
    rows = [{"words": one, "labels": of} for one, of in zip(words, labels, strict=True)]
    path = write(tmp_path / "tags.jsonl", "\n".join(map(json.dumps, rows)))
    found, arrays = fitted(path)
    assert arrays["labels"].tolist() == expected
    assert arrays["attention_mask"].tolist() == [[1] * 6, [1, 1, 1, 0, 0, 0]]
    assert (found.rows, found.longest) == (2, 6)
    _, short = fitted(path, longest=4, width=4)
    assert short["labels"].tolist() == [expected[1][:4]]


def test_rows_of_numbers_are_none_of_texts(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", input_ids=np.zeros((2, 3)), labels=np.zeros(2))
    assert not may_have_texts(tmp_path / "rows.npz")
    assert not may_have_texts(tmp_path / "rows.bin")


@pytest.mark.parametrize(
    ("name", "lines", "reason"),
    [
        ("a.csv", "", "a.csv is empty"),
        ("a.csv", "text,label\n", "a.csv lacks the column 'text'; it has nothing"),
        ("a.csv", "sentence,label\nx,1\n", "lacks the column 'text'; its columns are: label, sent"),
        ("a.csv", "text,label\ngood, cheap,1\n", "row 0 has another number of columns"),
        ("a.csv", "text,label\ngood\n", "row 0 has another number of columns"),
        ("a.csv", 'text,label\n"good,1\n', "cannot be read: unexpected end of data"),
        ("a.jsonl", '{"text": "a"}\nno', "line 2 is no JSON"),
        ("a.jsonl", '["a"]', "line 1 is no object"),
        ("a.jsonl", '{"text": 3}', "row 0 has no text, but int"),
        ("a.jsonl", '{"text": "a"}\n{"text": "b", "label": 1}', "row 1 and the first one differ"),
        ("a.jsonl", '{"text": "a", "label": 0.5}', "labels must be whole numbers, or names"),
        ("a.jsonl", '{"text": "a", "target": "x"}', "targets must be numbers in all rows"),
        ("a.jsonl", '{"words": "a", "labels": [1]}', "row 0 has no list of words"),
        ("a.jsonl", '{"words": ["a"], "labels": [1, 2]}', "row 0 has 1 words, and labels that are"),
        ("a.jsonl", '{"words": ["a", "b"], "labels": [1, "x"]}', "all names, or all whole numbers"),
    ],
)
def test_what_is_wrong_with_a_table_is_said(
    tmp_path: Path, name: str, lines: str, reason: str
) -> None:
    with pytest.raises(InvalidArtifact, match=reason):
        fitted(write(tmp_path / name, lines))


def test_a_table_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"text,label\n\xff,1\n")
    with pytest.raises(InvalidArtifact, match=r"a\.csv cannot be read: .*utf-8"):
        fitted(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (np.array([1, 2]), "has type int64 and shape"),
        (np.array([["a", "b", "c"]]), r"and shape \(1, 3\), not texts"),
        (np.array([], "U1"), "has no rows"),
    ],
)
def test_what_is_wrong_with_an_array_is_said(tmp_path: Path, texts: Any, reason: str) -> None:
    np.savez(tmp_path / "a.npz", text=texts)
    with pytest.raises(InvalidArtifact, match=reason):
        fitted(tmp_path / "a.npz")
