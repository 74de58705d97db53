"""A worker in a process of its own that writes down every batch: what was predicted, what it took.

``python -m tests.bench.profiling.recorded_worker CONFIG FILE`` is ``python -m workers.host`` but
for that. At its end FILE has a JSON line for each batch.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from workers import host
from workers.execution.executor import Executor
from workers.execution.outcomes import Outcome
from workers.types import WorkerConfig


class RecordingExecutor(Executor):
    """Keeps a line for each clean batch."""

    lines: list[dict[str, Any]]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lines = []
        RECORDED.append(self)

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
