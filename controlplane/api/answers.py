"""Two routes: how answers are divided among the classes, and that a change is as it should be."""

import asyncio
from collections.abc import Sequence
from time import time

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from controlplane.api.context import ApiContext, happened
from controlplane.api.path_parameters import TaskPath
from controlplane.timestamps import spoken, timestamp_of
from controlplane.views.catalog.answer_schemas import AnswersSchema, read_answers
from controlplane.views.catalog.tasks import named_tasks
from controlplane.views.schemas import Schema
from planner.feedback.answers import FIRST_ROWS
from planner.sentences import there_are
from variants.catalog.validity.rules import MOST_BY, MOST_WHY
from variants.errors import Conflict, NotFound
from variants.figures import MOST_NAMED, duration, figure, some_of
from variants.types import AcceptedAnswers, CatalogSnapshot, VariantKey


class AcceptedSchema(Schema):
    """The word of an operator that a change of answers is as it should be."""

    at: str = Field(examples=["2027-11-26T08:00:00+00:00"])
    by: str
    why: str


class AnswersRow(AnswersSchema):
    """How the answers of one variant are divided among the classes."""

    task: str
    variant: str
    accepted: AcceptedSchema | None = Field(
        description="What an operator said last of a change of its answers; null where none did."
    )


class Answers(Schema):
    answers: list[AnswersRow]


class Acceptance(Schema):
    """A word that answers which have changed are as they should be."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"why": "the winter catalogue"}}
    )

    variants: list[str] = Field(
        default_factory=list,
        max_length=1_000,
        description="Those of the task that are meant; empty: all whose answers have changed.",
    )
    why: str = Field("", max_length=MOST_WHY, description="For people.")
    by: str = Field("", max_length=MOST_BY, description="Who says it; nobody checks that.")


class AcceptedChanges(Schema):
    """Changes that are none any more: within a tick what is normal is learned anew."""

    task: str
    variants: list[str]
    accepted_at: str
    sentence: str


def answer_routes(context: ApiContext) -> APIRouter:
    """``GET /v1/answers`` and ``POST /v1/answers/{task}/accept``."""
    routes = APIRouter(prefix="/v1", tags=["running"])

    @routes.get(
        "/answers",
        name="list_answers",
        summary="How answers are divided among the classes, and which have changed",
        description="Of variants whose answers were counted. That some have changed is no error.",
    )
    async def answers() -> Answers:
        told = read_answers((await context.told()).get("answers", ()))
        words = await asyncio.to_thread(context.catalog.accepted_answers)
        accepted = {(one.task, one.variant): one for one in words}
        return Answers(
            answers=[_row(key, one, accepted.get(key)) for key, one in sorted(told.items())]
        )

    @routes.post(
        "/answers/{task}/accept",
        name="accept_answers",
        summary="Say that answers which have changed are as they should be",
        description="Within a tick they count as changed no more, and what is normal is learned "
        "anew from the answers to come. `CONFLICT` where none have changed.",
    )
    async def accept(task: TaskPath, body: Acceptance) -> AcceptedChanges:
        told = read_answers(((await context.live.controller()) or {}).get("answers", ()))
        snapshot = await context.snapshot()
        keys = _meant(snapshot, task, body.variants)
        changed = {key: told[key] for key in keys if key in told and told[key].since_s is not None}
        if not changed:
            which = some_of([str(name) for _, name in keys], MOST_NAMED) if body.variants else task
            raise Conflict(f"answers of {which} have not changed since their first ones")
        now_s = time()
        words = [
            AcceptedAnswers(
                task=key[0],
                variant=key[1],
                since_s=one.since_s or 0.0,
                at_s=now_s,
                by=body.by,
                why=body.why,
            )
            for key, one in changed.items()
        ]
        for word in words:
            await asyncio.to_thread(context.catalog.accept_answers, word)
        await context.tell(
            *(
                happened("answers_accepted", "/".join(key), _said(word, one))
                for word, (key, one) in zip(words, changed.items(), strict=True)
            )
        )
        lasts = duration(context.settings.answers_span_s)
        return AcceptedChanges(
            task=task,
            variants=[one.variant for one in words],
            accepted_at=timestamp_of(now_s),
            sentence="What is normal is learned anew, for"
            f" {lasts} and {FIRST_ROWS:,} rows at least.",
        )

    return routes


def _row(key: VariantKey, answers: AnswersSchema, word: AcceptedAnswers | None) -> AnswersRow:
    task, variant = key
    said = None
    if word is not None:
        said = AcceptedSchema(at=timestamp_of(word.at_s), by=word.by, why=word.why)
    return AnswersRow(**dict(answers), task=task, variant=variant, accepted=said)


def _meant(snapshot: CatalogSnapshot, task: str, names: Sequence[str]) -> list[VariantKey]:
    """The variants of a task, or of its buckets, that have one of the names, or all of them.

    Raises:
        TaskNotFound: the task is unknown.
        NotFound: it has no variant of one of the names.
    """
    parts = named_tasks(snapshot, task)
    keys = [variant.key for variant in snapshot.variants if variant.task in parts]
    known = {str(name) for _, name in keys}
    for name in names:
        if name not in known:
            raise NotFound(f"task {task!r} has no variant {name[:128]!r}{there_are(known, name)}")
    return [key for key in keys if not names or key[1] in names]


def _said(word: AcceptedAnswers, answers: AnswersSchema) -> str:
    """What an event says of it."""
    by = f"{word.by or 'an operator'} says that its answers are as they should be"
    why = f": {word.why}" if word.why else ""
    moved = f"{figure(100 * (answers.moved or 0.0))} % of them fell into other classes"
    return f"{by}{why}; {moved}, as was found at {spoken(word.since_s)}"
