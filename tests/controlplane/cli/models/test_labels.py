"""``--labels``: words between commas, or the lines of a file."""

from pathlib import Path

import pytest

from controlplane.cli.model_options.texts import parse_labels
from variants.errors import InvalidInput


@pytest.mark.parametrize("text", ["", "a,,b", "a, ,b", "@none.txt"])
def test_labels_that_cannot_be(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_labels(text)


def test_the_mark_that_a_file_of_labels_begins_with_is_no_part_of_a_label(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_bytes("\ufeffcat\r\ndog\r\n".encode())
    assert parse_labels(f"@{file}") == ("cat", "dog")


def test_an_empty_label_of_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_text("cat\n \ndog\n")
    with pytest.raises(InvalidInput, match=rf"^a label is empty, that on line 2 of {file};"):
        parse_labels(f"@{file}")


def test_only_line_feeds_end_a_label(tmp_path: Path) -> None:
    """A list of signs, as a recogniser of texts has, has some that separate lines elsewhere."""
    file = tmp_path / "labels.txt"
    file.write_text("a\u2028b\nc\n", encoding="utf-8")
    assert parse_labels(f"@{file}") == ("a\u2028b", "c")


def test_labels_lose_their_blanks() -> None:
    assert parse_labels("cat, dog") == ("cat", "dog")
