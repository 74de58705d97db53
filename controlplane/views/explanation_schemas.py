"""What the gateway sends of how it would answer a query."""

from enum import StrEnum

from pydantic import ConfigDict, Field

from controlplane.views.schemas import Schema
from planner.types import Reason
from variants.types import Prefer


class Outcome(StrEnum):
    ANSWERED = "answered"
    REFUSED = "refused"


class Standing(StrEnum):
    CHOSEN = "chosen"
    FITS = "fits"
    """It would meet the SLO now; another one was preferred."""
    STOPPED = "stopped"


class AnswerSchema(Schema):
    """Which variant would answer, where, and what is expected of it."""

    variant: str = Field(examples=["mlp-small-v1-onnx-int8"])
    model_version: str = Field(examples=["mlp-small-v1"])
    worker: str
    device_kind: str = Field(examples=["cpu-2"])
    reason: Reason = Field(description="As in the header `X-Choice-Reason`.")
    why: str = Field(description="The same in words.", examples=["the cheapest that fits"])
    zone: str = Field(description="As in `X-Choice-Zone`; empty without zones.")
    wait_ms: float = Field(description="Until the worker has done what it was given.")
    run_ms: float = Field(description="95th percentile of a batch of these rows, with its margin.")
    predicted_ms: float = Field(description="All of it: waiting, loading, running and the way.")
    accuracy: float
    price_usd_per_1k: float
    loaded: bool = Field(description="False where it would be loaded for the query.")
    slo_met: bool = Field(description="False only under best effort.")


class AlternativeSchema(Schema):
    """What comes closest to an SLO that nothing can meet."""

    variant: str
    accuracy: float
    latency_ms: float
    cost_usd_per_1k: float
    reason: str


class RefusalSchema(Schema):
    """Why nothing would answer."""

    code: str = Field(examples=["SLO_INFEASIBLE"])
    error: str = Field(description="One readable sentence.")
    retry_after_s: float | None = None
    alternatives: list[AlternativeSchema]


class VerdictSchema(Schema):
    """What becomes of a variant; without numbers where it has no profile or no stage to answer."""

    variant: str
    device_kind: str | None = None
    accuracy: float | None = None
    accuracy_low: float | None = Field(
        None, description="Of its 95 % confidence interval; null where it is no share of rows."
    )
    accuracy_high: float | None = None
    run_ms: float | None = Field(None, description="Of a batch of these rows, with its margin.")
    price_usd_per_1k: float | None = None
    loaded_on: int = Field(0, description="Workers that have it loaded.")
    verdict: Standing
    why: str = Field(examples=["accuracy 95.37 % < 97.00 %"])


class ExplanationSchema(Schema):
    """What would become of a query now, by the gateway that was asked, and why."""

    model_config = ConfigDict(from_attributes=True, protected_namespaces=())

    task: str = Field(examples=["digits"])
    latency_ms: float = Field(description="This and the next: as asked, else the task's defaults.")
    accuracy: float | None
    cost: float | None
    prefer: Prefer
    best_effort: bool
    pinned: str | None = Field(description="The variant that the query names.")
    model_version: str | None = Field(
        default=None, description="The version of a model that the query names."
    )
    rows: int
    outcome: Outcome
    answer: AnswerSchema | None
    refusal: RefusalSchema | None
    plan: str = Field(description="Whether the query follows the plan, in a sentence.")
    doubt: str = Field(
        "",
        description="Where accuracies decide that differ by no more than their 95 % confidence"
        " intervals: which do, in a sentence; else empty.",
    )
    cores: str = Field(
        description="Why an answer may be late nevertheless: the cores of some machine are short; "
        "empty where they are not, or nothing tells.",
    )
    too_long_for: list[str] = Field(
        default_factory=list,
        description="Of texts: the variants whose tokenizer makes more tokens of them than they"
        " take; the others answer.",
    )
    variants: list[VerdictSchema] = Field(
        description="The chosen one, then those that fit, then those that do not."
    )
