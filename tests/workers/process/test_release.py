"""What tells replicas of one build and setting from others."""

from dataclasses import dataclass

from workers.process.release import generation, release


@dataclass(frozen=True, slots=True)
class Told:
    values: dict[str, object]


def test_the_release_names_the_sources() -> None:
    number, _, sources = release().partition("+")
    assert number[0].isdigit()
    assert len(sources) == 12
    assert release() == f"{number}+{sources}"


def test_a_generation_is_of_what_was_told() -> None:
    """Not of the order in which a dictionary was filled."""
    first = generation(Told({"a": 1, "b": None}), "x")
    assert generation(Told({"b": None, "a": 1}), "x") == first
    assert generation(Told({"a": 2, "b": None}), "x") != first
    assert generation(Told({"a": 1, "b": None})) != first
