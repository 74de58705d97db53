"""A runtime that takes a fixed time and echoes: for demos, tests and fault injection."""

import time
from collections.abc import Sequence

import numpy as np

from variants.errors import RuntimeFailed
from workers.runtimes.protocol import Tensor, rows_of
from workers.runtimes.signature import in_words
from workers.types import LoadSpec

SLEEP_SLACK_S = 0.000_15
"""The last part of a wait is spent yielding: a sleep alone overshoots by up to this."""
HANGS_S = 3_600.0


class EchoRuntime:
    """Answers after a fixed time with what it was asked.

    Each output row is the first input's row, flattened, repeated or cut to the output's size, and
    cast to its type. So rows stay recognisable and a batch gives each query its own answer.

    Options, numbers as text:
        latency_ms: time of any batch; default 0.
        latency_ms_per_row: time added for each row; default 0.
        load_s: time that loading takes; default 0.
        fail_value: for fault injection. A batch fails if its first input holds this number.
        fail_after: for fault injection. All batches after so many fail; that of the load counts.
        crash_value: for fault injection. The process ends by ``SIGABRT`` if its first input
            holds this number.
        exit_value: the same, and it ends without a trace.
        hang_rows: for fault injection. A batch of so many rows or more takes ``HANGS_S``.
    """

    keeps_inputs = False

    def __init__(self, spec: LoadSpec, threads: int) -> None:
        self._spec = spec
        self._loaded = False

    def load(self) -> None:
        """Read the options and wait ``load_s``."""
        options = dict(self._spec.options)
        try:
            self._batch_s = float(options.get("latency_ms", 0)) / 1000
            self._row_s = float(options.get("latency_ms_per_row", 0)) / 1000
            load_s = float(options.get("load_s", 0))
            self._fail = _number(options.get("fail_value"))
            self._left = _number(options.get("fail_after"))
            self._crash = _number(options.get("crash_value"))
            self._exit = _number(options.get("exit_value"))
            self._hang_rows = _number(options.get("hang_rows"))
        except ValueError as error:
            raise RuntimeFailed(f"{self._name} has a wrong option: {error}") from error
        time.sleep(load_s)
        self._loaded = True

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        due_s = time.perf_counter() + self._time_s(inputs)
        self._check(inputs)
        if self._left is not None:
            self._left -= 1
            if self._left < 0:
                raise RuntimeFailed(f"{self._name} has run as often as it is to")
        if self._fail is not None and np.any(inputs[0] == self._fail):
            raise RuntimeFailed(f"{self._name} met {self._fail:g}, on which it is to fail")
        if self._crash is not None and np.any(inputs[0] == self._crash):
            import os

            os.abort()
        if self._exit is not None and np.any(inputs[0] == self._exit):
            import os

            os._exit(1)
        flat = inputs[0].reshape(len(inputs[0]), -1)
        outputs = []
        for spec in self._spec.outputs:
            shape = (len(flat), *spec.shape)
            picked = np.arange(int(np.prod(spec.shape))) % max(1, flat.shape[1])
            outputs.append(flat[:, picked].astype(spec.dtype).reshape(shape))
        _wait_until(due_s)
        return outputs

    def close(self) -> None:
        self._loaded = False

    @property
    def _name(self) -> str:
        return f"{self._spec.task}/{self._spec.variant}"

    def _time_s(self, inputs: Sequence[Tensor]) -> float:
        if not self._loaded:
            raise RuntimeFailed(f"{self._name} is not loaded")
        rows = rows_of(inputs)
        if self._hang_rows is not None and rows >= self._hang_rows:
            return HANGS_S
        return self._batch_s + self._row_s * rows

    def _check(self, inputs: Sequence[Tensor]) -> None:
        has = [(str(tensor.dtype), tensor.shape[1:]) for tensor in inputs]
        wants = [(spec.dtype, spec.shape) for spec in self._spec.inputs]
        if has != wants:
            raise RuntimeFailed(f"{self._name} takes {in_words(wants)}, not {in_words(has)}")


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _wait_until(due_s: float) -> None:
    left_s = due_s - time.perf_counter() - SLEEP_SLACK_S
    if left_s > 0:
        time.sleep(left_s)
    while time.perf_counter() < due_s:
        time.sleep(0)
