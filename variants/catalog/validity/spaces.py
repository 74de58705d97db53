"""Tasks of vectors that each model makes in a space of its own: one version of them is live.

Two models that were trained apart give vectors that mean nothing to each other, and so do two
versions of one. ``nearest`` judges the vectors of a model among themselves, so nothing says that
those of another belong to them. Where all models are trained towards the same vectors, the task is
judged by ``cosine``, and any of them may answer.
"""

from collections.abc import Iterable, Mapping

from variants.catalog.validity.canaries import VersionKey, key_of
from variants.errors import Conflict
from variants.metrics.metric import MetricKind, parse_metric
from variants.types import Canary, ModelVersion, Stage

WHY = "vectors of two versions cannot be compared"


def is_own_space(metric: str) -> bool:
    """Whether each version of a task that is judged so has vectors of its own space."""
    return parse_metric(metric).kind is MetricKind.NEAREST


def standing_back(
    versions: Iterable[ModelVersion], stages: Mapping[VersionKey, Stage]
) -> list[ModelVersion]:
    """The live versions that become canaries because others of their tasks become live.

    Args:
        versions: of tasks whose versions have spaces of their own.
        stages: which stage versions are given.
    """
    tasks = {key[0] for key, stage in stages.items() if stage is Stage.LIVE}
    return [
        v for v in versions if v.task in tasks and v.stage is Stage.LIVE and key_of(v) not in stages
    ]


def check_comparable(canary: Canary, metric: str) -> None:
    """Refuse a share of the queries where its vectors could not be compared with the others'.

    Args:
        metric: of its task.

    Raises:
        Conflict: they could not.
    """
    if is_own_space(metric):
        raise Conflict(
            f"a canary of task {canary.task!r} gets no share of its queries, as {WHY}: ask it by"
            f" its name, as the model version {canary.label!r}, and promote it when all vectors"
            " that are kept are its"
        )
