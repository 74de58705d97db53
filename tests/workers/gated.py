"""A runtime that loads, runs and closes when a test lets it: an order of events without a time."""

import threading
from collections.abc import Sequence

from variants.registry import Entry
from workers.runtimes.echo import EchoRuntime
from workers.runtimes.protocol import Tensor

PATIENCE_S = 120.0
"""A test that fails opens no gate; what waits there must end nevertheless."""


class Gates:
    """Shut one by ``clear`` and open it by ``set``; all are open at first."""

    def __init__(self) -> None:
        self.loads = threading.Event()
        self.runs = threading.Event()
        self.closes = threading.Event()
        self.open()

    def open(self) -> None:
        self.loads.set()
        self.runs.set()
        self.closes.set()


GATES = Gates()
ENTRY = Entry(target=f"{__name__}:Gated", about="an echo that waits")


class Gated(EchoRuntime):
    """An echo whose loads, batches and closing end when their gate is open."""

    def load(self) -> None:
        GATES.loads.wait(PATIENCE_S)
        super().load()

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        GATES.runs.wait(PATIENCE_S)
        return super().run(inputs)

    def close(self) -> None:
        GATES.closes.wait(PATIENCE_S)
        super().close()
