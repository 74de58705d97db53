"""Arms: how queries ended at a canary, and beside it at the live versions, in the same time."""

from collections.abc import Mapping
from typing import Any, Protocol

from planner.canary.diversion import NOT_READY, OVERLOADED
from variants.errors import DeadlineExceeded, Internal, InvalidInput
from workers.types import ReplyCode

LEAVING = "leaving"
_KEPT_BACK = {
    ReplyCode.OVERLOADED: OVERLOADED,
    ReplyCode.COLD: NOT_READY,
    ReplyCode.DRAINING: LEAVING,
    ReplyCode.LOST: LEAVING,
}
"""Why a query counts as not diverted that a canary's worker did not run."""
_ITS_FAULT = frozenset({ReplyCode.QUARANTINED, ReplyCode.FAILED, ReplyCode.INVALID})
COUNTED = ("in_time", "late", "failed", "answers", "latency_ms", "right", "wrong")


class Arm:
    """What is counted of a canary, or of all live versions of its task."""

    __slots__ = (*COUNTED, "is_canary", "trial")

    def __init__(self, trial: "Trial", *, is_canary: bool) -> None:
        self.trial = trial
        self.is_canary = is_canary
        self.in_time = 0
        self.late = 0
        self.failed = 0
        """Queries that it could not run, met in quarantine, or that its worker was lost with."""
        self.answers = 0
        self.latency_ms = 0.0
        """The sum over the answers."""
        self.right = 0
        """Rows whose class clients have said to be right."""
        self.wrong = 0

    def answered(self, elapsed_ms: float, *, in_time: bool) -> None:
        """Count an answer."""
        if in_time:
            self.in_time += 1
        else:
            self.late += 1
        self.answers += 1
        self.latency_ms += elapsed_ms

    def ended(self, error: Exception, *, sent: bool) -> None:
        """Count an error, where the version may be to blame for it.

        Args:
            sent: whether a worker was asked.
        """
        if not sent:
            return
        if isinstance(error, DeadlineExceeded):
            self.late += 1
        elif isinstance(error, Internal | InvalidInput):
            self.failed += 1


class Trial:
    """One canary with a share, as one gateway counts it."""

    __slots__ = ("canary", "live", "neither", "not_diverted")

    def __init__(self) -> None:
        self.canary = Arm(self, is_canary=True)
        self.live = Arm(self, is_canary=False)
        self.neither = Arm(self, is_canary=False)
        """For queries that have counted already."""
        self.not_diverted: dict[str, int] = {}
        """Queries that were drawn and answered as always, by why."""

    def kept_back(self, why: str) -> None:
        """Count a query that was drawn and is answered as always."""
        self.not_diverted[why] = self.not_diverted.get(why, 0) + 1

    def plain(self) -> Mapping[str, Any]:
        """The same in dictionaries and numbers, as the control loop reads it."""
        arms = {"canary": self.canary, "live": self.live}
        counted = {
            which: {name: getattr(arm, name) for name in COUNTED} for which, arm in arms.items()
        }
        return counted | {"not_diverted": dict(self.not_diverted)}


class Counted(Protocol):
    """A query that counts for an arm."""

    arm: Arm | None


def failed(flight: Counted) -> None:
    """A version is blamed for what became of a query, which counts for nothing else then."""
    if flight.arm is not None:
        flight.arm.failed += 1
        flight.arm = flight.arm.trial.neither


def turned_back(flight: Counted, code: ReplyCode) -> bool:
    """A worker did not answer a query; whether it goes to a live version now, as it is diverted.

    What is the fault of the version counts against it. For want of room, of a load or of a worker
    the query was not diverted.
    """
    arm = flight.arm
    if arm is None:
        return False
    if code in _ITS_FAULT and (arm.is_canary or code is ReplyCode.QUARANTINED):
        failed(flight)
        return arm.is_canary
    if not arm.is_canary or code not in _KEPT_BACK:
        return False
    arm.trial.kept_back(_KEPT_BACK[code])
    flight.arm = arm.trial.live
    return True
