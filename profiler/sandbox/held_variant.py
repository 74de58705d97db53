"""The variant that a child holds, to be measured and judged."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from profiler.evaluation.accuracy import answers, judge
from profiler.evaluation.other_outputs import compared, other_outputs
from profiler.evaluation.rows_alone import check_alone, moved_by_far
from profiler.evaluation.suspicions import suspicion
from profiler.sandbox.calls import Announce, Arguments, load_spec
from profiler.sandbox.measure import Trial, pin
from variants.errors import ModellessError
from variants.metrics.metric import parse_metric
from variants.types import TensorSpec
from workers.runtimes.protocol import Tensor

TELL_EVERY_S = 0.5
"""How far a call is, its caller hears so often."""


class HeldVariant:
    """The one variant that this process holds, for ``profiler.sandbox.probe``."""

    def __init__(self) -> None:
        self.import_s = 0.0
        """How long the import of its back end took."""
        self._trial: Trial
        self._rows: list[Tensor]
        self._outputs: tuple[TensorSpec, ...]
        self._data: dict[str, Tensor]

    def load(self, arguments: Arguments, announce: Announce) -> dict[str, Any]:
        """``spec``, ``threads``, ``data`` (npz), ``cores``, ``gpu`` to what loading cost."""
        if arguments["cores"]:
            pin(arguments["cores"])
        spec = load_spec(arguments["spec"])
        with np.load(arguments["data"], allow_pickle=False) as data:
            self._data = {name: data[name] for name in data.files}
        self._rows = [self._data[tensor.name] for tensor in spec.inputs]
        self._outputs = spec.outputs
        self._trial = Trial(spec, int(arguments["threads"]), self._rows, gpu=arguments["gpu"])
        found = self._trial.load()
        cold_load_s = found.cold_load_s + self.import_s
        return {"load_s": found.load_s, "cold_load_s": cold_load_s}

    def turn(self, arguments: Arguments, announce: Announce) -> dict[str, Any]:
        """The arguments of ``Trial.turn`` to the times of its runs."""
        return asdict(self._trial.turn(**arguments))

    def weigh(self, arguments: Arguments, announce: Announce) -> dict[str, Any]:
        """``batch_sizes`` to the memory that serving them takes."""
        weight = self._trial.weigh(arguments["batch_sizes"])
        return {"memory_mib": None} if weight is None else weight._asdict()

    def energy(self, arguments: Arguments, announce: Announce) -> dict[str, Any]:
        """``batch_size`` and ``share`` to the joules that a batch takes, where they can be read."""
        return {"energy_j": self._trial.energy(arguments["batch_size"], arguments["share"])}

    def judge(self, arguments: Arguments, announce: Announce) -> dict[str, Any]:
        """``truth`` (an array of the data), ``metric``, ``along``, ``reference`` and ``keep`` (each
        a file of arrays), and names of ``classes``.

        The outputs are compared with the reference's, and kept, where files are named: the first
        one of all rows, the others of some.
        """
        truth = self._data[arguments["truth"]]
        told = seldom(announce, len(truth))
        runtime, size = self._trial.runtime, arguments["batch_size"]
        scores = answers(runtime, self._rows, batch_size=size, told=told)
        others = other_outputs(runtime, self._rows, self._outputs, size)
        names = [tensor.name for tensor in self._outputs]
        if arguments["keep"]:
            with Path(arguments["keep"]).open("wb") as file:
                for array in (scores, *others):
                    np.save(file, array, allow_pickle=False)
        reference, said = None, ""
        if not arguments["reference"]:  # the model itself: quantised ones scale by the whole batch
            check_alone(runtime, self._rows, names, size)
        else:
            with Path(arguments["reference"]).open("rb") as file:
                reference, *theirs = (np.load(file, allow_pickle=False) for _ in names)
            said = compared(names[1:], others, theirs)
        metric, along = arguments["metric"], arguments["along"]
        found = judge(scores, truth, metric, reference, along)
        found = replace(found, note="; ".join(filter(None, (found.note, said))))
        if reference is None:
            far = moved_by_far(runtime, self._rows, names, size)
            said = "" if along is not None else self._suspicion(arguments, scores, truth)
            found = replace(found, suspicion="; ".join(filter(None, (said, far))))
        return asdict(found)

    def _suspicion(self, arguments: Arguments, scores: Tensor, truth: Tensor) -> str:
        """What would make the model better; nothing where trying that fails."""

        def answer(rows: Sequence[Tensor]) -> Tensor:
            return answers(self._trial.runtime, rows, batch_size=arguments["batch_size"])

        with suppress(ModellessError, MemoryError, ImportError, OSError):
            metric = parse_metric(arguments["metric"])
            return suspicion(metric, scores, truth, self._rows, answer, arguments["classes"])
        return ""


def seldom(announce: Announce, total: int) -> Callable[[int], None]:
    """Announces that nothing is done yet and the first that is, and then every now and then."""
    told_s, first = -inf, True

    def told(done: int) -> None:
        nonlocal told_s, first
        now_s = time.monotonic()
        if now_s - told_s >= TELL_EVERY_S or (first and done):
            told_s, first = now_s, first and not done
            announce(done, total)

    told(0)
    return told
