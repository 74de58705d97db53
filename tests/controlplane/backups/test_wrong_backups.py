"""Backups that are not what they should be restore nothing."""

import json
import sqlite3
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.controlplane.backups.saved import (
    Members,
    change_catalog,
    change_summary,
    is_empty,
    read_members,
    restored,
    rewritten,
    saved,
    sqlite,
)
from variants.artifacts.store import FileArtifactStore
from variants.catalog.migrations import upgrade
from variants.errors import Conflict, InvalidInput, ModellessError


def cut_artifact(members: Members) -> None:
    name = next(name for name in members if name.startswith("artifacts/"))
    members[name] = members[name] + b"more"


def change_row(members: Members, of: str, change: Callable[[dict[str, Any]], object]) -> None:
    """The last row of a table, changed; the summary knows."""
    rows = [orjson.loads(line) for line in members["catalog.jsonl"].splitlines()]
    change([row for table, row in rows if table == of][-1])
    change_catalog(members, b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def drop_table(members: Members, of: str) -> None:
    rows = members["catalog.jsonl"].splitlines(keepends=True)
    change_catalog(members, b"".join(row for row in rows if orjson.loads(row)[0] != of))


def drop_artifact(members: Members) -> None:
    del members[next(name for name in members if name.startswith("artifacts/"))]


WRONG: dict[str, tuple[Callable[[Members], None], str]] = {
    "rows were changed": (
        lambda m: m.update({"catalog.jsonl": m["catalog.jsonl"].replace(b"digits", b"dogits")}),
        "is damaged",
    ),
    "an artifact was changed": (cut_artifact, "is damaged"),
    "an artifact lacks": (drop_artifact, "1 of 2 artifacts are not in it"),
    "the catalog lacks": (lambda m: m.__delitem__("catalog.jsonl"), "it holds no catalog"),
    "the summary lacks": (lambda m: m.__delitem__("backup.json"), "is no backup"),
    "the summary is something else": (lambda m: m.update({"backup.json": b"[]"}), "is no backup"),
    "a later form": (lambda m: change_summary(m, format=2), "has the format 2"),
    "later tables": (lambda m: change_summary(m, migration="9999_x"), "tables at 9999_x"),
    "a stranger's file": (lambda m: m.update({"../../etc/x": b""}), "belongs to no backup"),
    "a wrong name": (lambda m: m.update({"artifacts/../x": b""}), "is not a digest"),
    "an unknown table": (lambda m: change_catalog(m, b'["sqlite_master",{}]\n'), "no table"),
    "an unknown column": (lambda m: change_catalog(m, b'["events",{"x":1}]\n'), "a column 'x'"),
    "no rows at all": (lambda m: change_catalog(m, b"nonsense\n"), "is damaged"),
    "a number that none holds": (
        lambda m: change_row(m, "variants", lambda row: row.update(size_bytes=2**63)),
        "no catalog holds such a value",
    ),
    "a row that lacks a column": (
        lambda m: change_row(m, "profile_points", lambda row: row.pop("p50_ms")),
        "no catalog holds such a value",
    ),
    "text for a number": (
        lambda m: change_row(m, "profiles", lambda row: row.update(load_s="soon")),
        "no catalog holds such a value",
    ),
    "a counter of text": (
        lambda m: change_row(m, "counters", lambda row: row.update(value="many")),
        "a counter that is no number",
    ),
    "a precision that there is not": (
        lambda m: change_row(m, "variants", lambda row: row.update(precision="fp7")),
        "cannot be read: ValueError, 'fp7' is not a valid Precision",
    ),
    "an input without a name": (
        lambda m: change_row(m, "tasks", lambda row: row.update(inputs=[{}])),
        "cannot be read: KeyError, 'name'",
    ),
    "a plan without placements": (
        lambda m: change_row(m, "plans", lambda row: row.update(body={"x": 1})),
        "cannot be read: KeyError, 'placements'",
    ),
    "a tick at no time": (
        lambda m: change_row(m, "ticks", lambda row: row.update(at="whenever")),
        "cannot be read: ValueError",
    ),
    "no counters": (lambda m: drop_table(m, "counters"), "contradicts itself: .*UNIQUE"),
    "no versions": (lambda m: drop_table(m, "versions"), "contradicts itself: .*FOREIGN KEY"),
    "no latencies": (lambda m: drop_table(m, "profile_points"), "without a latency"),
    "tables without a name": (lambda m: change_summary(m, migration=[]), r"tables at \[\]"),
    "rows of another shape": (lambda m: change_catalog(m, b"[1,2,3]\n"), "is damaged"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_and_restores_nothing(
    name: str, made: bytes, other: FileArtifactStore, tmp_path: Path
) -> None:
    change, said = WRONG[name]
    file = tmp_path / "backup.tar"
    file.write_bytes(made)

    with pytest.raises(InvalidInput, match=said):
        restored(rewritten(file, change), sqlite(tmp_path), other, tmp_path)

    assert is_empty(tmp_path)
    assert not list(tmp_path.glob("restore-*"))


def test_a_file_with_holes_is_refused_before_they_are_filled(
    made: bytes, other: FileArtifactStore, tmp_path: Path
) -> None:
    """A few bytes of a tar file may stand for as many zeros as one likes."""
    file = tmp_path / "backup.tar"
    file.write_bytes(made)
    summary = read_members(file)["backup.json"]
    hole = tarfile.TarInfo("catalog.jsonl")
    hole.type = tarfile.GNUTYPE_SPARSE
    block = bytearray(hole.tobuf(tarfile.GNU_FORMAT))
    block[386:410] = b"%011o\0%011o\0" % (0, 0)  # of its only piece: where it begins, its bytes
    block[483:495] = b"%011o\0" % 2**22  # the bytes with all holes
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    first = tarfile.TarInfo("backup.json")
    first.size = len(summary)
    padding = bytes(-len(summary) % 512)
    file.write_bytes(first.tobuf() + summary + padding + bytes(block) + bytes(1024))

    with pytest.raises(InvalidInput, match="no plain file"):
        restored(file, sqlite(tmp_path), other, tmp_path)

    assert is_empty(tmp_path)


@pytest.mark.parametrize("part", [0.05, 0.3, 0.5, 0.7, 0.95])
def test_a_file_that_is_cut_off_restores_nothing(
    part: float, made: bytes, other: FileArtifactStore, tmp_path: Path
) -> None:
    file = tmp_path / "backup.tar"
    # Tar pads its end with zeros, which may be missing.
    file.write_bytes(made[: int(part * len(made.rstrip(b"\0")))])

    with pytest.raises(ModellessError):
        restored(file, sqlite(tmp_path), other, tmp_path)

    assert is_empty(tmp_path)


@pytest.mark.parametrize(
    ("other", "advice"),
    [
        ("", "it has none, as nothing was ever started with it"),
        (
            "0007",
            "they are at 0007, .* use the version that it is used by, or start this one first",
        ),
        ("9999", "they are at 9999, made by a newer one; upgrade modelless"),
    ],
)
def test_tables_of_another_version_are_left_alone(
    other: str, advice: str, store: FileArtifactStore, tmp_path: Path
) -> None:
    here = sqlite(tmp_path, "here")
    if other == "9999":
        upgrade(here)
        with closing(sqlite3.connect(tmp_path / "here.db")) as tables, tables:
            tables.execute("UPDATE alembic_version SET version_num = '9999'")
    elif other:
        upgrade(here, other)

    begin = "has no tables as this version of modelless makes them: "
    with pytest.raises(Conflict, match=begin + advice):
        saved(here, store, tmp_path)

    assert (tmp_path / "here.db").exists() is bool(other)
    assert not (tmp_path / "backup.tar").exists()
