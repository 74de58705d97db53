"""The one error tree. Domain errors know nothing of HTTP; one table elsewhere maps them to it.

::

    ModellessError
    |-- InvalidInput            what the caller sent cannot be right
    |   |-- InvalidArtifact     a model file or evaluation data that is refused
    |   |   |-- VariantNotBuilt one kind of variant cannot be made of it; others may
    |   |   |-- TrialKilled     what tried it was killed, which may be no fault of its own
    |   |   |-- TrialTooLarge   what tried it took more memory than it may
    |   |   `-- TrialTimedOut   what tried it did not finish in its time
    |   `-- PayloadTooLarge
    |-- Unauthenticated
    |-- Forbidden
    |-- NotFound
    |   `-- TaskNotFound
    |-- Conflict                it exists already, or the state moved on
    |   |-- SeveralMeant        several versions may be meant, and guessing could hurt
    |   `-- StaleEpoch          an older controller tried to act
    |-- SloInfeasible           no variant can meet it, on any worker, ever
    |-- RateLimited
    |-- Overloaded              feasible, but not now
    |-- NoWorkers               no worker is there that could answer
    |-- Cold                    feasible, once it is loaded
    |-- VariantNotLoadable      a variant that would answer cannot be brought into memory
    |   `-- ArtifactDamaged     its artifact is missing or holds other bytes than were registered
    |-- ReplicaLost
    |-- StateUnavailable        database or live state is gone
    |-- DeadlineExceeded
    `-- Internal
        |-- NotFinite           a model gave NaN or an infinite number: the one that says why
        |-- RuntimeFailed       a runtime could not load or run a variant
        `-- ClusterUnavailable  Ray or an embedded service could not be started
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LONGEST = 390
"""Characters of a sentence that tells what is wrong with an artifact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A variant that nearly fits, and what it would give."""

    variant: str
    accuracy: float
    latency_ms: float
    cost_usd_per_1k: float
    reason: str
    """Why it does not fit: ``p95 31.0 ms > 20 ms``."""
    energy_j: float | None = None
    """Joules of one row in a batch of its own; None where that was not measured."""


class ModellessError(Exception):
    """Base of all errors that a caller can meet; its text is one readable sentence."""

    code = "INTERNAL"
    retryable = False
    retry_after_s: float | None = None
    """When a retry is worth it, where that is known."""
    request_id: str = ""
    """Which request it was, where a gateway answered with it: its log names internal errors so."""
    asked_task: str = ""
    """The task that was asked, where a gateway knew it when it met the error: it counts there."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        """All that it holds, so that pools of processes and queues of tasks can hand it on. Without
        this an error that needs more than its sentence cannot be unpickled."""
        return _restored, (type(self), self.args, self.__dict__)


def _restored(
    kind: type[ModellessError], args: tuple[Any, ...], held: Mapping[str, Any]
) -> ModellessError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(held)
    return error


class InvalidInput(ModellessError):
    code = "INVALID_INPUT"


class InvalidArtifact(InvalidInput):
    """A model file, a model directory or evaluation data that cannot be accepted.

    Names and contents of files come from outside: the sentence is made one printable line
    of a length that can be read.
    """

    def __init__(self, message: str) -> None:
        super().__init__(readable(message))


class VariantNotBuilt(InvalidArtifact):
    """One kind of variant cannot be made of this model; registration goes on without it."""


class TrialKilled(InvalidArtifact):
    """The process in which a model was tried was killed, not known to be for want of memory.

    No model kills its process like this, but the end of a machine does.
    """


class TrialTooLarge(InvalidArtifact):
    """What was tried took more memory than it may, or than there was; less of it may go."""


class TrialTimedOut(InvalidArtifact):
    """What was tried did not finish in its time, and was stopped; less of it may."""


class PayloadTooLarge(InvalidInput):
    code = "PAYLOAD_TOO_LARGE"


def readable(message: str) -> str:
    """One line: what cannot be printed is written as its escape, and a long middle is left out."""
    line = "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in message
    )
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 130]} [...] {line[-120:]}"


class Unauthenticated(ModellessError):
    code = "UNAUTHENTICATED"


class Forbidden(ModellessError):
    code = "FORBIDDEN"


class NotFound(ModellessError):
    code = "NOT_FOUND"


class TaskNotFound(NotFound):
    code = "TASK_NOT_FOUND"


class Conflict(ModellessError):
    code = "CONFLICT"


class SeveralMeant(Conflict):
    """It does not say which version it is about, and guessing could hurt.

    ``choices`` says for each number of a version what naming it does, and ``option`` how a command
    names it, with what stands before the number.
    """

    def __init__(
        self, message: str, *, choices: Mapping[int, str], option: str = "--version "
    ) -> None:
        super().__init__(message)
        self.choices = dict(choices)
        self.option = option


class StaleEpoch(Conflict):
    """An older controller tried to write over the plan of a newer one."""


class SloInfeasible(ModellessError):
    """No variant of the task can meet the SLO on any worker, loaded or not."""

    code = "SLO_INFEASIBLE"

    def __init__(
        self,
        message: str,
        *,
        reasons: Mapping[str, str] | None = None,
        alternatives: Sequence[Alternative] = (),
    ) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})
        self.alternatives = tuple(alternatives)


class RateLimited(ModellessError):
    code = "RATE_LIMITED"
    retryable = True


class Overloaded(ModellessError):
    """Feasible by profile, but the queues in front of it are too long right now."""

    code = "OVERLOADED"
    retryable = True


class NoWorkers(ModellessError):
    """No worker is there that could answer: none is wanted, or none has started.

    ``retry_after_s`` is when the first one is expected; None where it is not known, as with a fleet
    that was scaled to zero.
    """

    code = "NO_WORKERS"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Cold(ModellessError):
    """Feasible once loaded; the message says whether the load has begun, or why not."""

    code = "COLD"
    retryable = True
    retry_after_s: float

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class VariantNotLoadable(ModellessError):
    """A variant that would answer cannot be loaded: waiting does not help, its operator does."""

    code = "ARTIFACT_INVALID"

    def __init__(self, message: str, *, reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})
        """Why each variant of the task cannot answer the refused query, by its name."""


class ArtifactDamaged(VariantNotLoadable):
    """A stored artifact is missing or is not, byte for byte, what was registered."""


class ReplicaLost(ModellessError):
    code = "REPLICA_LOST"
    retryable = True


class StateUnavailable(ModellessError):
    code = "STATE_UNAVAILABLE"
    retryable = True


class DeadlineExceeded(ModellessError):
    code = "DEADLINE_EXCEEDED"
    retryable = True


class Internal(ModellessError):
    code = "INTERNAL"


class NotFinite(Internal):
    """A model gave NaN or an infinite number for what a client asked, which is no answer.

    It is nobody's secret and may be the inputs' fault, so the client is told of it.
    """


class RuntimeFailed(Internal):
    """A runtime could not load or run a variant."""


class ClusterUnavailable(Internal):
    """Ray, Valkey or another service that the shell starts is not there."""
