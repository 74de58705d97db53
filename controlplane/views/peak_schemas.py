"""What the control API takes and sends of declared peaks of demand."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Literal, Self

from pydantic import AwareDatetime, ConfigDict, Field

from controlplane.views.schemas import Schema
from planner.forecasting.peaks import is_over, occurrence
from variants.catalog.validity.peaks import LATEST_S, MOST_FACTOR, MOST_NOTE, MOST_QPS
from variants.errors import InvalidInput
from variants.types import Peak, TaskName


class Repeat(StrEnum):
    """How often a peak comes again."""

    DAILY = "daily"
    WEEKLY = "weekly"


EVERY_S = {Repeat.DAILY: 86_400.0, Repeat.WEEKLY: 604_800.0}


class PeakDeclaration(Schema):
    """A peak of demand that is known beforehand."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "task": "digits",
                "factor": 3,
                "start": "2027-11-26T08:00:00+01:00",
                "end": "2027-11-26T20:00:00+01:00",
                "note": "sale",
            }
        },
    )

    task: str | None = Field(
        None, max_length=128, description="Null: all tasks.", examples=["digits"]
    )
    factor: float | None = Field(
        None,
        ge=1,
        le=MOST_FACTOR,
        description="So many times the demand that is expected when it begins.",
        examples=[3],
    )
    qps: float | None = Field(
        None, gt=0, le=MOST_QPS, description="Or so many rows per second, of one task."
    )
    start: AwareDatetime = Field(
        description="ISO 8601, with an offset from UTC.", examples=["2027-11-26T08:00:00+01:00"]
    )
    end: AwareDatetime = Field(examples=["2027-11-26T20:00:00+01:00"])
    repeat: Repeat | None = Field(
        None, description="It comes again every 24 or 168 hours; null: it comes once."
    )
    note: str = Field("", max_length=MOST_NOTE, description="For people.")

    def peak(self) -> Peak:
        """The peak that is declared.

        Raises:
            InvalidInput: a time has no place in Unix time.
        """
        return Peak(
            task=TaskName(self.task) if self.task is not None else None,
            factor=self.factor,
            qps=self.qps,
            start_s=_unix("start", self.start),
            end_s=_unix("end", self.end),
            every_s=EVERY_S[self.repeat] if self.repeat else 0.0,
            note=self.note,
        )


class PeakSchema(Schema):
    """A declared peak of demand."""

    id: int
    task: str | None = Field(description="Null: all tasks.")
    factor: float | None = Field(description="Times the demand that is expected when it begins.")
    qps: float | None = Field(description="Or rows per second, of one task.")
    start: datetime = Field(description="As it was declared, in UTC.")
    end: datetime
    repeat: Repeat | None
    note: str
    state: Literal["ahead", "now", "over"]
    begins: datetime = Field(description="The occurrence that is on, or the next, or the last.")
    ends: datetime

    @classmethod
    def of(cls, peak: Peak, now_s: float) -> Self:
        begin_s, end_s = occurrence(peak, now_s)
        return cls(
            id=peak.id,
            task=peak.task,
            factor=peak.factor,
            qps=peak.qps,
            start=_utc(peak.start_s),
            end=_utc(peak.end_s),
            repeat=next((name for name, s in EVERY_S.items() if s == peak.every_s), None),
            note=peak.note,
            state="over" if is_over(peak, now_s) else "now" if begin_s <= now_s else "ahead",
            begins=_utc(begin_s),
            ends=_utc(end_s),
        )


def _unix(what: str, at: datetime) -> float:
    try:
        return at.timestamp()
    except (OverflowError, ValueError) as error:
        raise InvalidInput(f"the {what} of a peak is not between 1970 and 2100") from error


def _utc(at_s: float) -> datetime:
    return datetime.fromtimestamp(min(at_s, 2 * LATEST_S), UTC)
