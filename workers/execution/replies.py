"""Replies: the frames with which queries are answered, with tensors or with a refusal."""

import numpy as np

from variants.figures import counted
from workers.channel.frames import (
    JOIN_LIMIT,
    Chunk,
    data_chunks,
    refusal_frame,
    reply_head,
    signature_of,
)
from workers.execution.replicas import Replica, Responder
from workers.execution.running import Group
from workers.runtimes.protocol import Tensor
from workers.types import ReplyCode

REFUSALS = {
    ReplyCode.COLD: "the worker that was asked does not hold it",
    ReplyCode.DRAINING: "the worker is leaving",
    ReplyCode.EXPIRED: "the deadline passed before it could run",
}
"""What a refusal says where its sender says nothing more exact."""


def send_outputs(
    group: Group, began_ms: float, run_ms: float, backlog_us: int, max_frame: int
) -> None:
    """Send each query of a group its rows of the outputs, at once and in one piece for each
    connection.

    A query whose rows hold a number that is not finite, or whose answer is too large for one
    frame, is refused instead.

    Args:
        group: queries that ran together without an error; its outputs are arrays of shape
            ``(rows, ...)``, the queries' rows one after the other.
        began_ms: when the batch began, on the clock of ``Job.arrived_ms``.
        run_ms: time in the runtime.
        backlog_us: predicted time until all admitted work is done.
        max_frame: bytes of the largest reply.
    """
    outputs, rows, bad = group.outputs, group.rows, group.bad
    replica = group.jobs[0].replica
    run_us = int(run_ms * 1000)
    single = outputs[0] if len(outputs) == 1 and outputs[0].nbytes <= JOIN_LIMIT else None
    raw = b"" if single is None else single.tobytes()
    row_bytes = len(raw) // rows
    answers: dict[Responder, list[Chunk]] = {}
    at = 0
    for job in group.jobs:
        end = at + job.rows
        queue_us = int((began_ms - job.arrived_ms) * 1000)
        request_id, responder = job.request_id, job.responder
        if bad is not None and bad[at:end].any():
            message = _not_finite(replica, [tensor[at:end] for tensor in outputs])
            send_refusal(
                responder, request_id, ReplyCode.FAILED, backlog_us, message, for_client=True
            )
        elif single is not None:
            signature = replica.signatures.get(job.rows)
            if signature is None:
                signature = replica.signatures[job.rows] = signature_of([single[at:end]])
            piece = raw[at * row_bytes : end * row_bytes]
            size = len(piece)
            if size % 8:
                piece += bytes(-size % 8)
                size = len(piece)
            head = reply_head(size, signature, request_id, rows, queue_us, run_us, backlog_us)
            answers.setdefault(responder, []).append(head + piece)
        else:
            parts = [tensor[at:end] for tensor in outputs]
            chunks, size = data_chunks(parts)
            head = reply_head(
                size, signature_of(parts), request_id, rows, queue_us, run_us, backlog_us
            )
            if len(head) + size > max_frame:
                of = counted(job.rows, "row")
                message = f"its answer of {of} has {size:,} bytes: too many for one reply"
                send_refusal(responder, request_id, ReplyCode.INVALID, backlog_us, message)
            else:
                answers.setdefault(responder, []).extend((head, *chunks))
        at = end
    for responder, frames in answers.items():
        responder.answer(frames)


def _not_finite(replica: Replica, outputs: list[Tensor]) -> str:
    """What is wrong with the rows of one query, of which one holds a number that is not finite."""
    bad = [
        repr(spec.name)
        for spec, tensor in zip(replica.spec.outputs, outputs, strict=False)
        if tensor.dtype.kind == "f" and not np.isfinite(tensor).all()
    ]
    named = f" for output {', '.join(bad)}" if bad else ""
    return f"{replica.name} gave values that are not finite (NaN or infinity){named}"


def send_refusal(
    responder: Responder, request_id: int, code: ReplyCode, backlog_us: int, message: str = "",
    *, for_client: bool = False,
) -> None:  # fmt: skip
    """Answer a query without tensors; an empty message stands for the usual one of the code.

    ``for_client``: the message is for who asked, although the variant failed.
    """
    text = message or REFUSALS.get(code, "")
    responder.send(refusal_frame(code, request_id, backlog_us, text, for_client))
