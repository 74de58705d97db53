"""Watching a folder of versions: what is registered in which order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controlplane.registry.watch import (
    Notice,
    listing,
    watch,
)
from variants.errors import InvalidArtifact, ModellessError, StateUnavailable

REFUSED = InvalidArtifact("is no model")
BUSY = StateUnavailable("the database is gone")


class Enough(Exception):
    """The test has seen what it wanted."""


@dataclass
class Watched:
    """A folder whose state changes between two looks as a test says."""

    folder: Path
    errors: dict[str, ModellessError] = field(default_factory=dict)
    taken: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def run(self, *steps: Callable[[], object], known: tuple[str, ...] = ()) -> None:
        left = list(steps)

        def register(name: str) -> str:
            self.taken.append(name)
            if name in self.errors:
                raise self.errors[name]
            return "registered"

        def wait() -> None:
            if not left:
                raise Enough
            left.pop(0)()

        def tell(notice: Notice) -> None:
            self.told.append(f"{notice.version} {notice.event}")

        with pytest.raises(Enough):
            watch(self.folder, known, register, tell, wait)

    def put(self, name: str, text: str = "model") -> Callable[[], object]:
        def write() -> None:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

        return write


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    (tmp_path / "cnn").mkdir()
    return Watched(tmp_path / "cnn")


def nothing() -> None:
    """One more look."""


def test_new_versions_are_registered_in_their_order(watched: Watched) -> None:
    watched.put("3/model.onnx")()

    def two() -> None:
        watched.put("2/model.pt2")()
        watched.put("1/model.onnx")()

    watched.run(nothing, two, nothing, nothing, known=())
    assert watched.taken == ["3", "1", "2"]
    assert watched.told == [
        "3 found", "3 registered", "1 found", "2 found", "1 registered", "2 registered",
    ]  # fmt: skip


def test_a_bad_version_stops_no_other(watched: Watched) -> None:
    watched.errors["1"] = REFUSED
    watched.run(watched.put("1/model.onnx"), watched.put("2/model.onnx"), nothing, nothing)
    assert watched.taken == ["1", "2"]
    assert watched.told == ["1 found", "2 found", "1 refused", "2 registered"]


def test_a_folder_that_cannot_be_read_for_a_while_is_told_once(watched: Watched) -> None:
    away = watched.folder.with_name("away")

    def leave() -> None:
        watched.folder.rename(away)

    def come_back() -> None:
        away.rename(watched.folder)

    watched.put("1/model.onnx")()
    watched.run(leave, nothing, come_back, nothing, leave, known=("1",))
    assert watched.told == ["None unreadable", "None unreadable"]
    assert watched.taken == []


def test_a_folder_that_is_not_there_at_first_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArtifact, match="none cannot be read"):
        Watched(tmp_path / "none").run()


def test_the_listing_follows_no_link(watched: Watched) -> None:
    watched.put("1/model.onnx", "12345")()
    (watched.folder / "2").symlink_to(watched.folder / "1")
    (watched.folder / "1" / "other.onnx").symlink_to("nowhere")
    found = listing(watched.folder)
    assert [(file.name, file.size_bytes) for file in found["1"]] == [
        ("model.onnx", 5), ("other.onnx", len("nowhere")),
    ]  # fmt: skip
    assert [file.name for file in found["2"]] == [""]
