"""Outcomes: what came of a batch that was run, whatever went wrong with it."""

import logging
import time
from contextlib import suppress
from typing import NamedTuple

from planner.batching.protocol import Batch
from variants.errors import readable
from variants.slots import tuple_of
from workers.execution.replicas import Job, LoneJob, Replica
from workers.execution.running import Group, run_batch
from workers.process.last_batch import query_entry
from workers.process.quarantine import CrashLedger
from workers.process.sparing_log import SparingLog

sparing = SparingLog(logging.getLogger(__name__))


class Outcome(NamedTuple):
    """What came of a batch. Times in ms, on the clock of ``now_ms``."""

    replica: Replica
    began_ms: float
    """When the batch was handed over to be run."""
    predicted_ms: float
    run_ms: float
    """Time in the runtime."""
    took_ms: float
    """From ``began_ms`` to the end, so with the hand-over to the thread."""
    groups: list[Group]


def now_ms() -> float:
    """The executor's clock. Not the loop's: uvloop's stands still within a turn."""
    return time.monotonic() * 1000.0


def outcome_of(batch: Batch, began_ms: float, ledger: CrashLedger) -> Outcome:
    """Run a batch. In either thread; whatever goes wrong, its queries get an answer.

    Args:
        ledger: says what ran, should it end this process.
    """
    jobs: list[Job] = batch.items  # type: ignore[assignment]
    replica = jobs[0].replica
    try:
        if not replica.proven:
            ledger.suspect(replica.key, replica.spec.task, replica.spec.variant)
        entries = [query_entry(job.responder.tag, job.request_id) for job in jobs]
        ledger.enter(replica.key, entries)
        begin_ms = now_ms()
        groups = run_batch(replica, jobs, batch.rows, now_ms)
        end_ms = now_ms()
        ledger.leave()
        if not replica.proven:
            ledger.clear(replica.key)
    except Exception as error:
        sparing.error(replica.name, error, "running a batch of %s", replica.name)
        with suppress(Exception):  # it may be what went wrong; the thread has to live on
            ledger.leave()
        return _failed(batch, began_ms, mistake(error))
    fields = (replica, began_ms, batch.predicted_ms, end_ms - begin_ms, end_ms - began_ms, groups)
    return tuple_of(Outcome, fields)


def mistake(error: Exception) -> str:
    """What queries are told of a mistake of the worker's."""
    return readable(f"the worker failed: {type(error).__name__}: {error}")


def asked(groups: list[Group]) -> int:
    """How many queries were among what ran."""
    return sum(not isinstance(job, LoneJob) for group in groups for job in group.jobs)


def note_alone(outcome: Outcome) -> int:
    """Tell a batch that checks a profile what it took; how many queries ran with it."""
    count = asked(outcome.groups)
    first = outcome.groups[0].jobs[0]
    if not count and isinstance(first, LoneJob):
        first.took_ms = outcome.took_ms
    return count


def _failed(batch: Batch, began_ms: float, error: str) -> Outcome:
    """The outcome of a batch that could not be run."""
    jobs: list[Job] = batch.items  # type: ignore[assignment]
    took_ms = now_ms() - began_ms
    groups = [Group(jobs, batch.rows, [], error)]
    return Outcome(jobs[0].replica, began_ms, batch.predicted_ms, took_ms, took_ms, groups)
