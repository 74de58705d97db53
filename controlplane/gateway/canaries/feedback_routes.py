"""The route by which clients say which classes were right."""

from fastapi import FastAPI
from pydantic import ConfigDict, Field

from controlplane.gateway.canaries.feedback import Feedback
from controlplane.views.schemas import Schema

MOST_LABELS = 10_000


class FeedbackGiven(Schema):
    """Which classes were right, of the rows of one answer."""

    model_config = ConfigDict(extra="forbid")

    request_id: str = Field(
        min_length=1,
        max_length=64,
        description="The `X-Request-Id` that the answer carried.",
        examples=["9f86d081884c7d65"],
    )
    labels: list[str] = Field(
        min_length=1,
        max_length=MOST_LABELS,
        description="One class of the task for each row, in the order of the rows.",
        examples=[["3"]],
    )


class FeedbackSchema(Schema):
    """What came of it."""

    request_id: str
    task: str = Field(examples=["digits"])
    variant: str = Field(description="Which variant had answered.")
    right: int = Field(description="Rows whose class it had named.")
    wrong: int
    anew: bool = Field(description="False where the same was said before: it counts once.")


def add_feedback_route(api: FastAPI, feedback: Feedback) -> None:
    """Add ``POST /v1/feedback``."""

    @api.post(
        "/v1/feedback", name="feedback", tags=["queries"], summary="Say which classes were right"
    )
    async def give(given: FeedbackGiven) -> FeedbackSchema:
        """Of an answer of the last minutes, by any gateway of the machine. It counts for the live
        accuracy of the variant that had answered, and in what is known of a canary. An answer that
        is not known is `NOT_FOUND`; other labels than were given before are a `CONFLICT`."""
        found = await feedback.give(given.request_id, given.labels)
        return FeedbackSchema.model_validate({"request_id": given.request_id, **found})
