"""Which tasks give vectors of texts, and how OpenAI's clients see them: as models."""

from datetime import datetime

from pydantic import Field

from controlplane.views.schemas import Schema
from planner.selection.eligibility import stage_answers
from variants.buckets import asked_name, bucketed_tasks
from variants.metrics.metric import MetricKind, parse_metric
from variants.types import CatalogSnapshot, Task, TaskName

VERSION = "/"
"""Between a task and one of its versions; names have none."""
_OF_VECTORS = frozenset({MetricKind.COSINE, MetricKind.NEAREST})


class OpenAiModel(Schema):
    """What may be asked at ``/v1/embeddings``, in the form of OpenAI's API."""

    id: str = Field(description="A task, or `TASK/VERSION` for one of its versions.")
    object: str = "model"
    created: int = Field(description="When it was registered, in seconds since 1970.")
    owned_by: str = "modelless"


def why_no_vectors(face: Task, name: str) -> str:
    """Why a task gives no vectors of texts, in a sentence; empty where it gives some.

    Args:
        face: as it is asked.
        name: as the client has named it.
    """
    if parse_metric(face.metric).kind not in _OF_VECTORS:
        return (
            f"task {name!r} gives no vectors: it is judged by {face.metric}, and tasks of vectors"
            f" are by {' or '.join(sorted(_OF_VECTORS))}; ask it by /v1/query"
        )
    output = face.outputs[0]
    if len(output.shape) != 1 or not output.dtype.startswith("float"):
        return (
            f"task {name!r} gives no vector for each text: its output {output.name!r} is"
            f" {output.dtype} of shape {list(output.shape)} for each row; ask it by /v1/query"
        )
    if face.text is None or face.text.pairs:
        what = "pairs of texts" if face.text is not None else "no texts, as it has no tokenizer"
        return f"task {name!r} takes {what}; ask it by /v1/query"
    return ""


def openai_models(snapshot: CatalogSnapshot) -> list[OpenAiModel]:
    """Tasks that give vectors of texts, by their names, each before its versions that answer."""
    of_lengths = bucketed_tasks(snapshot.tasks)
    faces = {asked_name(task): task for task in snapshot.tasks}
    faces |= {name: one.face for name, one in of_lengths.items()}
    names = {task.name: asked_name(task) for task in snapshot.tasks}
    created: dict[TaskName, dict[str, int]] = {}
    for version in snapshot.versions:
        if stage_answers(version.stage):
            name = names[version.task]
            at_s = int(datetime.fromisoformat(version.created_at).timestamp())
            known = created.setdefault(name, {})
            known[version.label] = min(at_s, known.get(version.label, at_s))
    found: list[OpenAiModel] = []
    for name in sorted(created):
        if not why_no_vectors(faces[name], name):
            versions = created[name]
            found.append(OpenAiModel(id=name, created=min(versions.values())))
            found += [
                OpenAiModel(id=f"{name}{VERSION}{label}", created=at_s)
                for label, at_s in versions.items()
            ]
    return found
