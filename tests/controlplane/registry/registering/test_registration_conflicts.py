"""What cannot be registered beside what is in the catalog."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controlplane.building.types import RegistrationRequest
from controlplane.registry.registration import register
from tests import onnx_models as models
from tests.controlplane.registry.house import House
from variants.checks.edges import Edges
from variants.errors import Conflict, InvalidInput
from variants.types import ImageScale, Slo, Stage, TaskName

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]


def test_of_an_archive_no_edges_can_be_changed(house: House) -> None:
    archive = house.model.rename(house.folder / "tiny.pt2")
    with pytest.raises(InvalidInput, match="only inputs and outputs of ONNX files can be changed"):
        house.register(path=archive, edges=Edges(free_batch=True))
    house.assert_untouched()


def test_the_same_file_twice_is_a_conflict(known: House) -> None:
    before = known.catalog.revision(), sorted(known.store.digests())
    with pytest.raises(Conflict, match="as 'tiny-v1'; `modelless variants build shapes tiny 1"):
        known.register()
    assert (known.catalog.revision(), sorted(known.store.digests())) == before


def test_a_version_with_other_bytes_is_a_conflict(house: House) -> None:
    folder = house.folder / "cnn"
    models.write(folder / "1" / "model.onnx")
    house.register(path=folder, kinds=())
    models.write(folder / "1" / "model.onnx", models.model(weights={"weight": models.WEIGHT * 2}))
    with pytest.raises(Conflict, match="'cnn-v1' of task 'shapes' exists with other bytes"):
        house.register(path=folder)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (
            {"labels": ("x", "y", "z")},
            "other labels, which stay: a, b, c; leave that option out",
        ),
        ({"slo": Slo(latency_ms=7.0)}, "other defaults"),
        ({"metric": "top5"}, "another metric, which stays: top1; leave that option out"),
        (
            {"labels": ("b", "c", "a")},
            r"these labels in another order, a, b, c, which stays: have the model give its scores"
            r" in that one, scores\[:, \[2, 0, 1\]\] as its last step, and leave --labels out",
        ),
        (
            {"image": ImageScale(mean=(0.25,), std=(0.5,))},
            r"another mean and std of images, which stay, .* have the model begin with"
            r" \(x \* 1 \+ 0 - 0\.25\) / 0\.5, or change them for all by `modelless tasks set`",
        ),
    ],
)
def test_a_task_keeps_what_it_is(known: House, changes: dict[str, Any], what: str) -> None:
    other = models.write(known.folder / "other.onnx", models.model(opsets=[("", 19)]))
    with pytest.raises(Conflict, match=f"task 'shapes' exists with {what}"):
        known.register(path=other, **changes)


def test_the_number_of_another_model_that_was_removed_is_refused_at_once(house: House) -> None:
    folder = house.folder / "cnn"
    models.write(folder / "1" / "model.onnx")
    house.register(path=folder, kinds=())
    house.catalog.remove_task(TaskName("shapes"))
    house.told.clear()
    models.write(folder / "1" / "model.onnx", models.model(weights={"weight": models.WEIGHT * 2}))
    with pytest.raises(Conflict, match="'cnn-v1' of task 'shapes' was another model"):
        house.register(path=folder)
    assert house.told == []
    models.write(folder / "1" / "model.onnx")
    house.register(path=folder, kinds=())
    assert [version.label for version in house.catalog.snapshot().versions] == ["cnn-v1"]


def test_no_device_kind_no_registration(house: House) -> None:
    request = RegistrationRequest(path=house.model, task="shapes", evaluation=house.rows)
    with pytest.raises(InvalidInput, match="no CPU device kind"):
        register(request, house.catalog, house.store, ())


def test_vectors_of_another_model_do_not_mix_with_those_of_a_live_one(
    house: House, tmp_path: Path
) -> None:
    with np.load(house.rows) as given:
        rows = tmp_path / "vectors.npz"
        np.savez(rows, pixels=given["pixels"], labels=given["labels"])
    of = {"evaluation": rows, "kinds": (), "task": "near"}
    house.register(metric="nearest", **of)
    other = models.write(
        tmp_path / "other.onnx", models.model(weights={"weight": models.WEIGHT * 2})
    )
    with pytest.raises(Conflict, match="tiny-v1 of task 'near' is live, and vectors of two vers"):
        house.register(path=other, stage=Stage.LIVE, **of)
    result = house.register(path=other, **of)
    assert [(v.label, v.stage) for v in result.versions] == [("other-v1", Stage.CANARY)]
