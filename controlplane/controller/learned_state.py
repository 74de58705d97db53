"""What the control loop has learned, kept in the catalog for the one that takes over.

That is what forecasts remember, what was expected when a declared peak began, and how long workers
took to start. It is written down about once a minute and when the loop is told to stop, as numbers
and names: nothing that is read back is code.
"""

import asyncio
import json
import logging
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from controlplane.controller.events.journal import Journal
from controlplane.controller.forecaster_training import ForecasterTraining, demand_estimator_of
from controlplane.controller.one_task import OneTask
from controlplane.controller.peak_calendar import PeakCalendar
from controlplane.settings import Settings
from controlplane.timestamps import spoken
from planner.forecasting.demand_estimator import DemandEstimator
from planner.forecasting.memory import Memory, number, part
from variants.catalog.protocol import Catalog
from variants.errors import StaleEpoch

log = logging.getLogger(__name__)

NAME = "demand"
"""The name under which the catalog keeps it."""
KEEP_EVERY_S = 60.0
"""A controller that is killed loses no more than this. Ten busy tasks take 0.3 MiB and 10 ms of a
core each time, 500 take 16 MiB and 0.5 s, beside the loop."""
STOPPING_S = 2.0
"""How long a loop that is told to stop may take over it."""
MOST_BYTES = 256 * 2**20
"""Of what is read back, unpacked."""
KINDS = ("<f8", "<f4", "<i8")
"""Types of the numbers in arrays."""
_HEAD = 8
"""Bytes that tell how long the names are."""


class LearnedState:
    """Keeps what was learned, and recalls it."""

    def __init__(
        self,
        catalog: Catalog,
        journal: Journal,
        clock_s: Callable[[], float],
        wall_s: Callable[[], float],
    ) -> None:
        self._catalog = catalog
        self._journal = journal
        self._clock_s = clock_s
        self._wall_s = wall_s
        self._kept_s = clock_s()
        self._keeping = OneTask()
        self._recalled = False
        """Whether what there was has been read: until then nothing is written over it."""

    async def recall(
        self, settings: Settings, calendar: PeakCalendar
    ) -> tuple[DemandEstimator, ForecasterTraining | None]:
        """The demand estimator that the settings ask for, with what was learned before.

        Raises:
            StateUnavailable: the catalog does not answer.
        """
        made = await self._recall(settings, calendar)
        self._recalled = True
        return made

    async def _recall(
        self, settings: Settings, calendar: PeakCalendar
    ) -> tuple[DemandEstimator, ForecasterTraining | None]:
        estimator, training = demand_estimator_of(settings)
        found = await asyncio.to_thread(self._catalog.learned, NAME)
        if found is None:
            return estimator, training
        kept_s, body = found
        try:
            memory = await asyncio.to_thread(decoded, body)
            now_s = self._clock_s()
            away_s = max(0.0, self._wall_s() - kept_s)
            shift_s = now_s - away_s - number(memory, "at_s")
            learned = part(memory, "estimator")
            estimator.recall(learned, shift_s, now_s)
            calendar.recall(part(memory, "calendar"))
            anything = number(learned, "observed_s") > 0.0
        except Exception as error:  # whatever is wrong with it, the loop has to begin
            why = f"it is learned anew: {str(error)[:200]}"
            self._journal.tell("forecast_forgotten", "demand", why)
            return demand_estimator_of(settings)
        if anything:
            said = f"what was learned until {spoken(kept_s)} is known, {away_s:,.0f} s later"
            self._journal.tell("forecast_recalled", "demand", said)
        return estimator, training

    def keep_on(self, epoch: int, estimator: DemandEstimator, calendar: PeakCalendar) -> None:
        """Begin to write down what is known now, if that is due."""
        now_s = self._clock_s()
        if now_s - self._kept_s < KEEP_EVERY_S or self._keeping.is_under_way:
            return
        self._kept_s = now_s
        self._keeping.begin(self._keep(epoch, self._memory(estimator, calendar)))

    async def close(self, epoch: int, estimator: DemandEstimator, calendar: PeakCalendar) -> None:
        """Write down what is known now, if that can be done at once.

        A loop that ends before it has read what there was writes nothing over it.
        """
        await self._keeping.give_up()
        if epoch and self._recalled:
            keeping = asyncio.create_task(self._keep(epoch, self._memory(estimator, calendar)))
            await asyncio.wait([keeping], timeout=STOPPING_S)
            keeping.cancel()

    def _memory(self, estimator: DemandEstimator, calendar: PeakCalendar) -> Memory:
        return {
            "at_s": self._clock_s(),
            "estimator": estimator.memory(),
            "calendar": calendar.memory(),
        }

    async def _keep(self, epoch: int, memory: Memory) -> None:
        at_s = self._wall_s()
        try:
            await asyncio.to_thread(
                lambda: self._catalog.put_learned(NAME, at_s, encoded(memory), epoch=epoch)
            )
        except StaleEpoch:
            log.info("what epoch %d learned is not kept: another one leads", epoch)
        except Exception as error:  # nobody awaits this
            self._journal.failed("writing down of what was learned", error)
        else:
            self._journal.over("writing down of what was learned")


def encoded(memory: Memory) -> bytes:
    """A memory as bytes: names and plain values as JSON, arrays behind it, all of it packed."""
    arrays: list[bytes] = []

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            kind = {"f": f"<f{value.dtype.itemsize}", "i": "<i8"}[value.dtype.kind]
            arrays.append(np.ascontiguousarray(value, dtype=kind).tobytes())
            return {"array": kind, "shape": list(value.shape)}
        if isinstance(value, dict):
            return {"memory": {name: plain(one) for name, one in value.items()}}
        return value

    names = json.dumps(plain(dict(memory))).encode()
    return zlib.compress(b"".join([len(names).to_bytes(_HEAD), names, *arrays]), level=1)


def decoded(body: bytes) -> Memory:
    """The memory that was encoded.

    Raises:
        ValueError: it is none, or larger than ``MOST_BYTES``.
    """
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(body, MOST_BYTES)
    except zlib.error as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error
    if not unpacking.eof:
        raise ValueError(f"it is cut off, or larger than {MOST_BYTES // 2**20} MiB")
    begin = _HEAD + int.from_bytes(raw[:_HEAD])
    try:
        names = json.loads(raw[_HEAD:begin])
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its names cannot be read: {error}") from error
    at = begin

    def read(value: Any) -> Any:
        nonlocal at
        if not isinstance(value, dict):
            return value
        if "memory" in value:
            return {name: read(one) for name, one in value["memory"].items()}
        kind, shape = value.get("array"), value.get("shape")
        sizes = shape if isinstance(shape, list) else [-1]
        if kind not in KINDS or not all(isinstance(n, int) and n >= 0 for n in sizes):
            raise ValueError("it holds something that is no array")
        size = int(np.prod(sizes, dtype=object)) * np.dtype(kind).itemsize
        if size > len(raw) - at:
            raise ValueError("an array is cut off")
        at += size
        return np.frombuffer(raw[at - size : at], kind).reshape(sizes).copy()

    found = read(names)
    if not isinstance(found, dict):
        raise ValueError("it is no memory")
    return found
