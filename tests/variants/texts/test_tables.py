"""Tables of texts that cannot be read to their end."""

from pathlib import Path

import pytest

from controlplane.cli.batching.text_rows import TextRows
from variants.errors import InvalidArtifact, InvalidInput
from variants.texts.tables import rows_in

DEEP = "[" * 200_000 + "]" * 200_000


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", 'text,label\na,0\n"good,1\n', r"a\.csv: row 1 cannot be read: unexpected end"),
        ("a.tsv", f'text\n"{"a" * 2**24}b"\n', r"a\.tsv: row 0 cannot be read: field larger"),
        ("a.jsonl", f'{{"text": {DEEP}}}\n', r"a\.jsonl: line 1 is no JSON: it nests too deeply"),
    ],
    ids=["quote left open", "long field", "deep"],
)
def test_who_reads_it_gets_a_sentence(
    tmp_path: Path, name: str, content: str, sentence: str
) -> None:
    """`modelless batch` ended with a traceback."""
    path = tmp_path / name
    path.write_text(content)
    with path.open() as file, pytest.raises(InvalidArtifact, match=sentence):
        list(rows_in(path, file))
    with pytest.raises(InvalidInput, match=sentence):
        TextRows(path)
