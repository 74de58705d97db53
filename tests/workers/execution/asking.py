"""What tests of the executor ask of a worker."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.workers.builders import ask, echo_spec, row
from variants.types import VariantName
from workers.channel.client import WorkerConnection
from workers.channel.reply import Reply
from workers.runtimes.protocol import Runtime, Tensor
from workers.types import LoadSpec, ReplicaStatus

CONTROL_S = 60.0
"""How long a load, an unload or a drain may take on a machine that others keep busy."""
SLOW = echo_spec(options={"latency_ms": "30"}, latency=((1, 30.0), (8, 30.0)))
"""Every batch of up to eight rows takes 30 ms."""


def named(spec: LoadSpec, variant: str, **changes: object) -> LoadSpec:
    return replace(spec, variant=VariantName(variant), **changes)  # type: ignore[arg-type]


async def ask_all(
    connection: WorkerConnection, spec: LoadSpec, values: list[float], budget_ms: float = 60_000.0
) -> list[Reply]:
    """One query for each value, sent at once."""
    return await asyncio.gather(
        *(ask(connection, spec, row(value), budget_ms=budget_ms) for value in values)
    )


def replica(connection_status: tuple[ReplicaStatus, ...], variant: str) -> ReplicaStatus:
    return next(status for status in connection_status if status.variant == variant)


class Ill:
    """A runtime whose numbers are not finite any more."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        return [np.full_like(output, np.nan) for output in self.runtime.run(inputs)]

    def __getattr__(self, name: str) -> object:
        return getattr(self.runtime, name)
