"""Running queries as one batch, and finding those that break it."""

import logging
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from variants.errors import RuntimeFailed, readable
from variants.figures import counted
from variants.slots import tuple_of
from workers.channel.frames import Chunk
from workers.execution.replicas import Job, Replica
from workers.finite import all_finite
from workers.process.sparing_log import SparingLog
from workers.runtimes.protocol import Runtime, Tensor, keeps_inputs, run_pieces
from workers.runtimes.signature import in_words

sparing = SparingLog(logging.getLogger(__name__))

SOUND_BYTES = 2**20
"""Of the largest row that is kept to see whether a variant still answers it."""


class Group(NamedTuple):
    """Queries that ran together, and what came of it."""

    jobs: list[Job]
    rows: int
    outputs: list[Tensor]
    """One array of shape ``(rows, ...)`` per output of the task; empty after an error."""
    error: str = ""
    bad: NDArray[np.bool_] | None = None
    """Whether each row has a number that is not finite, shape ``(rows,)``; None when none has."""
    broken: bool = False
    """Every row has one, and so has one that the variant had answered well before."""
    of_query: bool = False
    """The error is that of what was asked: the variant runs on other numbers, as many rows of them.
    """


def run_batch(
    replica: Replica, jobs: list[Job], rows: int, clock_ms: Callable[[], float]
) -> list[Group]:
    """Run queries together; if that fails, in halves, until those that fail are by themselves.

    One bad query among n costs about 2 log2(n) more runs, and two that tell whether it is to blame
    or the variant. Queries that are all late already are not run again.

    Args:
        replica: whose runtime runs them.
        jobs: the queries, in the order of their rows in the batch.
        rows: of all queries together.
        clock_ms: on which the queries' deadlines are.

    Returns:
        Queries with what came of them, in the order of ``jobs``.
    """
    group = _run(replica, jobs, rows)
    if not group.error:
        return [group]
    if clock_ms() > max(job.deadline_ms for job in jobs):
        return [group._replace(of_query=_runs_others(replica, rows))]
    if len(jobs) == 1:
        return [_blamed(replica, group)]
    middle = len(jobs) // 2
    return [
        found
        for half in (jobs[:middle], jobs[middle:])
        for found in run_batch(replica, half, sum(job.rows for job in half), clock_ms)
    ]


def _blamed(replica: Replica, failed: Group) -> Group:
    """A query that failed, run once more if the variant runs on other numbers: what fails twice,
    and they do not, is the query's fault."""
    if not _runs_others(replica, failed.rows):
        return failed
    again = _run(replica, failed.jobs, failed.rows)
    return again._replace(of_query=True) if again.error else again


def _runs_others(replica: Replica, rows: int) -> bool:
    """Whether a variant runs on so many rows like one that it had answered, or else of zeros, as it
    did when it was loaded."""
    runtime = replica.runtime
    if runtime is None:
        return False
    row = replica.sound or _zeros(replica)
    try:
        outputs = runtime.run([np.repeat(tensor, rows, axis=0) for tensor in row])
    except Exception as error:  # as below, a back end may raise anything
        sparing.error(replica.name, error, "%s raised", replica.name)
        return False
    return not _misshapen(replica, outputs, rows)


def _run(replica: Replica, jobs: list[Job], rows: int) -> Group:
    """Run queries as one batch."""
    runtime = replica.runtime
    if runtime is None:
        return Group(jobs, rows, [], f"{replica.name} is not loaded")
    try:
        outputs = _outputs(runtime, jobs, rows)
    except RuntimeFailed as failure:
        return Group(jobs, rows, [], readable(failure.message))
    except Exception as error:  # a back end may raise anything; the executor has to live on
        sparing.error(replica.name, error, "%s raised", replica.name)
        why = f"{replica.name} failed: {type(error).__name__}: {error}"
        return Group(jobs, rows, [], readable(why))
    if _misshapen(replica, outputs, rows):
        gave = in_words((tensor.dtype, tensor.shape) for tensor in outputs)
        return Group(jobs, rows, [], f"{replica.name} gave {gave} for {counted(rows, 'row')}")
    bad = _broken_rows(outputs)
    if bad is None:
        _keep_sound_row(replica, jobs[0])
        return tuple_of(Group, (jobs, rows, outputs, "", None, False, False))
    return Group(jobs, rows, outputs, "", bad, bool(bad.all()) and _is_broken(replica))


def _misshapen(replica: Replica, outputs: list[Tensor], rows: int) -> bool:
    """Whether outputs are not those of the task, for so many rows."""
    wants = replica.outputs
    if len(outputs) != len(wants):
        return True
    for at, (dtype, shape) in enumerate(wants):
        tensor = outputs[at]
        # Comparing two types takes longer than to see that they are one.
        if tensor.shape != (rows, *shape) or (tensor.dtype is not dtype and tensor.dtype != dtype):
            return True
    return False


def _outputs(runtime: Runtime, jobs: list[Job], rows: int) -> list[Tensor]:
    """What a runtime answers to queries that it is given as one batch."""
    if len(jobs) == 1 or (in_pieces := run_pieces(runtime)) is None:
        return runtime.run(assemble(jobs, rows, own=keeps_inputs(runtime)))
    queries = [job.layout.tensors(job.data, job.base) for job in jobs]
    return in_pieces(list(zip(*queries, strict=True)))


def assemble(jobs: list[Job], rows: int, *, own: bool = False) -> list[Tensor]:
    """The inputs of a batch, one array of shape ``(rows, ...)`` per input of the task.

    The tensors of one query are used where they arrived; those of several are copied once.

    Args:
        own: nothing may write to the arrays later, so lent tensors of one query are copied too.
    """
    first = jobs[0]
    layout = first.layout
    if len(jobs) == 1:
        data = first.data
        if own and isinstance(data, memoryview):
            data = bytes(data)
        return layout.tensors(data, first.base)
    inputs = []
    for index, dtype in enumerate(layout.types):
        pieces: list[Chunk] = []
        for job in jobs:
            begin, end = job.layout.spans[index]
            data, base = job.data, job.base
            if end - begin <= 4096:
                pieces.append(data[base + begin : base + end])
            else:
                pieces.append(memoryview(data)[base + begin : base + end])
        shape = (rows, *layout.shapes[index][1:])
        inputs.append(np.ndarray(shape, dtype, b"".join(pieces)))
    return inputs


def _keep_sound_row(replica: Replica, job: Job) -> None:
    """Keep the first row of a query that was answered, unless there is one or it is large."""
    if not replica.sound and job.layout.nbytes <= SOUND_BYTES * job.rows:
        replica.sound = [tensor[:1].copy() for tensor in job.layout.tensors(job.data, job.base)]


def _is_broken(replica: Replica) -> bool:
    """Whether it gives no finite numbers for what it had answered before either: a query's row, or
    where none was answered the zeros that it was asked when it was loaded.

    That it gives none for what came now may be the fault of what came.
    """
    row = replica.sound or (_zeros(replica) if replica.sound_zeros else [])
    if not row or replica.runtime is None:
        return False
    try:
        return _broken_rows(replica.runtime.run(row)) is not None
    except Exception as error:  # as above, a back end may raise anything
        sparing.error(replica.name, error, "%s raised", replica.name)
        return True


def _zeros(replica: Replica) -> list[Tensor]:
    """One row of zeros."""
    return [np.zeros((1, *one.shape), one.dtype) for one in replica.spec.inputs]


def _broken_rows(outputs: list[Tensor]) -> NDArray[np.bool_] | None:
    """Which rows hold a number that is not finite, shape ``(rows,)``; None when no row does."""
    bad: NDArray[np.bool_] | None = None
    for tensor in outputs:
        if tensor.dtype.kind != "f" or all_finite(tensor):
            continue
        finite = np.isfinite(tensor).reshape(len(tensor), -1)
        wrong = np.logical_not(finite.all(axis=1))
        bad = wrong if bad is None else np.logical_or(bad, wrong)
    return bad
