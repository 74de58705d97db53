"""The digits family, made in parts: what is there is kept, and a mark says what is whole."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from variants.zoo import digits

DIGEST = "the recipe of these tests"


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is trained, which takes no time."""
    names: list[str] = []
    recipes = [SimpleNamespace(name=model) for model in digits.MODELS]

    def train(recipe: Any, pixels: digits.Arrays, labels: digits.Arrays) -> str:
        assert len(pixels) == len(labels) > 1_000
        names.append(recipe.name)
        return str(recipe.name)

    def export(model: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(model)

    monkeypatch.setitem(
        sys.modules, "variants.zoo.digits_models", SimpleNamespace(RECIPES=tuple(recipes))
    )
    monkeypatch.setattr(digits, "recipe_digest", lambda: DIGEST)
    monkeypatch.setattr(digits, "_quiet_torch", lambda: None)
    monkeypatch.setattr(digits, "train", train)
    monkeypatch.setattr(digits, "export", export)
    return names


def test_what_is_made_first_is_kept_when_the_rest_is_made(
    tmp_path: Path, trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    first, rest = digits.MODELS[:2], digits.MODELS[2:]
    digits.make(tmp_path, first)
    assert tuple(trained) == first
    assert digits.absent(tmp_path, DIGEST) == rest
    rows = (tmp_path / "evaluation.npz").stat().st_mtime_ns
    steps = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [step["done"] for step in steps] == [0, 0, 1, 2, 3, 4]
    assert {step["total"] for step in steps[1:]} == {4}

    digits.make(tmp_path)
    assert tuple(trained) == digits.MODELS
    assert digits.absent(tmp_path, DIGEST) == ()
    assert (tmp_path / "evaluation.npz").stat().st_mtime_ns == rows

    digits.make(tmp_path)
    assert tuple(trained) == digits.MODELS


def test_a_damaged_folder_or_another_recipe_is_made_anew(
    tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digits.make(tmp_path, digits.MODELS[:2])
    (tmp_path / "calibration.npz").unlink()
    assert digits.absent(tmp_path, DIGEST) == digits.MODELS
    digits.make(tmp_path, digits.MODELS[1:2])
    assert trained == [*digits.MODELS[:2], digits.MODELS[1]]
    assert digits.absent(tmp_path, DIGEST, digits.MODELS[:2]) == digits.MODELS[:1]

    monkeypatch.setattr(digits, "recipe_digest", lambda: "another")
    assert digits.absent(tmp_path, "another") == digits.MODELS
    digits.make(tmp_path, digits.MODELS[:1])
    assert digits.absent(tmp_path, "another") == digits.MODELS[1:]


def test_a_part_that_fails_leaves_what_was_whole(
    tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digits.make(tmp_path, digits.MODELS[:2])

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(digits, "export", fail)
    with pytest.raises(OSError, match="No space"):
        digits.make(tmp_path)
    assert digits.absent(tmp_path, DIGEST) == digits.MODELS[2:]
