"""Reading an artifact once, and again when its file has changed."""

import hashlib
import os
import time
from pathlib import Path

import pytest

from variants.artifacts.integrity import SETTLED_NS, Seen, Verified, check, seen
from variants.errors import ArtifactDamaged
from variants.types import Digest

DATA = b"weights" * 1_000
DIGEST = Digest(hashlib.sha256(DATA).hexdigest())


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "artifact"
    path.write_bytes(DATA)
    return path


class Reader:
    """Reads artifacts and keeps which."""

    def __init__(self) -> None:
        self.read: list[Path] = []

    def __call__(self, path: Path, digest: Digest) -> Seen:
        self.read.append(path)
        return check(path, digest)


def later_ns() -> int:
    """A clock by which all files were written long ago."""
    return time.time_ns() + 10 * SETTLED_NS


def test_a_file_is_read_once(artifact: Path) -> None:
    reader = Reader()
    verified = Verified(reader, later_ns)
    assert verified.check(artifact, DIGEST) == verified.check(artifact, DIGEST) == seen(artifact)
    assert reader.read == [artifact]


@pytest.mark.parametrize("keep_times", [False, True])
def test_a_file_that_was_written_to_is_read_again(artifact: Path, keep_times: bool) -> None:
    reader = Reader()
    verified = Verified(reader, later_ns)
    before = artifact.stat()
    verified.check(artifact, DIGEST)
    with artifact.open("r+b") as file:
        file.seek(100)
        file.write(b"damaged")
    if keep_times:
        os.utime(artifact, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ArtifactDamaged, match="7,000 bytes"):
        verified.check(artifact, DIGEST)
    assert reader.read == [artifact, artifact]


def test_a_file_that_was_replaced_is_read_again(artifact: Path) -> None:
    reader = Reader()
    verified = Verified(reader, later_ns)
    verified.check(artifact, DIGEST)
    other = artifact.with_name("other")
    other.write_bytes(DATA)
    os.replace(other, artifact)
    verified.check(artifact, DIGEST)
    assert len(reader.read) == 2


def test_what_was_found_of_a_file_just_written_is_not_remembered(artifact: Path) -> None:
    reader = Reader()
    verified = Verified(reader)
    verified.check(artifact, DIGEST)
    verified.check(artifact, DIGEST)
    assert len(reader.read) == 2


def test_what_is_not_there_was_not_seen(tmp_path: Path) -> None:
    assert seen(tmp_path / "nothing") is None
