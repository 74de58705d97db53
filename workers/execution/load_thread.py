"""The thread in which a worker reads artifacts, and loads and closes runtimes, one at a time.

What queries ask for comes first (``planner.eviction.turns``): a worker that has just started loads
all that fits, which takes minutes where models are large, and queries come meanwhile. Closing comes
before all loads, because it takes little and frees memory.

The event loop goes on taking and answering queries meanwhile. What is being loaded is a suspect in
the crash ledger until the load is over, or is given up because the worker leaves. What another
machine has is fetched first, in a second thread: nothing that is here waits for it.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from planner.eviction.load_pace import load_pace
from planner.eviction.turns import CLOSING, Order
from variants.artifacts.integrity import Seen
from variants.errors import Internal, RuntimeFailed
from workers.execution.artifacts import Artifacts, Read, SeenArtifacts
from workers.execution.replicas import Replica
from workers.finite import all_finite
from workers.process.ordered_thread import OrderedThread
from workers.process.quarantine import CrashLedger
from workers.runtimes.gpu_thread import LOADING
from workers.runtimes.protocol import Runtime
from workers.runtimes.signature import in_words
from workers.types import LoadSpec, variant_id

STUCK_S = 300.0
STUCK_FACTOR = 50.0
"""A load is stuck after both 5 minutes and 50 times what its profile says, and so is closing what
was loaded."""


class _AtWork(NamedTuple):
    """What the thread reads, loads or closes now."""

    spec: LoadSpec
    began_s: float
    closes: bool = False


class LoadThread:
    """One thread beside the event loop. Its coroutines are awaited on the loop."""

    def __init__(
        self,
        ledger: CrashLedger,
        stuck_s: float = STUCK_S,
        artifacts: Artifacts | None = None,
    ) -> None:
        self._ledger = ledger
        self.artifacts = artifacts or SeenArtifacts()
        self._stuck_s = stuck_s
        self._thread = OrderedThread("load")
        self._fetching = self._thread
        if self.artifacts.fetches:
            self._fetching = OrderedThread("fetch")
        self._fetch_s: dict[int, float] = {}
        """What fetching took, of variants that are not loaded yet."""
        self._at_work: _AtWork | None = None
        self._needed = True
        self._suspect: bytes | None = None
        """What loads now, while that is evidence against it."""
        self._judging = threading.Lock()
        """Held to make what loads a suspect, and to see whether it still is one."""
        self.loads = 0
        """How many loads are over."""
        self.took_s = 0.0
        """Loading in this thread; ``fetched_s`` comes on top."""
        self.fetched_s = 0.0
        self.profiled_s = 0.0
        """What they should take, by the profiles."""
        self._imported: set[str] = set()
        """Runtimes of which something was loaded."""

    def check(self) -> None:
        """Raise ``Internal`` when a load or closing a runtime hangs: all other loads and unloads
        wait behind it."""
        if (at_work := self._at_work) is None:
            return
        spec = at_work.spec
        for_s = time.monotonic() - at_work.began_s
        if for_s > max(self._stuck_s, STUCK_FACTOR * spec.load_s):
            doing = "closing" if at_work.closes else "loading"
            why = f"{spec.task}/{spec.variant} has been {doing} for {for_s:,.0f} s"
            key = variant_id(spec.task, spec.variant).to_bytes(8, "big")
            self._ledger.hung(key, spec.task, spec.variant, why)
            raise Internal(why)

    @property
    def pace(self) -> float:
        """What loads took so far, in parts of what profiles say."""
        return load_pace(self.took_s + self.fetched_s, self.profiled_s)

    def at_work_s(self) -> float:
        """How much of what it is expected to take the load under way has taken."""
        if (at_work := self._at_work) is None or at_work.closes:
            return 0.0
        return min(self.pace * at_work.spec.load_s, time.monotonic() - at_work.began_s)

    def fetch_s(self, variant: int) -> float:
        """What fetching a variant took that is being loaded now."""
        return self._fetch_s.pop(variant, 0.0)

    async def read(self, spec: LoadSpec, order: Order) -> Read:
        """Have an artifact here and compare it with its digest."""
        if not self.artifacts.fetches:
            return await self._thread.run(lambda: self._read(spec), lambda: order)
        began_s = time.monotonic()
        try:
            return await self._fetching.run(lambda: self.artifacts.read(spec), lambda: order)
        finally:
            took_s = time.monotonic() - began_s
            self.fetched_s += took_s
            self._fetch_s[variant_id(spec.task, spec.variant)] = took_s

    async def load(self, replica: Replica, runtime: Runtime, file: Seen | None) -> None:
        """Load a runtime and run one row; ``file`` is how its artifact looked when it was read.

        Raises:
            RuntimeFailed: it cannot be loaded, or its outputs are not the task's.
            VariantNotLoadable: the artifact was changed meanwhile.
        """
        await self._thread.run(lambda: self._load(replica, runtime, file), replica.order)

    async def close(self, spec: LoadSpec, runtime: Runtime) -> None:
        """Close the runtime of a variant; raises what its back end raises."""
        await self._thread.run(lambda: self._close(spec, runtime), lambda: CLOSING)

    def give_up(self) -> None:
        """Nobody needs what loads here any more.

        Whoever ends the process now ends a load that is merely slow. So it is no evidence against
        its variant, unless it hangs.
        """
        with suppress(Internal):
            self.check()
        with self._judging:
            self._needed = False
            if self._suspect is not None:
                self._ledger.clear(self._suspect)

    def shutdown(self, timeout_s: float | None, last: Callable[[], None]) -> bool:
        """Drop what waits, and wait for what is under way, at most for so long if that is said;
        then do ``last`` in the thread. Whether all of it is over."""
        self._fetching.shutdown(0.0)
        return self._thread.shutdown(timeout_s, last)

    # -- in the thread ----------------------------------------------------------------------------

    def _read(self, spec: LoadSpec) -> Read:
        self._at_work = _AtWork(spec, time.monotonic())
        try:
            return self.artifacts.read(spec)
        finally:
            self._at_work = None

    def _load(self, replica: Replica, runtime: Runtime, file: Seen | None) -> None:
        spec = replica.spec
        self._suspects(replica)
        began_s = time.monotonic()
        self._at_work = _AtWork(spec, began_s)
        try:
            opened = False
            try:
                with self.artifacts.held(spec, file), LOADING:
                    runtime.load()
                    opened = True
                    replica.sound_zeros = run_once(runtime, spec)
            except Exception:  # an open runtime would keep memory that is not counted
                if opened:
                    close(runtime)
                raise
        finally:
            self.loads += 1
            self.took_s += time.monotonic() - began_s
            self.profiled_s += self._expected_s(spec)
            self._at_work = None
            self._clears(replica)

    def _expected_s(self, spec: LoadSpec) -> float:
        """What a load should take that is over; the first one of a runtime imports it."""
        cold = spec.runtime not in self._imported
        self._imported.add(spec.runtime)
        return max(spec.load_s, (cold and spec.cold_load_s) or 0.0)

    def _close(self, spec: LoadSpec, runtime: Runtime) -> None:
        self._at_work = _AtWork(spec, time.monotonic(), closes=True)
        try:
            close(runtime)
        finally:
            self._at_work = None

    def _suspects(self, replica: Replica) -> None:
        """A load may end the process; then it is evidence against its variant."""
        with self._judging:
            if self._needed:
                self._suspect = replica.key
                self._ledger.suspect(replica.key, replica.spec.task, replica.spec.variant)

    def _clears(self, replica: Replica) -> None:
        with self._judging:
            self._suspect = None
            self._ledger.clear(replica.key)


def close(runtime: Runtime) -> None:
    """Close a runtime, and let none record on a GPU meanwhile; raises what its back end raises."""
    with LOADING:
        runtime.close()


def run_once(runtime: Runtime, spec: LoadSpec) -> bool:
    """Run one row of zeros and compare what comes with the task's outputs; whether all of it is
    finite.

    Raises:
        RuntimeFailed: number, type or shape of the outputs differ.
    """
    row = [np.zeros((1, *t.shape), dtype=t.dtype) for t in spec.inputs]
    outputs = runtime.run(row)
    has = [(str(t.dtype), t.shape) for t in outputs]
    wants = [(t.dtype, (1, *t.shape)) for t in spec.outputs]
    if has != wants:
        name = f"{spec.task}/{spec.variant}"
        raise RuntimeFailed(f"{name} gives {in_words(has)}, the task has {in_words(wants)}")
    return all(tensor.dtype.kind != "f" or all_finite(tensor) for tensor in outputs)
