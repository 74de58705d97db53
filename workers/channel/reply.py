"""Reply: how a query ended at a worker."""

from typing import NamedTuple

from workers.process.last_batch import Evidence
from workers.runtimes.protocol import Tensor
from workers.types import ReplyCode

SILENT = "it does not answer"
"""Why a query is handed back whose worker is not lost, as far as is known."""


class Reply(NamedTuple):
    """How a query ended at the worker; its queue time, run time and backlog are in µs.

    ``outputs`` are read-only views of shape (rows, ...); only ``OK`` has any.
    """

    code: ReplyCode
    batch_size: int
    queue_us: int
    run_us: int
    backlog_us: int
    message: str
    outputs: list[Tensor]
    evidence: Evidence = Evidence.NONE
    """With ``LOST``: what says that the batch ended the worker."""
    for_client: bool = False
    """With ``FAILED``: the message is for who asked."""


def lost_reply(reason: str, company: int = 0, evidence: Evidence = Evidence.NONE) -> Reply:
    """The reply to a query whose connection broke, or was closed, before it was answered.

    Args:
        company: queries in its batch, which was running then; 0 if it was not, as far as is known.
    """
    return Reply(ReplyCode.LOST, company, 0, 0, 0, reason, [], evidence)


def leaving_reply() -> Reply:
    """The reply to a query for a worker that is known to leave."""
    return Reply(ReplyCode.DRAINING, 0, 0, 0, 0, "the worker is leaving", [])
