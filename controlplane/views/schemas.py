"""What the control API sends, as pydantic models: the OpenAPI page is made from them.

Each has the same fields, names and units as the domain type it shows. ``of`` makes one from it.
Here are what all stand on, errors, and what happens over time; those of the catalog, of workers, of
plans and of peaks have modules of their own.
"""

from collections.abc import Container, Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from controlplane.views.service_status import Outcomes, ServiceLevel, missing, service_status
from variants.errors import Alternative
from variants.types import Event, TickRecord


class Schema(BaseModel):
    """Base: built from attributes or mappings, documents its fields."""

    model_config = ConfigDict(from_attributes=True, protected_namespaces=(), extra="ignore")


class ErrorBody(Schema):
    """Every error has this body."""

    error: str = Field(description="One readable sentence.")
    code: str = Field(description="Stable and machine-readable.", examples=["TASK_NOT_FOUND"])
    retryable: bool = Field(description="Whether the same request may succeed later.")
    request_id: str = Field(description="The same as in the header X-Request-Id.")
    reasons: dict[str, str] | None = Field(
        None,
        description="SLO_INFEASIBLE and ARTIFACT_INVALID: variant to the reason why it does not "
        "answer.",
    )
    alternatives: list[Alternative] | None = Field(
        None, description="SLO_INFEASIBLE only: what comes closest."
    )
    retry_after_s: float | None = Field(
        None,
        description="COLD: predicted seconds until the variant is loaded. OVERLOADED: until there "
        "may be room. NO_WORKERS: until a worker is expected, where that is known.",
    )
    choices: dict[str, str] | None = Field(
        None,
        description="CONFLICT of a rollback that could mean several versions: number of a version "
        "to what naming it does.",
    )


class TickSchema(Schema):
    """One turn of the control loop."""

    plan_version: int
    at: str
    body: dict[str, Any]

    @classmethod
    def of(cls, tick: TickRecord) -> Self:
        return cls(plan_version=tick.plan_version, at=tick.at, body=dict(tick.body))


class EventSchema(Schema):
    """Something that happened."""

    seq: int = Field(description="Ascending; pass it as `after` to get what came later.")
    at: str
    kind: str = Field(examples=["worker_joined"])
    subject: str
    message: str

    @classmethod
    def of(cls, event: Event) -> Self:
        return cls.model_validate(event)


class SloCounts(Schema):
    """How queries of a task ended."""

    model_config = ConfigDict(extra="allow")

    requests: int
    met: int = Field(description="Answered in time, with the floors and ceilings asked for.")
    late: int = Field(description="Answered after the deadline or not as asked, or never.")
    refused: int = Field(description="Refused with a typed error.")
    infeasible: int = Field(
        0, description="Of those refused: they asked for what no variant can do."
    )
    infeasible_answered: int = Field(
        0,
        description="Answered by best effort, not as asked: no variant can do that. They count "
        "neither in `late` nor in `infeasible`.",
    )
    client_errors: int = Field(
        0,
        description="Wrong in themselves, such as rows of another shape and those that name a "
        "variant which is not there or retired, or given up by their client. They count neither in "
        "`requests` nor in `refused`.",
    )
    attainment: float | None = Field(description="met / requests; null without requests.")
    share_met: float | None = Field(
        None,
        description="met / (requests - infeasible - infeasible_answered), which is what people are "
        "shown: of the queries that some variant could serve; null without any.",
    )
    gave_up: int = Field(
        0,
        description="Of `client_errors`: their clients have gone before the answer, though it was "
        "not late.",
    )
    share_gave_up: float | None = Field(
        None, description="gave_up / (requests + gave_up); null without any."
    )
    gave_up_after_ms: float | None = Field(
        None, description="How long those clients waited, in the mean; null without any."
    )
    gave_up_slo_ms: float | None = Field(
        None, description="How much time their queries had, in the mean; null without any."
    )


class RecentSloCounts(SloCounts):
    """The same of the last ``lately_s`` seconds."""

    refusals: dict[str, int] = Field(
        {},
        description="How many were refused, by error code; `BLOCKED` are those that were told "
        "`INVALID_INPUT` because a worker had ended while it ran the same.",
    )
    slo_missed: bool | None = Field(
        None, description="Whether the `standing` names the task for those that missed their SLO."
    )


class SloRow(SloCounts):
    """How well the SLOs of a task's queries were met."""

    task: str
    lately: RecentSloCounts | None = Field(None, description="Of the last `lately_s` seconds.")


class ServiceStatusSchema(Schema):
    """What clients experience, by the queries of the last ``lately_s`` seconds."""

    level: ServiceLevel = Field(
        description="`missed`: of some task more than 1 % of the queries missed their SLO; "
        "`mostly_missed`: at least half, and ten or more."
    )
    sentence: str = Field(description="Which tasks, how many of their queries, and why.")


class SloReport(Schema):
    """SLO attainment per task since the gateways started, and lately."""

    model_config = ConfigDict(extra="allow")

    window_s: float = Field(
        description="How far back the counts go: for how long the oldest gateway has counted."
    )
    lately_s: float = Field(0.0, description="How far back `lately` goes: a minute, or less.")
    turned_away: dict[str, int] = Field(
        {},
        description="How many queries of the last `lately_s` seconds were turned away unread, by "
        "error code: for their token or key, or their Host or Origin; `CONNECTIONS`: for a "
        "connection that was one too many.",
    )
    tasks: list[SloRow]
    standing: ServiceStatusSchema | None = None

    @classmethod
    def of(
        cls,
        report: Mapping[str, Any],
        *,
        cores_short: bool = False,
        before: Container[str] = (),
    ) -> Self:
        """A report with what its last seconds amount to.

        Args:
            cores_short: some machine's cores are.
            before: tasks that missed their SLO before.
        """
        found = cls.model_validate(report)
        status = service_status(
            found.outcomes_lately(),
            found.lately_s,
            found.turned_away,
            cores_short=cores_short,
            before=before,
        )
        found.standing = ServiceStatusSchema.model_validate(status)
        short = {task for task, _ in missing(found.outcomes_lately(), before)}
        for row in found.tasks:
            if row.lately is not None:
                row.lately.slo_missed = row.task in short
        return found

    def outcomes_lately(self) -> dict[str, Outcomes]:
        """How queries of each task ended in the last ``lately_s`` seconds."""
        return {
            row.task: Outcomes(
                met=one.met,
                late=one.late,
                infeasible_answered=one.infeasible_answered,
                refusals=one.refusals,
                gave_up=one.gave_up,
                gave_up_ms=one.gave_up * (one.gave_up_after_ms or 0.0),
                gave_up_of_ms=one.gave_up * (one.gave_up_slo_ms or 0.0),
            )
            for row in self.tasks
            if (one := row.lately) is not None
        }


class TaskHistory(Schema):
    """How the queries of one task ended, a number for each step; null where nothing is known."""

    task: str
    met: list[int | None] = Field(description="Answered in time, as asked.")
    late: list[int | None] = Field(description="Answered late, or not within the deadline.")
    refused: list[int | None] = Field(description="Told that nothing could answer in time.")
    infeasible: list[int | None] = Field(description="They asked for what no variant can do.")
    p50_ms: list[float | None] = Field(
        description="Half of the answers took at most this long, from the first byte to the reply; "
        "linear between the bounds of `modelless_query_seconds`. Null without answers."
    )
    p95_ms: list[float | None]
    accuracy: list[float | None] = Field(
        description="The mean accuracy of the variants that answered, by rows."
    )


class History(Schema):
    """How queries ended lately, over all gateways."""

    begins_s: float = Field(description="When the first step begins, in seconds since 1970.")
    step_s: float = Field(description="How long each step is.")
    tasks: list[TaskHistory]


class AskedClass(Schema):
    """What was asked with one SLO class, a number for each step; null where nothing is known."""

    task: str
    latency_ms: float = Field(
        description="The deadline, rounded down to 1, 2 or 5 times a power of ten.", examples=[50.0]
    )
    accuracy: float | None = Field(
        description="The floor, rounded up to the accuracy of the next variant; 1 where none is as "
        "accurate; null where none was asked for."
    )
    variant: str | None = Field(description="The variant that the queries named, where they did.")
    rows: list[int | None]


class AskedHistory(Schema):
    """What was asked lately, over all gateways, refused queries among it."""

    begins_s: float = Field(description="When the first step begins, in seconds since 1970.")
    step_s: float = Field(description="How long each step is.")
    classes: list[AskedClass]


class OperationSchema(Schema):
    """A long-running request: poll it until ``state`` is ``succeeded`` or ``failed``."""

    id: str = Field(examples=["8f14e45fceea167a5a36dedd4bea2543"])
    kind: str = Field(examples=["register"])
    state: str = Field(description="running, succeeded or failed.", examples=["running"])
    subject: str = Field(examples=["digits/cnn-small"])
    progress: dict[str, Any] = Field(
        default_factory=dict,
        description="The last line of progress: step, message, and done of total where known.",
        examples=[{"step": "profile", "message": "cnn-small-v1-onnx-int8", "done": 3, "total": 6}],
    )
    result: dict[str, Any] | None = Field(None, description="With succeeded: what was registered.")
    error: ErrorBody | None = Field(None, description="With failed: why.")
    created_at: str
    updated_at: str


class OperationsSchema(Schema):
    """Long-running requests, the newest first."""

    operations: list[OperationSchema]
