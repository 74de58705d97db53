"""Of a task whose versions give vectors of their own spaces, one version is live at a time."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contracts.places import migrated_place
from tests.variants.catalog_builders import registration, task, version
from variants.catalog.protocol import Catalog
from variants.errors import Conflict
from variants.types import Canary, ModelName, Registration, Stage, TaskName

NEAR, SAME = TaskName("near"), TaskName("same")
MLP, CNN = ModelName("mlp"), ModelName("cnn")


def of(name: TaskName, model: ModelName, number: int, stage: Stage) -> Registration:
    metric = "nearest" if name == NEAR else "cosine"
    made = registration(model, number, name, task=task(name, labels=(), metric=metric))
    return replace(made, version=version(model, number, name, stage))


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    """``mlp-v1`` of both tasks is live, ``mlp-v2`` and ``cnn-v1`` are canaries."""
    with migrated_place(request.param, request, tmp_path) as made:
        opened = made.open()
        for name in (NEAR, SAME):
            opened.register(of(name, MLP, 1, Stage.LIVE))
            opened.register(of(name, MLP, 2, Stage.CANARY))
            opened.register(of(name, CNN, 1, Stage.CANARY))
        yield opened


def stages(catalog: Catalog, name: TaskName) -> dict[str, Stage]:
    return {one.label: one.stage for one in catalog.snapshot().versions if one.task == name}


def test_what_was_live_stands_back_for_what_becomes_live(catalog: Catalog) -> None:
    for model, number, others in ((MLP, 2, ("mlp-v1", "cnn-v1")), (CNN, 1, ("mlp-v1", "mlp-v2"))):
        catalog.set_stage([NEAR], model, number, Stage.LIVE)
        assert stages(catalog, NEAR) == {
            f"{model}-v{number}": Stage.LIVE, **dict.fromkeys(others, Stage.CANARY),
        }  # fmt: skip
    # A rollback brings the version of its model back that was live before.
    catalog.set_stage([NEAR], MLP, 2, Stage.LIVE)
    catalog.roll_back([NEAR], MLP)
    assert stages(catalog, NEAR) == {
        "mlp-v1": Stage.LIVE, "mlp-v2": Stage.RETIRED, "cnn-v1": Stage.CANARY,
    }  # fmt: skip


def test_vectors_of_one_space_may_come_from_any_version(catalog: Catalog) -> None:
    catalog.set_stage([SAME], MLP, 2, Stage.LIVE)
    catalog.set_stage([SAME], CNN, 1, Stage.LIVE)
    assert set(stages(catalog, SAME).values()) == {Stage.LIVE}


def test_other_stages_move_nobody(catalog: Catalog) -> None:
    catalog.set_stage([NEAR], MLP, 2, Stage.RETIRED)
    assert stages(catalog, NEAR)["mlp-v1"] is Stage.LIVE
    catalog.set_stage([NEAR], MLP, 1, Stage.LIVE)
    assert stages(catalog, NEAR)["mlp-v1"] is Stage.LIVE


def test_a_canary_gets_no_share_of_what_it_would_answer_otherwise(catalog: Catalog) -> None:
    revision = catalog.revision()
    share = Canary(task=NEAR, model=MLP, version=2, share=0.1, set_at="now")
    with pytest.raises(Conflict, match="gets no share of its queries, as vectors of two versions"):
        catalog.set_canary(share)
    assert (catalog.revision(), catalog.snapshot().canaries) == (revision, ())
    assert catalog.set_canary(replace(share, task=SAME))
