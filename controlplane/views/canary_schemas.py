"""What the control API takes and sends of canaries with a share of the queries, and of feedback."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import ConfigDict, Field

from controlplane.views.schemas import Schema
from planner.canary.judge import Evidence, Judgement, Verdict
from variants.catalog.validity.canaries import MOST_AFTER
from variants.types import Canary


class CanaryShare(Schema):
    """Which share of a task's queries a version is given."""

    model_config = ConfigDict(extra="forbid")

    share: float = Field(
        ge=0,
        le=1,
        description="Of the queries that name no variant; 0 ends it.",
        examples=[0.05],
    )
    after: int = Field(
        1_000,
        ge=1,
        le=MOST_AFTER,
        description="Queries that it has to have been given before it can be found good.",
    )
    promote: bool = Field(False, description="Whether it becomes live by itself then.")


class ArmSchema(Schema):
    """How queries ended since the share was set."""

    queries: int
    in_time: int
    late: int
    failed: int
    mean_ms: float | None = Field(description="Mean latency of the answers; null without any.")
    right: int = Field(description="Rows, by what clients have said.")
    wrong: int


class CanarySchema(Schema):
    """A canary with a share of its task's queries, or the last one where that was taken from it."""

    task: str = Field(examples=["digits"])
    model: str
    version: int
    model_version: str = Field(examples=["cnn-small-v2"])
    share: float = Field(description="0: it was ended.")
    after: int
    promote: bool
    set_at: str
    ended: str = Field(description="Why the control loop has ended it; empty while it goes on.")
    verdict: Verdict | None = Field(
        description="Null while the control loop has not judged it, and while the live state is "
        "away."
    )
    why: str = Field(description="The verdict's numbers, in one sentence.")
    canary: ArmSchema | None
    live: ArmSchema | None = Field(
        description="The same of what the task's live versions answered in that time."
    )
    not_diverted: dict[str, int] = Field(
        description="Queries that were drawn and answered as always: `not_ready`, `overloaded`, "
        "`infeasible` or `leaving`."
    )

    @classmethod
    def of(cls, canary: Canary, judged: Mapping[str, Any] | None) -> Self:
        """``judged`` is what the control loop tells of it (``judged_canary``)."""
        told = judged or {"verdict": None, "why": "", "canary": None, "live": None}
        return cls(
            task=canary.task,
            model=canary.model,
            version=canary.version,
            model_version=canary.label,
            share=canary.share,
            after=canary.after,
            promote=canary.promote,
            set_at=canary.set_at,
            ended=canary.ended,
            not_diverted=told.get("not_diverted", {}),
            **{name: told[name] for name in ("verdict", "why", "canary", "live")},
        )


class Canaries(Schema):
    canaries: list[CanarySchema]


class RollbackAsked(Schema):
    """What is to be taken back; without a body, what was done last."""

    model_config = ConfigDict(extra="forbid")

    version: int | None = Field(
        None,
        ge=1,
        le=2**31 - 1,
        description="Number of the version that loses its share or is retired, never of the one to "
        "go back to. Null: the newest, where it is clear which one that is.",
        examples=[2],
    )


class RollbackSchema(Schema):
    """What was taken back."""

    task: str
    model: str
    ended: str | None = Field(description="The canary whose share was ended.")
    retired: str | None = Field(description="The version that was live, if no canary had a share.")
    live: str | None = Field(description="The version that is live again then.")


def judged_canary(evidence: Evidence, judgement: Judgement) -> dict[str, Any]:
    """What the control loop tells of a canary, in plain values."""
    arms = {"canary": evidence.canary, "live": evidence.live}
    return {
        "verdict": judgement.verdict.value,
        "why": judgement.words,
        "not_diverted": dict(evidence.not_diverted),
        **{which: ArmSchema.model_validate(arm).model_dump() for which, arm in arms.items()},
    }
