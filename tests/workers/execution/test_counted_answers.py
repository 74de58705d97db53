"""What a worker counts of its answers: which class each row got."""

from dataclasses import replace

import numpy as np

from tests.workers.builders import ask, echo_spec, row, running
from workers.types import ReplyCode, WorkerConfig

WAIT_S = 60.0


async def test_each_row_counts_for_the_class_that_it_was_answered_by(worker: WorkerConfig) -> None:
    spec = replace(echo_spec(), counts_answers=True)
    async with running(worker) as (host, connection):
        await connection.load(spec, WAIT_S)
        assert host.status().replicas[0].answered == (0, 0, 0, 0)
        for highest in (2, 2, 0):
            scores = np.zeros((2, 4), np.float32)
            scores[:, highest] = 1.0
            assert (await ask(connection, spec, [scores])).code is ReplyCode.OK
        await connection.check(spec.task, spec.variant, WAIT_S)  # which is nobody's query
        assert host.status().replicas[0].answered == (2, 0, 4, 0)
        assert b'"answered":[2,0,4,0]' in host.report()


async def test_of_what_is_no_classifier_nothing_is_counted(worker: WorkerConfig) -> None:
    spec = echo_spec()
    async with running(worker) as (host, connection):
        await connection.load(spec, WAIT_S)
        await ask(connection, spec, row(1.0))
        assert host.status().replicas[0].answered == ()
