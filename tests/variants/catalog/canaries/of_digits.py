"""A canary of the task ``digits``, and the stages of a model's versions."""

from dataclasses import replace

from tests.variants.catalog_builders import registration, version
from variants.catalog.protocol import Catalog
from variants.types import Canary, ModelName, Registration, Stage, TaskName

DIGITS, LETTERS = TaskName("digits"), TaskName("letters")
MLP, CNN = ModelName("mlp"), ModelName("cnn")


def canary(number: int = 2, share: float = 0.05, model: ModelName = MLP) -> Canary:
    return Canary(task=DIGITS, model=model, version=number, share=share, set_at="now")


def stages(catalog: Catalog, model: ModelName = MLP) -> dict[int, Stage]:
    versions = (one for one in catalog.snapshot().versions if one.model == model)
    return {one.version: one.stage for one in versions}


def later(catalog: Catalog, number: int, stage: Stage) -> None:
    """One more version."""
    catalog.register(
        replace(registration(number=number), version=version(number=number, stage=stage))
    )


def in_letters(number: int, stage: Stage) -> Registration:
    """The same model in another task."""
    return registration(
        number=number, of=LETTERS, version=version(number=number, of=LETTERS, stage=stage)
    )
