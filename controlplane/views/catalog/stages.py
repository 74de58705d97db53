"""The stages of variants, which those of their versions are."""

from variants.types import CatalogSnapshot, ModelName, Stage, TaskName, Variant

SERVING = (Stage.CANARY, Stage.LIVE)
"""Stages whose variants answer queries."""


def version_key(variant: Variant) -> tuple[TaskName, ModelName, int]:
    """The version that a variant is of, by task, model and number."""
    return (variant.task, variant.model, variant.version)


def stages_of(snapshot: CatalogSnapshot) -> dict[tuple[TaskName, ModelName, int], Stage]:
    """Of each version, by its key."""
    return {(v.task, v.model, v.version): v.stage for v in snapshot.versions}
