"""The artifact store on a file system: what it does with links, crashes and full disks."""

import hashlib
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from variants.artifacts.store import FileArtifactStore
from variants.errors import ArtifactDamaged, InvalidArtifact, NotFound, StateUnavailable
from variants.types import Digest

HELLO = Digest("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "state" / "artifacts"


@pytest.fixture
def store(root: Path) -> FileArtifactStore:
    return FileArtifactStore(root)


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    path = tmp_path / "hello.onnx"
    path.write_bytes(b"hello")
    return path


def files(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*") if not p.is_dir())


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary())
def test_bytes_come_back_as_they_were(store: FileArtifactStore, data: bytes) -> None:
    digest = store.put_pieces([data])
    assert digest == hashlib.sha256(data).hexdigest()
    assert store.path(digest).read_bytes() == data


def test_many_writers_of_the_same_and_of_other_bytes(root: Path) -> None:
    stores = [FileArtifactStore(root) for _ in range(4)]
    data = [bytes([i % 5]) * 100_000 for i in range(40)]
    with ThreadPoolExecutor(8) as threads:
        digests = list(threads.map(lambda i: stores[i % 4].put_pieces([data[i]]), range(40)))
    assert set(stores[0].digests()) == set(digests)
    assert len(files(root)) == 5


def test_what_another_process_deletes_meanwhile_is_left_out(store: FileArtifactStore) -> None:
    """That ended the listing, and with it a registration after all its measurements."""
    met: dict[str, bytes] = {}
    for number in range(10_000):
        data = str(number).encode()
        folder = hashlib.sha256(data).hexdigest()[:4]
        if folder in met:
            break
        met[folder] = data
    both = {store.put_pieces([met[folder]]), store.put_pieces([data])}
    listed = store.digests()
    first = next(listed)
    (other,) = both - {first}
    FileArtifactStore(store.root).delete(other)
    assert list(listed) == []
    assert list(store.digests()) == [first]


def test_a_link_in_the_place_of_an_artifact_is_not_followed(
    store: FileArtifactStore, hello: Path
) -> None:
    store.put(hello)
    place = store.path(HELLO)
    place.unlink()
    place.symlink_to(hello)
    with pytest.raises(NotFound):
        store.path(HELLO)
    assert list(store.digests()) == []
    store.put(hello)
    assert not store.path(HELLO).is_symlink()
    assert hello.read_bytes() == b"hello"


def test_a_link_in_the_place_of_a_folder_is_not_followed(
    store: FileArtifactStore, hello: Path, tmp_path: Path, root: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / "f2").mkdir(parents=True)
    (outside / "f2" / HELLO).write_bytes(b"hello")
    (root / "2c").symlink_to(outside)
    with pytest.raises(StateUnavailable):
        store.path(HELLO)
    with pytest.raises(StateUnavailable):
        store.put(hello)
    with pytest.raises(StateUnavailable):
        store.delete(HELLO)
    assert list(store.digests()) == []
    assert files(outside) == [f"f2/{HELLO}"]


def test_a_link_to_the_right_bytes_is_not_sound(store: FileArtifactStore, hello: Path) -> None:
    store.put(hello)
    store.place(HELLO).unlink()
    store.place(HELLO).symlink_to(hello)
    with pytest.raises(ArtifactDamaged, match="no plain file"):
        store.sound(HELLO)


def test_a_source_that_fails_half_way_leaves_nothing(store: FileArtifactStore) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"hel"
        raise InvalidArtifact("the upload broke off")

    with pytest.raises(InvalidArtifact):
        store.put_pieces(pieces())
    assert files(store.root) == []


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StateUnavailable, match="Not a directory"):
        FileArtifactStore(tmp_path / "file" / "artifacts")


def test_a_full_disk_is_said_and_leaves_nothing(root: Path) -> None:
    """A limit on the size of files stands in for the disk."""
    child = run(
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = FileArtifactStore(root)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
        try:
            store.put_pieces([bytes(2_000)])
        except StateUnavailable as error:
            print(error.message)
        """,
        root,
    )
    assert child.returncode == 0
    assert "File too large" in child.stdout
    assert files(root) == []


@pytest.mark.parametrize("moment", ["written", "half written"])
def test_a_writer_that_dies_leaves_nothing_to_readers_and_is_swept_up(
    root: Path, moment: str
) -> None:
    child = run(
        f"""
        import os, signal

        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        def pieces():
            yield b"hel"
            {"die()" if moment == "half written" else ""}
            yield b"lo"

        class Dying(FileArtifactStore):
            _publish = die  # all is written and synced, nothing is renamed yet

        Dying(root).put_pieces(pieces())
        """,
        root,
    )
    assert child.returncode == -signal.SIGKILL
    (leftover,) = files(root)
    assert leftover.startswith("incoming/")
    store = FileArtifactStore(root)
    assert files(root) == []
    assert store.put_pieces([b"hello"]) == HELLO


def test_what_is_not_expected_is_not_stored(store: FileArtifactStore) -> None:
    with pytest.raises(ArtifactDamaged, match="the 5 bytes that came are not those"):
        store.put_pieces([b"hallo"], expected=HELLO)
    assert files(store.root) == []


def test_opening_the_store_spares_a_writer_at_work(root: Path) -> None:
    store = FileArtifactStore(root)

    def pieces() -> Iterator[bytes]:
        yield b"hel"
        FileArtifactStore(root)
        yield b"lo"

    assert store.put_pieces(pieces()) == HELLO
    assert store.path(HELLO).read_bytes() == b"hello"


def run(code: str, root: Path) -> "subprocess.CompletedProcess[str]":
    """Run code in a child that knows ``FileArtifactStore`` and ``root``."""
    head = f"""
        from pathlib import Path
        from variants.errors import StateUnavailable
        from variants.artifacts.store import FileArtifactStore
        root = Path({str(root)!r})
        """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(head) + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
