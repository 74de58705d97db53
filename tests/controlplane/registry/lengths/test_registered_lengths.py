"""Registering a model for rows of several lengths: what is made of it, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import onnx_models as models
from tests.controlplane.registry.house import House
from tests.controlplane.registry.test_repairing import repaired, spoil
from variants.buckets import bucketed_named
from variants.checks.edges import Edges
from variants.errors import Conflict, InvalidArtifact, InvalidInput
from variants.types import OpenAxis, Stage, TensorSpec

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]


def write_rows(path: Path, lengths: list[int], longest: int = 8) -> Path:
    """Rows of these lengths, filled up with 7 and a mask of 0; half of them of each class."""
    labels = np.arange(len(lengths)) % 2
    values = np.full((len(lengths), longest, 2), 7, np.float32)
    mask = np.zeros((len(lengths), longest, 1), np.float32)
    for row, length in enumerate(lengths):
        values[row, :length] = 0.0
        values[row, :length, labels[row]] = 1.0
        mask[row, :length] = 1.0
    np.savez(path, values=values, mask=mask, labels=labels)
    return path


class Texts(House):
    """Registers a model of rows of any length."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.model = models.write(folder / "text.onnx", models.text_model())
        self.rows = write_rows(folder / "texts.npz", [1, 2, 3, 4] * 6 + [5, 6, 7, 8] * 6)

    def register(self, **changes: Any) -> Any:
        given = {"task": "texts", "pads": (("values", 7.0),), "kinds": ()} | changes
        return super().register(**given)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Texts:
    """Registered for the lengths 4 and 8, not to be changed."""
    made = Texts(tmp_path_factory.mktemp("texts"))
    made.register(lengths=(8, 4, 8), labels=("left", "right"))
    return made


@pytest.fixture
def known(first: Texts, tmp_path: Path) -> Texts:
    return Texts.like(first, tmp_path)  # type: ignore[return-value]


def test_each_length_becomes_a_task_with_variants_and_profiles(first: Texts) -> None:
    snapshot = first.catalog.snapshot()
    texts = bucketed_named(snapshot.tasks, "texts")
    assert texts is not None
    assert [one.name for one in texts.buckets] == ["texts.4", "texts.8"]
    assert texts.axes == (
        OpenAxis(input="values", axis=0, pad=7.0),
        OpenAxis(input="mask", axis=0, pad=0.0),
    )
    assert texts.buckets[0].inputs[0] == TensorSpec(name="values", dtype="float32", shape=(4, 2))
    assert texts.face.labels == ("left", "right")
    variants = {one.task: one for one in snapshot.variants}
    assert {one.name for one in variants.values()} == {"text-v1-onnx-fp32"}
    assert {one.task for one in snapshot.profiles} == set(variants)
    assert len({one.artifact for one in variants.values()}) == 2
    assert snapshot.revision == 1  # all at once


def test_each_length_is_judged_by_the_rows_that_it_holds(first: Texts) -> None:
    found = {one.task: one for one in first.catalog.snapshot().variants}
    # A fifth of the rows calibrates.
    assert {task: one.accuracy_rows for task, one in found.items()} == {
        "texts.4": 20,
        "texts.8": 39,
    }
    assert {one.accuracy for one in found.values()} == {1.0}


def test_a_later_version_goes_into_all_lengths(known: Texts) -> None:
    other, before = models.text_model(opsets=[("", 19)]), known.catalog.revision()
    result = known.register(path=models.write(known.folder / "other.onnx", other), model="text")
    assert [(one.task, one.version, one.stage) for one in result.versions] == [
        ("texts.4", 2, Stage.CANARY),
        ("texts.8", 2, Stage.CANARY),
    ]
    assert known.catalog.revision() == before + 1


def test_inputs_get_other_names_before_lengths(tmp_path: Path) -> None:
    house = Texts(tmp_path)
    with np.load(house.rows) as rows:
        renamed = {"words" if name == "values" else name: rows[name] for name in rows.files}
    np.savez(tmp_path / "renamed.npz", **renamed)
    house.register(
        lengths=(4,),
        edges=Edges(input_names=("words", "mask")),
        pads=(("words", 7.0),),
        evaluation=tmp_path / "renamed.npz",
    )
    (task,) = house.catalog.snapshot().tasks
    assert [(one.name, one.shape) for one in task.inputs] == [("words", (4, 2)), ("mask", (4, 1))]


def test_a_batch_is_not_freed_of_a_model_for_several_lengths(known: Texts) -> None:
    for given in ({}, {"lengths": (4, 8)}, {"lengths": (4, 8), "task": "fresh"}):
        with pytest.raises(InvalidInput, match="--free-batch tries rows of one length"):
            known.register(edges=Edges(free_batch=True), **given)


def test_the_same_model_again_is_a_conflict_and_other_padding_is(known: Texts) -> None:
    before = known.catalog.snapshot()
    with pytest.raises(Conflict, match="registered already"):
        known.register()
    with pytest.raises(Conflict, match="registered already"):
        known.register(lengths=(8,))
    with pytest.raises(Conflict, match="has other open axes, or other padding, which stay"):
        known.register(
            path=models.write(known.folder / "other.onnx", models.text_model(opsets=[("", 19)])),
            pads=(("", 1.0),),
        )
    assert known.catalog.snapshot() == before
    known.assert_nothing_runs()


def test_what_fails_for_one_length_is_registered_for_none(tmp_path: Path) -> None:
    house = Texts(tmp_path)
    with pytest.raises(InvalidArtifact, match=r"the length 5, so none is left for rows of up to 4"):
        house.register(
            lengths=(4, 8), evaluation=write_rows(tmp_path / "long.npz", [5, 6, 7, 8] * 6)
        )
    with pytest.raises(InvalidArtifact, match=r"few up to 4\.npz has 2 rows"):
        house.register(
            lengths=(4, 8), evaluation=write_rows(tmp_path / "few.npz", [1, 2] + [8] * 20)
        )
    house.assert_untouched()


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"lengths": (0, 4)}, InvalidInput, "each 1 or more"),
        ({"lengths": tuple(range(1, 18))}, InvalidInput, "1 to 16 lengths"),
        ({"lengths": (4,), "pads": (("no", 1.0),)}, InvalidInput, "--pad names 'no'"),
        ({"lengths": None}, InvalidArtifact, "leaves axis 1 open; .* --lengths 16,64,256"),
    ],
)
def test_lengths_that_cannot_be_are_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], why: str
) -> None:
    house = Texts(tmp_path)
    with pytest.raises(error, match=why):
        house.register(**changes)
    house.assert_untouched()


def test_a_model_without_an_open_axis_has_no_lengths(house: House) -> None:
    with pytest.raises(InvalidArtifact, match=r"^(?!(.*: )\1).*leave --lengths out"):
        house.register(lengths=(4, 8))
    house.assert_untouched()


def test_one_file_for_all_lengths_is_stored_once_and_mended(tmp_path: Path) -> None:
    house = Texts(tmp_path)
    house.register(lengths=(4, 8), kinds=("onnx-fp32-open",))
    snapshot = house.catalog.snapshot()
    opened = [one for one in snapshot.variants if one.name == "text-v1-onnx-fp32-open"]
    assert [one.task for one in opened] == ["texts.4", "texts.8"]
    assert {one.accuracy for one in opened} == {1.0}
    assert {one.agreement for one in opened} == {1.0}
    (artifact,) = {one.artifact for one in opened}
    assert len({one.artifact for one in snapshot.variants}) == 3
    # It is made again from the source of a length.
    spoil(house.store.place(artifact))
    assert repaired(house) == [(True, "rebuilt from its source, the same to the byte")]
    house.store.sound(artifact)
