"""The contract of the artifact store, over files that are seen and copies of others."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.services import missing
from tests.variants.artifacts.s3_emulator import Bucket, s3_emulator
from variants.artifacts.cache import CachedArtifactStore
from variants.artifacts.plain_files import CHUNK_BYTES
from variants.artifacts.protocol import ArtifactOrigin, ArtifactStore
from variants.artifacts.s3 import S3Artifacts
from variants.artifacts.served import PIECE_BYTES, ArtifactService, ServedArtifacts
from variants.artifacts.store import FileArtifactStore
from variants.errors import ArtifactDamaged, InvalidArtifact, InvalidInput, NotFound
from variants.types import Digest

HELLO = Digest("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
ABSENT = Digest("0" * 64)


@dataclass
class House:
    """A store, and the folders in which its bytes are: where they are kept first."""

    store: ArtifactStore
    folders: tuple[FileArtifactStore, ...]
    bucket: Bucket | None = None

    def damage(self, digest: Digest, data: bytes, *, copies: bool = True) -> None:
        """Write into the very files, which are read-only, as a failing disk would."""
        kept = 0 if self.bucket else 1
        for folder in self.folders if copies else self.folders[:kept]:
            folder.place(digest).chmod(0o644)
            folder.place(digest).write_bytes(data)
        if self.bucket is not None:
            self.bucket.objects[f"/models/kept/{digest}"] = data
            self.bucket.changes += 1


@pytest.fixture(params=["files", "copies from the head", "copies from S3"])
def house(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[House]:
    files = FileArtifactStore(tmp_path / "state" / "artifacts")
    copies = FileArtifactStore(tmp_path / "node" / "files")

    def cached(origin: ArtifactOrigin) -> CachedArtifactStore:
        return CachedArtifactStore(tmp_path / "node", origin, limit_bytes=64 << 20)

    if request.param == "files":
        yield House(files, (files,))
    elif request.param == "copies from the head":
        yield House(cached(ServedArtifacts(ArtifactService(files).answer)), (files, copies))
    else:
        if find_spec("obstore") is None:
            missing("obstore")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "two")
        with s3_emulator() as bucket:
            origin = S3Artifacts(f"s3://models/kept?endpoint={bucket.endpoint}&region=here")
            yield House(cached(origin), (copies,), bucket)
            assert bucket.unsigned == 0


@pytest.fixture
def store(house: House) -> ArtifactStore:
    return house.store


@pytest.fixture
def hello(tmp_path: Path) -> Path:
    path = tmp_path / "hello.onnx"
    path.write_bytes(b"hello")
    return path


# -- the contract -------------------------------------------------------------------------------


def test_a_file_is_found_by_its_digest(store: ArtifactStore, hello: Path) -> None:
    assert store.put(hello) == HELLO
    assert store.path(HELLO).read_bytes() == b"hello"
    assert list(store.digests()) == [HELLO]


def test_what_is_stored_can_be_looked_at(store: ArtifactStore, hello: Path) -> None:
    store.put(hello)
    seen = store.look(HELLO)
    assert seen is not None
    assert seen.size_bytes == 5
    assert 1.6e18 < seen.mtime_ns < 1e19  # nanoseconds since 1970
    assert store.look(ABSENT) is None
    with pytest.raises(InvalidInput):
        store.look(Digest("hello"))


def test_what_is_in_the_place_of_another_installation_is_not_listed(
    house: House, hello: Path
) -> None:
    """A prefix of a bucket may be below another one, and counted as a part of that."""
    house.store.put(hello)
    if house.bucket is not None:
        house.bucket.objects[f"/models/kept/below/{ABSENT}"] = b"theirs"
        house.bucket.objects["/models/kept/notes"] = b"of somebody"
    assert list(house.store.digests()) == [HELLO]


def test_the_same_bytes_are_stored_once(house: House, hello: Path) -> None:
    house.store.put(hello)
    before = [folder.path(HELLO).stat().st_ino for folder in house.folders]
    assert house.store.put(hello) == HELLO
    assert [folder.path(HELLO).stat().st_ino for folder in house.folders] == before
    for folder in house.folders:
        assert [p for p in folder.root.rglob("*") if p.is_file()] == [folder.place(HELLO)]


def test_a_stored_artifact_does_not_follow_its_source(store: ArtifactStore, hello: Path) -> None:
    store.put(hello)
    hello.write_bytes(b"HELLO")
    assert store.path(HELLO).read_bytes() == b"hello"


def test_what_is_not_stored_is_not_found(store: ArtifactStore) -> None:
    with pytest.raises(NotFound):
        store.path(ABSENT)
    with pytest.raises(NotFound):
        store.size_bytes(ABSENT)


@pytest.mark.parametrize(
    "wrong", ["", "abc", "A" * 64, "g" * 64, "../" * 21 + "a", "0" * 64 + "\n"]
)
def test_a_digest_is_64_hexadecimal_digits(store: ArtifactStore, wrong: str) -> None:
    with pytest.raises(InvalidInput):
        store.path(Digest(wrong))
    with pytest.raises(InvalidInput):
        store.delete(Digest(wrong))
    with pytest.raises(InvalidInput):
        store.place(Digest(wrong))
    with pytest.raises(InvalidInput):
        store.sound(Digest(wrong))
    with pytest.raises(InvalidInput):
        store.size_bytes(Digest(wrong))


def test_deleting_twice_is_allowed(store: ArtifactStore, hello: Path) -> None:
    store.put(hello)
    store.delete(HELLO)
    store.delete(HELLO)
    assert list(store.digests()) == []
    with pytest.raises(NotFound):
        store.path(HELLO)
    assert store.put(hello) == HELLO


def test_a_reader_keeps_a_deleted_artifact(store: ArtifactStore, hello: Path) -> None:
    store.put(hello)
    with store.path(HELLO).open("rb") as file:
        store.delete(HELLO)
        assert file.read() == b"hello"


@pytest.mark.parametrize("size", [0, CHUNK_BYTES - 1, CHUNK_BYTES, PIECE_BYTES + 1])
def test_files_of_any_number_of_pieces(store: ArtifactStore, tmp_path: Path, size: int) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(size))
    digest = store.put(source)
    assert store.path(digest).read_bytes() == source.read_bytes()
    assert store.size_bytes(digest) == size


# -- what may come in ---------------------------------------------------------------------------


def test_only_plain_files_come_in(store: ArtifactStore, tmp_path: Path, hello: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(hello)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for wrong, reason in {
        link: "is a link",
        pipe: "is a device",
        tmp_path: "is a folder",
        Path("/dev/zero"): "is a device",
        tmp_path / "nothing": "No such file",
        Path("a\0b"): "null",
    }.items():
        with pytest.raises(InvalidArtifact, match=reason):
            store.put(wrong)
    assert list(store.digests()) == []


def test_an_artifact_is_read_only_and_its_folder_private(house: House, hello: Path) -> None:
    house.store.put(hello)
    assert stat.S_IMODE(house.store.path(HELLO).stat().st_mode) == 0o444
    assert {stat.S_IMODE(one.root.stat().st_mode) for one in house.folders} == {0o700}


# -- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("damaged", [b"hallo", b"he"])
def test_a_damaged_artifact_is_replaced(house: House, hello: Path, damaged: bytes) -> None:
    house.store.put(hello)
    house.damage(HELLO, damaged)
    assert house.store.put(hello) == HELLO
    assert {one.path(HELLO).read_bytes() for one in house.folders} == {b"hello"}


def test_a_sound_artifact_is_told_from_a_damaged_one(house: House, hello: Path) -> None:
    store = house.store
    store.put(hello)
    assert store.sound(HELLO) == store.place(HELLO) == store.path(HELLO)
    for damaged, reason in {
        b"hallo": r"2cf24dba5fb0 is damaged: the 5 bytes in the (store|bucket) are not those",
        b"hel": "the 3 bytes",
        b"": "the 0 bytes",
    }.items():
        house.damage(HELLO, damaged)
        with pytest.raises(ArtifactDamaged, match=reason) as raised:
            store.sound(HELLO)
        with pytest.raises(ArtifactDamaged, match=reason):
            store.check(HELLO)
        assert (raised.value.code, raised.value.retryable) == ("ARTIFACT_INVALID", False)
    store.delete(HELLO)
    with pytest.raises(ArtifactDamaged, match="is missing"):
        store.sound(HELLO)
    with pytest.raises(ArtifactDamaged, match="is missing"):
        store.check(HELLO)


def test_what_is_damaged_where_it_is_kept_is_told_and_put_back_if_there_is_a_copy(
    house: House, hello: Path
) -> None:
    store = house.store
    has_copies = not isinstance(store, FileArtifactStore)
    store.put(hello)
    house.damage(HELLO, b"hallo", copies=False)
    with pytest.raises(ArtifactDamaged, match="the 5 bytes"):
        store.check(HELLO)
    assert store.put_back(HELLO) == has_copies
    if has_copies:
        store.check(HELLO)
    house.damage(HELLO, b"hallo")
    assert not store.put_back(HELLO)
    assert not store.put_back(ABSENT)
    with pytest.raises(ArtifactDamaged, match="the 5 bytes"):
        store.check(HELLO)
    store.put(hello)
    store.check(HELLO)
