"""What the control API takes and sends of rules of operators."""

from datetime import datetime
from typing import Self

from pydantic import ConfigDict, Field

from controlplane.timestamps import spoken, timestamp_of
from controlplane.views.schemas import Schema
from variants.catalog.validity.peaks import LATEST_S
from variants.catalog.validity.rules import MOST_BY, MOST_REPLICAS, MOST_WHY
from variants.types import DeviceKindName, Rule, RuleKind, TaskName, VariantName

MOST_FOR_S = 366 * 86_400.0
"""Longest freeze that ends by itself."""


class RuleOrder(Schema):
    """A word of an operator of what is loaded."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "rule": "pin",
                "task": "digits",
                "variant": "mlp-small-v1-onnx-fp32",
                "why": "release",
            }
        },
    )

    rule: RuleKind = Field(
        description="`pin`: so many workers hold the variant ready, whatever else is asked for. "
        "`forbid`: it answers nothing and is loaded nowhere. `freeze`: no new plan is made."
    )
    task: str = Field("", max_length=128, description="Of a pin or a forbid.", examples=["digits"])
    variant: str = Field(
        "", max_length=128, description="Of a pin or a forbid.", examples=["mlp-small-v1-onnx-fp32"]
    )
    device_kind: str = Field(
        "", max_length=128, description="Only on workers of this kind; empty: on any."
    )
    replicas: int = Field(1, ge=1, le=MOST_REPLICAS, description="Of a pin.")
    for_s: float | None = Field(
        None,
        gt=0,
        le=MOST_FOR_S,
        description="Of a freeze: seconds until it ends by itself; null: it holds until it is "
        "taken back.",
    )
    why: str = Field("", max_length=MOST_WHY, description="For people.")
    by: str = Field("", max_length=MOST_BY, description="Who says it; nobody checks that.")

    def order(self, now_s: float) -> Rule:
        """The rule; ``now_s`` is Unix time."""
        return Rule(
            kind=self.rule,
            task=TaskName(self.task),
            variant=VariantName(self.variant),
            device_kind=DeviceKindName(self.device_kind),
            replicas=self.replicas,
            at_s=now_s,
            until_s=None if self.for_s is None else min(now_s + self.for_s, LATEST_S),
            why=self.why,
            by=self.by,
        )


class RuleSchema(Schema):
    """A rule, and what has become of it."""

    id: int
    rule: RuleKind
    task: str
    variant: str
    device_kind: str = Field(description="Empty: on any.")
    replicas: int
    since: str = Field(examples=["2027-11-26T08:00:00+00:00"])
    until: str | None = Field(description="Of a freeze that ends by itself.")
    by: str
    why: str
    kept: bool = Field(description="Whether all is as it says, now.")
    standing: str = Field(examples=["1 of 1 replica ready."])

    @classmethod
    def of(cls, rule: Rule, kept: bool, sentence: str) -> Self:
        return cls(
            id=rule.id,
            rule=rule.kind,
            task=rule.task,
            variant=rule.variant,
            device_kind=rule.device_kind,
            replicas=rule.replicas,
            since=timestamp_of(rule.at_s),
            until=None if rule.until_s is None else timestamp_of(rule.until_s),
            by=rule.by,
            why=rule.why,
            kept=kept,
            standing=sentence,
        )


def told(row: RuleSchema) -> str:
    """What whoever looks at the plan has to know of a rule; empty where it is simply kept."""
    by = f", by {row.by}" if row.by else ""
    why = f": {row.why}" if row.why else ""
    if row.rule is RuleKind.FREEZE and row.kept:
        since = spoken(datetime.fromisoformat(row.since).timestamp())
        until = (
            f" until {spoken(datetime.fromisoformat(row.until).timestamp())}"
            if row.until
            else ", until `modelless thaw`"
        )
        return f"The plan is frozen since {since}{until}{by}{why}."
    if row.kept or row.rule is RuleKind.FREEZE:
        return ""
    where = f" on {row.device_kind}" if row.device_kind else ""
    return f"Rule {row.id} ({row.rule} {row.task}/{row.variant}{where}): {row.standing}"


class EvictionOrder(Schema):
    """A variant that is to be unloaded now, once."""

    model_config = ConfigDict(extra="forbid")

    task: str = Field(max_length=128, examples=["digits"])
    variant: str = Field(max_length=128, examples=["mlp-small-v1-onnx-fp32"])
    worker: str = Field("", max_length=256, description="From this worker; empty: from all.")
    why: str = Field("", max_length=MOST_WHY, description="For people.")
    by: str = Field("", max_length=MOST_BY, description="Who says it; nobody checks that.")


class EvictionSchema(Schema):
    """What was unloaded."""

    task: str
    variant: str
    workers: list[str] = Field(description="Those that it was unloaded from.")
    planned: list[str] = Field(
        description="Of those, the ones where the plan places it: they load it again."
    )
    sentence: str
