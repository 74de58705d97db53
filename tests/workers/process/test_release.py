"""What tells replicas of one build and setting from others."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from workers.process.release import digest_of_sources, generation, release


@dataclass(frozen=True, slots=True)
class Told:
    values: dict[str, object]


def test_the_release_names_the_sources() -> None:
    number, _, sources = release().partition("+")
    assert number[0].isdigit()
    assert len(sources) == 12
    assert release() == f"{number}+{sources}"


@pytest.mark.parametrize("name", ["pages/index.html", "pages/style.css", "loop.py"])
def test_another_page_is_another_release_as_another_module_is(tmp_path: Path, name: str) -> None:
    source = tmp_path / "controlplane" / name
    source.parent.mkdir(parents=True)
    source.write_text("as it was")
    before = digest_of_sources(tmp_path)
    (source.parent / "loop.pyc").write_bytes(b"compiled")
    assert digest_of_sources(tmp_path) == before
    source.write_text("as it is")
    assert digest_of_sources(tmp_path) != before


def test_a_generation_is_of_what_was_told() -> None:
    """Not of the order in which a dictionary was filled."""
    first = generation(Told({"a": 1, "b": None}), "x")
    assert generation(Told({"b": None, "a": 1}), "x") == first
    assert generation(Told({"a": 2, "b": None}), "x") != first
    assert generation(Told({"a": 1, "b": None})) != first
