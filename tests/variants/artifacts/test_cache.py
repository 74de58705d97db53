"""Copies of artifacts on a machine: fetched once, bounded, and nothing but what was asked for."""

import errno
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from variants.artifacts.cache import CachedArtifactStore
from variants.artifacts.served import (
    IDLE_S,
    MOST_UPLOADS,
    ArtifactService,
    Failed,
    ServedArtifacts,
)
from variants.artifacts.store import Draft, FileArtifactStore
from variants.errors import (
    ArtifactDamaged,
    InvalidArtifact,
    InvalidInput,
    StateUnavailable,
    VariantNotLoadable,
)
from variants.types import Digest

LIMIT = 1_000
FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from variants.artifacts.cache import CachedArtifactStore
from variants.artifacts.served import ArtifactService, ServedArtifacts
from variants.artifacts.store import FileArtifactStore
from variants.errors import VariantNotLoadable

folder = Path(sys.argv[1])
head = FileArtifactStore(folder / "head")
digest = head.put_pieces([bytes(2_000)])
node = CachedArtifactStore(folder / "node", ServedArtifacts(ArtifactService(head).answer), 1 << 20)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
try:
    node.sound(digest)
except VariantNotLoadable as error:
    print(error.message)
"""


class Line:
    """The way to where artifacts are kept; what comes over it can be changed, or nothing comes."""

    def __init__(self, service: ArtifactService) -> None:
        self.service = service
        self.asked: list[str] = []
        self.spoils = 0
        """So many of the next pieces are changed on their way."""
        self.dead = False
        self.meanwhile: Callable[[], object] | None = None
        """Happens on the machine while the first question is on its way."""

    def __call__(self, question: str, *arguments: Any) -> Any:
        self.asked.append(question)
        if (happens := self.meanwhile) is not None:
            self.meanwhile = None
            happens()
        if self.dead:
            raise StateUnavailable("the cluster's head does not answer")
        answer = self.service.answer(question, *arguments)
        if question == "read" and self.spoils:
            self.spoils -= 1
            return b"?" + answer[1:]
        return answer


@pytest.fixture
def head(tmp_path: Path) -> FileArtifactStore:
    return FileArtifactStore(tmp_path / "head")


@pytest.fixture
def line(head: FileArtifactStore) -> Line:
    return Line(ArtifactService(head))


@pytest.fixture
def node(tmp_path: Path, line: Line) -> CachedArtifactStore:
    return process(tmp_path, line)


def process(tmp_path: Path, line: Line) -> CachedArtifactStore:
    """What one process of the machine has."""
    return CachedArtifactStore(tmp_path / "node", ServedArtifacts(line), LIMIT)


def copies(node: CachedArtifactStore) -> set[Digest]:
    return set(FileArtifactStore(node.place(Digest("0" * 64)).parents[2]).digests())


def test_what_is_asked_for_again_is_not_fetched_again(
    head: FileArtifactStore, line: Line, node: CachedArtifactStore
) -> None:
    digest = head.put_pieces([b"a"])
    assert node.known(digest) is None
    assert node.sound(digest).read_bytes() == b"a"
    line.dead = True
    assert node.sound(digest).read_bytes() == b"a"
    assert line.asked == ["size", "check", "read"]


def test_processes_of_a_machine_fetch_once(
    tmp_path: Path, head: FileArtifactStore, line: Line
) -> None:
    digest = head.put_pieces([b"a" * 500])
    nodes = [process(tmp_path, line) for _ in range(4)]
    barrier = threading.Barrier(4)

    def fetch(node: CachedArtifactStore) -> bytes:
        barrier.wait()
        return node.sound(digest).read_bytes()

    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(fetch, nodes)) == {b"a" * 500}
    assert line.asked.count("read") == 1


def test_what_comes_damaged_is_discarded_and_comes_again_when_asked_again(
    head: FileArtifactStore, line: Line, node: CachedArtifactStore
) -> None:
    digest = head.put_pieces([b"abc"])
    line.spoils = 1
    with pytest.raises(VariantNotLoadable, match="what came is not what was registered") as raised:
        node.sound(digest)
    assert not isinstance(raised.value, ArtifactDamaged)
    assert copies(node) == set()
    assert node.sound(digest).read_bytes() == b"abc"


def test_a_copy_that_was_damaged_here_is_replaced(
    head: FileArtifactStore, node: CachedArtifactStore
) -> None:
    digest = head.put_pieces([b"abc"])
    path = node.sound(digest)
    path.chmod(0o644)
    path.write_bytes(b"abd")
    with node.held(digest) as (held, _):
        assert held.read_bytes() == b"abc"


def test_what_is_found_damaged_while_a_copy_is_held_is_told(
    head: FileArtifactStore, line: Line, node: CachedArtifactStore
) -> None:
    digest = head.put_pieces([b"abc"])
    with pytest.raises(ArtifactDamaged, match="another one is"), node.held(digest):
        raise ArtifactDamaged("another one is missing")
    assert line.asked.count("read") == 1


def test_what_is_damaged_where_it_is_kept_is_said_to_be(
    head: FileArtifactStore, node: CachedArtifactStore
) -> None:
    digest = head.put_pieces([b"abc"])
    head.place(digest).chmod(0o644)
    head.place(digest).write_bytes(b"ab")
    before = node.origin.look(digest)
    with pytest.raises(ArtifactDamaged, match="the 2 bytes in the store"):
        node.sound(digest)
    head.put_pieces([b"abc"])
    assert node.origin.look(digest) != before
    assert node.sound(digest).read_bytes() == b"abc"


def test_without_an_answer_what_is_here_can_be_used_and_nothing_else(
    head: FileArtifactStore, line: Line, node: CachedArtifactStore
) -> None:
    line.dead = True
    with pytest.raises(VariantNotLoadable, match="cannot be fetched: the cluster's head does not"):
        node.sound(head.put_pieces([b"a"]))


def test_what_was_used_the_longest_ago_leaves(
    head: FileArtifactStore, node: CachedArtifactStore
) -> None:
    old, middle, new = (head.put_pieces([letter * 400]) for letter in (b"a", b"b", b"c"))
    for digest in (old, middle, old, new):
        node.sound(digest)
    assert copies(node) == {old, new}


def test_what_is_being_read_stays(head: FileArtifactStore, node: CachedArtifactStore) -> None:
    held, other, new = (head.put_pieces([letter * 400]) for letter in (b"a", b"b", b"c"))
    with node.held(held) as (path, _):
        node.sound(other)
        node.sound(new)
        assert path.exists()
    assert copies(node) == {held, new}


def test_what_never_has_room_is_refused(
    tmp_path: Path, head: FileArtifactStore, node: CachedArtifactStore
) -> None:
    digest = head.put_pieces([b"a" * (LIMIT + 1)])
    with pytest.raises(VariantNotLoadable, match="MODELLESS_ARTIFACT_CACHE_MIB allows"):
        node.sound(digest)
    large = tmp_path / "large"
    large.write_bytes(b"b" * (LIMIT + 1))
    with pytest.raises(StateUnavailable, match="MODELLESS_ARTIFACT_CACHE_MIB"):
        node.put(large)
    assert copies(node) == set()


def test_a_full_disk_is_a_reason_and_leaves_nothing(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk."""
    child = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert child.stdout.startswith("its artifact "), child.stderr
    assert child.stdout.endswith("File too large\n")
    assert [path for path in (tmp_path / "node/files").rglob("*") if path.is_file()] == []


class SmallDisk(ServedArtifacts):
    """What comes has room on the machine's disk beside one other copy only."""

    node: CachedArtifactStore

    def pieces(self, digest: Digest) -> Iterator[bytes]:
        yield from super().pieces(digest)
        if len(copies(self.node)) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")


def test_on_a_full_disk_what_was_used_the_longest_ago_leaves(
    tmp_path: Path, head: FileArtifactStore, line: Line
) -> None:
    disk = SmallDisk(line)
    disk.node = node = CachedArtifactStore(tmp_path / "node", disk, LIMIT)
    old, middle, new = (head.put_pieces([letter * 40]) for letter in (b"a", b"b", b"c"))
    for digest in (old, middle, new):
        node.sound(digest)
    assert copies(node) == {middle, new}

    with (
        node.held(middle),
        node.held(new),
        pytest.raises(VariantNotLoadable, match=r"cannot be fetched: .*: No space left on device"),
    ):
        node.sound(old)
    assert copies(node) == {middle, new}
    assert node.sound(old).read_bytes() == b"a" * 40


def test_what_cannot_be_stored_where_it_belongs_is_not_stored(
    tmp_path: Path, head: FileArtifactStore, line: Line, node: CachedArtifactStore
) -> None:
    source = tmp_path / "a"
    source.write_bytes(b"a")
    line.dead = True
    with pytest.raises(StateUnavailable, match="does not answer"):
        node.put(source)
    with pytest.raises(InvalidArtifact):
        node.put(tmp_path / "nothing")
    assert list(head.digests()) == []


def test_what_is_being_stored_stays_while_another_process_needs_room(
    tmp_path: Path, head: FileArtifactStore, line: Line, node: CachedArtifactStore
) -> None:
    source = tmp_path / "a"
    source.write_bytes(b"a" * 600)
    other = head.put_pieces([b"b" * 600])
    line.meanwhile = lambda: process(tmp_path, line).sound(other)
    digest = node.put(source)
    assert head.path(digest).read_bytes() == b"a" * 600
    assert copies(node) == {digest, other}


# -- the side that answers ----------------------------------------------------------------------


def test_an_upload_is_all_or_nothing(head: FileArtifactStore) -> None:
    service = ArtifactService(head)
    digest = Digest("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824")
    name = service.answer("begin", digest)
    service.answer("write", name, 0, b"hel")
    lost = service.answer("write", name, 4, b"o")
    assert lost.kind == "StateUnavailable"
    assert service.answer("publish", name).kind == "ArtifactDamaged"
    assert service.answer("publish", name).kind == "StateUnavailable"
    assert [path for path in head.root.rglob("*") if path.is_file()] == []

    name = service.answer("begin", digest)
    for at, piece in ((0, b"hel"), (3, b"lo")):
        service.answer("write", name, at, piece)
    assert service.answer("publish", name) is None
    assert head.path(digest).read_bytes() == b"hello"
    assert service.answer("begin", digest) == ""


def test_uploads_are_bounded_and_what_stands_still_ends(head: FileArtifactStore) -> None:
    now_s = [0.0]
    service = ArtifactService(head, lambda: now_s[0])
    names = [service.answer("begin", Digest(f"{n:064x}")) for n in range(MOST_UPLOADS + 1)]
    assert isinstance(names.pop(), Failed)
    now_s[0] = IDLE_S - 1
    service.answer("write", names[0], 0, b"a")
    now_s[0] = IDLE_S + 1
    assert isinstance(service.answer("begin", Digest("f" * 64)), str)
    assert service.answer("write", names[0], 1, b"b") is None
    assert service.answer("write", names[1], 0, b"b").kind == "StateUnavailable"


def test_what_is_being_written_does_not_stand_still(
    head: FileArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of its file would be another upload's, and its piece end in there."""
    now_s = [0.0]
    service = ArtifactService(head, lambda: now_s[0])
    slow, quick = b"slow", b"quick"
    begun, go_on = threading.Event(), threading.Event()
    write = Draft.write

    def write_slowly(draft: Draft, piece: bytes) -> None:
        if piece == slow:
            begun.set()
            assert go_on.wait(10)
        write(draft, piece)

    monkeypatch.setattr(Draft, "write", write_slowly)
    first = service.answer("begin", Digest(sha256(slow).hexdigest()))
    with ThreadPoolExecutor(1) as thread:
        written = thread.submit(service.answer, "write", first, 0, slow)
        assert begun.wait(10)
        now_s[0] = IDLE_S + 1
        digest = Digest(sha256(quick).hexdigest())
        second = service.answer("begin", digest)
        go_on.set()
        assert written.result() is None
    service.answer("write", second, 0, quick)
    assert service.answer("publish", second) is None
    assert head.path(digest).read_bytes() == quick
    assert service.answer("publish", first) is None


def test_no_question_leads_out_of_the_store(head: FileArtifactStore) -> None:
    service = ArtifactService(head)
    for question in ("look", "size", "check", "begin", "delete"):
        assert service.answer(question, "../" * 21 + "a").kind == InvalidInput.__name__
    assert service.answer("read", "/etc/passwd", 0).kind == InvalidInput.__name__
    assert service.answer("__class__").kind == InvalidInput.__name__
