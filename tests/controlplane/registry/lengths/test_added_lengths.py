"""A length more for a task that has some: registering again what it has adds it."""

from pathlib import Path
from typing import Any

import pytest

from tests import onnx_models as models
from tests.controlplane.registry.lengths.test_registered_lengths import Texts, write_rows
from variants.buckets import bucketed_named
from variants.errors import Conflict, InvalidInput
from variants.types import ModelName, Slo, Stage, TaskName

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]

NAMES = ("left", "right")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    """Registered for the lengths 4 and 8, not to be changed."""
    made = Texts(tmp_path_factory.mktemp("texts"))
    made.register(lengths=(4, 8), labels=NAMES, slo=Slo(latency_ms=70.0))
    return made


@pytest.fixture
def known(first: Texts, tmp_path: Path) -> Texts:
    return Texts.like(first, tmp_path)  # type: ignore[return-value]


def longer(house: Texts) -> Path:
    lengths = [1, 2, 3, 4] * 6 + [9, 10, 11, 12] * 6
    return write_rows(house.folder / "longer.npz", lengths, longest=12)


def versions(house: Texts) -> list[tuple[Any, ...]]:
    found = house.catalog.snapshot().versions
    return sorted((one.task, one.model, one.version, one.stage) for one in found)


@pytest.mark.parametrize("lengths", [(12,), (4, 8, 12)])
def test_the_same_model_adds_a_length(known: Texts, lengths: tuple[int, ...]) -> None:
    before = known.catalog.snapshot()
    result = known.register(lengths=lengths, evaluation=longer(known))
    assert [(one.task, one.version) for one in result.versions] == [("texts.12", 1)]
    texts = bucketed_named(known.catalog.snapshot().tasks, "texts")
    assert texts is not None
    assert texts.lengths == (4, 8, 12)
    added = texts.holding(9)
    # What others of the name have, it has as well.
    assert (added.labels, added.slo.latency_ms, added.metric) == (NAMES, 70.0, "top1")
    kept = [one for one in known.catalog.snapshot().variants if one.task != "texts.12"]
    assert kept == list(before.variants)


def test_a_later_version_is_added_with_its_number_and_stage(known: Texts) -> None:
    other = models.write(known.folder / "other.onnx", models.text_model(opsets=[("", 19)]))
    again = {"path": other, "model": "text", "evaluation": longer(known)}
    known.register(path=other, model="text", lengths=None)
    # A length without a live version would have no answers.
    with pytest.raises(Conflict, match="'text-v2' is canary in the other buckets of 'texts'"):
        known.register(lengths=(12,), **again)
    known.register(lengths=(12,), evaluation=longer(known))
    known.register(lengths=(12,), **again)
    assert [one for one in versions(known) if one[0] == "texts.12"] == [
        ("texts.12", "text", 1, Stage.LIVE),
        ("texts.12", "text", 2, Stage.CANARY),
    ]
    third = models.write(known.folder / "third.onnx", models.text_model(opsets=[("", 18)]))
    result = known.register(path=third, model="text", lengths=None)
    assert {one.version for one in result.versions} == {3}


def test_a_model_that_the_task_has_not_adds_no_length(known: Texts) -> None:
    before = known.catalog.snapshot()
    other = models.write(known.folder / "other.onnx", models.text_model(opsets=[("", 19)]))
    with pytest.raises(Conflict, match="the file of a model that 'texts' has, and this one is"):
        known.register(path=other, model="text", lengths=(12,), evaluation=longer(known))
    with pytest.raises(Conflict, match="with the file of a model that 'texts' has"):
        known.register(model="another", lengths=(12,), evaluation=longer(known))
    assert known.catalog.snapshot() == before
    known.assert_nothing_runs()


def test_what_is_retired_adds_no_length_before_it_is_back(known: Texts) -> None:
    for name in ("texts.4", "texts.8"):
        known.catalog.set_stage([TaskName(name)], ModelName("text"), 1, Stage.RETIRED)
    with pytest.raises(Conflict, match=r"'text-v1' is retired .* a live version first"):
        known.register(lengths=(12,), evaluation=longer(known))
    known.catalog.set_stage([TaskName("texts.8")], ModelName("text"), 1, Stage.LIVE)
    known.register(lengths=(12,), evaluation=longer(known))
    assert ("texts.12", "text", 1, Stage.LIVE) in versions(known)


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"labels": ("a", "b")}, Conflict, "the other buckets of 'texts' have other labels"),
        ({"metric": "top5"}, Conflict, "the other buckets of 'texts' have other metric"),
        ({"pads": (("", 3.0),)}, Conflict, "other padding, which stay"),
        ({"lengths": tuple(range(10, 25))}, InvalidInput, "would have 17 lengths, and 16 are"),
    ],
)
def test_a_length_unlike_the_others_is_refused(
    known: Texts, changes: dict[str, Any], error: type[Exception], why: str
) -> None:
    before = known.catalog.snapshot()
    with pytest.raises(error, match=why):
        known.register(**({"lengths": (12,), "evaluation": longer(known)} | changes))
    assert known.catalog.snapshot() == before


def test_another_model_may_be_there_at_some_of_the_lengths(known: Texts) -> None:
    other = models.write(known.folder / "short.onnx", models.text_model(opsets=[("", 19)]))
    result = known.register(path=other, lengths=(4,))
    assert [(one.task, one.label) for one in result.versions] == [("texts.4", "short-v1")]
    # Its later versions are where it is, and what the task has besides it may get as well.
    later = models.write(known.folder / "later.onnx", models.text_model(opsets=[("", 18)]))
    result = known.register(path=later, model="short", lengths=None)
    assert [(one.task, one.label) for one in result.versions] == [("texts.4", "short-v2")]
    third = models.write(known.folder / "third.onnx", models.text_model(opsets=[("", 17)]))
    with pytest.raises(Conflict, match="the file of a model that 'texts' has, and this one is"):
        known.register(path=third, model="short", lengths=(8,))
    known.register(path=other, lengths=(8,))
    assert [one for one in versions(known) if one[1] == "short"] == [
        ("texts.4", "short", 1, Stage.LIVE),
        ("texts.4", "short", 2, Stage.CANARY),
        ("texts.8", "short", 1, Stage.LIVE),
    ]
