"""A worker in a process of its own that writes down every batch: what was predicted, what it took.

``python -m tests.bench.profiling.recorded_worker CONFIG FILE`` is ``python -m workers.host`` but
for that. At its end FILE has a JSON line for each batch, and one for each query that came when less
time was left than it takes by itself: whoever sent it, or the machine, had stood still.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from planner.batching.protocol import Verdict
from planner.batching.variant_queues import Item
from workers import host
from workers.execution.executor import Executor
from workers.execution.outcomes import Outcome
from workers.execution.replicas import Job
from workers.types import WorkerConfig


class RecordingExecutor(Executor):
    """Keeps a line for each clean batch."""

    lines: list[dict[str, Any]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lines = []
        RECORDED.append(self)
        self._admits = self.queue.admit
        self.queue.admit = self._admit  # type: ignore[method-assign]

    def _admit(self, item: Item, now_ms: float) -> Verdict:
        assert isinstance(item, Job)
        if item.deadline_ms - now_ms < item.queue.ms[item.rows] * item.queue.correction:
            variant = str(item.replica.spec.variant)
            self.lines.append({"variant": variant, "came_too_late_ms": now_ms})
        return self._admits(item, now_ms)

    def _learn(self, outcome: Outcome, done_ms: float, kept_waiting: bool) -> None:
        if len(outcome.groups) == 1 and not outcome.groups[0].error:
            replica, rows = outcome.replica, outcome.groups[0].rows
            context = self.costs.context(replica.queue, outcome.began_ms)
            self.lines.append(
                {
                    "variant": str(replica.spec.variant),
                    "rows": rows,
                    "context": context.name,
                    "began_ms": outcome.began_ms,
                    "p95_ms": replica.model.p95_ms(rows, context),
                    "run_ms": outcome.run_ms,
                    "took_ms": outcome.took_ms,
                }
            )
        super()._learn(outcome, done_ms, kept_waiting)


RECORDED: list[RecordingExecutor] = []


def main() -> None:
    """Run until SIGTERM."""
    config, file = sys.argv[1:]
    host.Executor = RecordingExecutor  # type: ignore[attr-defined]
    asyncio.run(host._serve(WorkerConfig(**json.loads(config)), "w1", 5.0))
    lines = [json.dumps(line) for each in RECORDED for line in each.lines]
    Path(file).write_text("\n".join(lines))


if __name__ == "__main__":
    main()
