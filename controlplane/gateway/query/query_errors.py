"""Errors of queries: from what selection or a worker refused to the typed error of the reply."""

from controlplane.http_errors import error_headers
from planner.types import Candidate, Query, Refusal, RefusalCode
from variants.errors import (
    Cold,
    DeadlineExceeded,
    Internal,
    InvalidInput,
    ModellessError,
    NotFinite,
    NotFound,
    NoWorkers,
    Overloaded,
    ReplicaLost,
    SloInfeasible,
    TaskNotFound,
    VariantNotLoadable,
)
from variants.figures import figure, seconds
from workers.channel.reply import SILENT
from workers.types import ReplyCode

NOTABLE_MS = 1_500.0
"""A worker reports once a second; one that was silent for so long is worth a word."""


def expired_error(query: Query, why: str = "") -> DeadlineExceeded:
    """The error of a query whose deadline has passed; ``why`` is added to its sentence."""
    more = f": {why}" if why else ""
    return DeadlineExceeded(f"not answered within {figure(query.latency_ms, 3)} ms{more}")


def silence(heard_ms: float) -> str:
    """Why a query was not answered whose worker was last heard so long ago; empty where that is
    less than what workers are silent for now and then."""
    if heard_ms < NOTABLE_MS:
        return ""
    return f"the worker that would answer has said nothing for {seconds(heard_ms)}"


def lethal_error(variant: str, blocked_ms: float) -> InvalidInput:
    """The error of a query whose content has just been run when a worker ended."""
    return InvalidInput(
        f"a worker was lost while it ran exactly this query on variant {variant}: it is not run"
        f" there for the next {max(1, round(blocked_ms / 1_000))} s"
    )


def worker_error(
    code: ReplyCode,
    message: str,
    query: Query,
    candidate: Candidate | None,
    *,
    for_client: bool = False,
) -> ModellessError:
    """The error behind a worker's refusal. What the worker said is a part of its sentence.

    Args:
        code: any code but ``OK``.
        candidate: the variant that the worker was asked to run, if one had been chosen.
        for_client: what it said is for who asked, although the variant failed.
    """
    why = f": {message.rstrip('.')}" if message else ""
    if code is ReplyCode.EXPIRED:
        return expired_error(query)
    if code is ReplyCode.INVALID:
        return InvalidInput(f"the model cannot be run on these inputs{why}")
    if code is ReplyCode.LOST:
        return ReplicaLost(
            "the worker does not answer"
            if message == SILENT
            else "the worker was lost while it answered"
        )
    if code is ReplyCode.COLD:
        load_s = 1.0 if candidate is None else candidate.load_ms / 1_000
        return Cold(f"the variant is not loaded yet{why}", retry_after_s=load_s)
    if code is ReplyCode.FAILED:
        if for_client:
            return NotFinite(
                f"the model's answer cannot be given: {message}, which JSON cannot carry"
            )
        return Internal(message)
    if code is ReplyCode.QUARANTINED:  # what failed there is not this query's affair
        why = ": the variant has just been put into quarantine where it was asked"
    return Overloaded(f"no worker can answer in time right now{why}")


def refusal_error(refusal: Refusal, more: str = "") -> ModellessError:
    """The error behind a refusal of selection; ``more`` is added to its text."""
    message = f"{refusal.message}; {more}" if more else refusal.message
    match refusal.code:
        case RefusalCode.TASK_NOT_FOUND:
            return TaskNotFound(message)
        case RefusalCode.VARIANT_NOT_FOUND:
            return NotFound(message)
        case RefusalCode.SLO_INFEASIBLE:
            return SloInfeasible(
                message, reasons=refusal.reasons, alternatives=refusal.alternatives
            )
        case RefusalCode.ARTIFACT_INVALID:
            return VariantNotLoadable(message, reasons=refusal.reasons)
        case RefusalCode.COLD:
            return Cold(message, retry_after_s=refusal.retry_after_s or 1.0)
        case RefusalCode.NO_WORKERS:
            return NoWorkers(message, retry_after_s=refusal.retry_after_s)
        case RefusalCode.OVERLOADED:
            return Overloaded(message)
        case RefusalCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(message)


def header_lines(error: Exception) -> bytes:
    """An error's own headers as they go on the wire, each line with its CRLF."""
    return b"".join(
        f"{name.lower()}: {value}\r\n".encode("latin-1")
        for name, value in error_headers(error).items()
    )
