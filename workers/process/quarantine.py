"""Which variant crashed the worker: evidence that outlives the process.

Each process keeps a *slot*, a page of a file that is locked for as long as the process lives
(``workers.process.slot``). Its first entry is the variant that runs now; the others are *suspects*:
variants that are loading, or have not run cleanly here yet. Writing an entry costs less than a
microsecond and needs no space, so it is done for every batch.

A process that starts looks at the slots that no process holds the lock of, because theirs is gone:

* a suspect is evidence against its variant, however the process ended, as memory may have run out.
  A load is a suspect no more once its worker leaves and has answered its queries: whoever ends the
  process then ends a load that nobody waits for;
* the variant that ran is evidence only if the process died of its own fault (a segmentation fault,
  an abort), which leaves a *trace* by ``faulthandler``, or if the kernel has killed for want of
  memory since. One that was killed from outside blames no variant, and neither does a bus error:
  there a mapped file could not be read or extended, which is the disk's fault.

A batch or a load that hangs is evidence at once, also where its process then leaves in good order.

The page also names the queries of the batch that runs, for who asked them
(``workers.process.last_batch``).

Evidence becomes one record for each crash and variant. Two records within a day: quarantine.
Several workers may share the folder; the one that takes a slot's lock settles it.

On a disk that is full or cannot be written, the worker goes on without a ledger, says so
(``problem``) and tries again. What has no slot leaves no evidence, so blames no variant.
"""

import faulthandler
import fcntl
import logging
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

import orjson

from variants.disk import allocate
from workers.process.last_batch import (
    HUNG,
    IDLE,
    KILLS,
    MOST_QUERIES,
    QUERIES,
    RUNNING,
    STORAGE_FAULT,
    out_of_memory,
)
from workers.process.memory_kills import memory_kills
from workers.process.slot import ENTRY_BYTES, Slot

log = logging.getLogger(__name__)

CRASHES = 2
"""So many put a variant into quarantine."""
WINDOW_S = 86_400.0
"""Crashes longer ago are forgotten."""
FRESH_S = 3_600.0
"""A name so young may be of a process that is just beginning."""
RETRY_S = 30.0
"""How long a worker goes on without a ledger before it tries to open one again."""
SUSPECTS = range(1, 64)
"""Entries of the slot. Two threads have one suspect each at most."""
ONE = (1).to_bytes(ENTRY_BYTES, "little")
TRACE_BYTES = 16_384
"""Kept free for the trace, so that it can be written when the disk is full."""
TRACE_LIMIT = 1_000


class CrashLedger:
    """The evidence in one folder, and this process' own part of it.

    With an empty folder name nothing is kept and nothing is ever found.
    """

    def __init__(self, folder: str, *, retry_s: float = RETRY_S) -> None:
        self._folder = Path(folder) if folder else None
        self._retry_s = retry_s
        self._token = ""
        self._slot: Slot | None = None
        self._trace: IO[bytes] | None = None
        self._suspects: dict[bytes, int] = {}
        self._hung: set[bytes] = set()
        self._left: Slot | None = None
        self._changing = threading.Lock()
        self._closed = False
        self._retry_at_s = 0.0
        self.problem = ""
        """Why crashes are not put down to variants here at the moment; empty while they are."""

    def open(self) -> None:
        """Settle what dead processes left, then begin to keep evidence, if the disk allows it."""
        with self._changing:
            if self._folder is None or self._slot is not None or self._closed:
                return
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                _settle_all(self._folder)
                self._begin(self._folder)
            except OSError as error:
                self._go_without(error)
            else:
                if self.problem:
                    log.info("crashes are put down to variants again")
                self.problem = ""

    def retry(self) -> None:
        """Open it again when it could not be, or broke, some time ago; cheap otherwise."""
        if self.problem and time.monotonic() >= self._retry_at_s:
            self.open()

    def close(self) -> None:
        """A clean end: leave no evidence behind but what has become a record.

        What hangs stays in the page for who asked it: his connection is being closed, too.
        """
        with self._changing:
            self._closed = True
            if self._hung and self._slot is not None:
                self._write(SUSPECTS.start, bytes(ENTRY_BYTES * len(SUSPECTS)))
                self._left, self._slot = self._slot, None  # locked until the process ends
            self._end()

    # -- this process -----------------------------------------------------------------------------

    @property
    def page(self) -> str:
        """Where it is read what this process ran when it ended; empty while nothing is kept."""
        return str(self._slot.path) if self._slot is not None else ""

    def enter(self, variant: bytes, queries: Sequence[bytes] = ()) -> None:
        """A batch of the variant (its 8-byte id) begins.

        Args:
            queries: that are in it, eight bytes each.
        """
        if (slot := self._slot) is None:
            return
        count = len(queries)
        try:
            if count == 1:
                slot.write(QUERIES, ONE + queries[0])
            else:
                listed = b"".join(queries[:MOST_QUERIES])
                slot.write(QUERIES, count.to_bytes(ENTRY_BYTES, "little") + listed)
            slot.write(RUNNING, variant)
        except OSError as error:
            self._fails(error)

    def leave(self) -> None:
        """No batch runs."""
        self._write(RUNNING, IDLE)

    def hung(self, variant: bytes, task: str, name: str, why: str) -> None:
        """A batch or a load of the variant hangs: a record, once for each process.

        What runs stays in the page until the process ends, for who asked it.
        """
        folder = self._folder
        with self._changing:
            if folder is None or self._slot is None or variant in self._hung:
                return
            self._hung.add(variant)
        log.error("%s/%s is blamed: %s", task, name, why)
        self._keep_name(folder, variant, task, name)
        self._write(HUNG, variant)
        record = folder / f"{variant.hex()}.{self._token}-hung.crash"
        try:
            record.write_text(why)
        except OSError as error:
            log.warning("%s cannot be written: %s", record, error.strerror)

    def note_memory(self) -> None:
        """Note how many processes were killed for want of memory until now; once a second."""
        self._write(KILLS, memory_kills().to_bytes(ENTRY_BYTES, "little"))

    def suspect(self, variant: bytes, task: str, name: str) -> None:
        """The variant is about to do something it has not done cleanly here yet."""
        with self._changing:
            if self._folder is None or self._slot is None or variant in self._suspects:
                return
            taken = self._suspects.values()
            index = next((index for index in SUSPECTS if index not in taken), 0)
            if not index:
                return
            self._suspects[variant] = index
        self._keep_name(self._folder, variant, task, name)
        self._write(index, variant)

    def clear(self, variant: bytes) -> None:
        """Take a variant from the suspects: what it was suspected of went well."""
        with self._changing:
            index = self._suspects.pop(variant, None)
            if index is not None:
                self._write(index, IDLE)

    # -- what is known ----------------------------------------------------------------------------

    def crashes_s(self, variant: bytes) -> list[float]:
        """Unix times of the last day's crashes that are put down to the variant, ascending."""
        return self._crashes_s(f"{variant.hex()}.").get(variant.hex(), [])

    def quarantined_s(self, variant: bytes) -> float | None:
        """When a variant last crashed a worker that has done so too often within the last day."""
        crashes_s = self.crashes_s(variant)
        return crashes_s[-1] if len(crashes_s) >= CRASHES else None

    def quarantined(self) -> tuple[tuple[str, str, float], ...]:
        """Task, variant and time of the last crash of all in quarantine, ordered."""
        found = []
        folder = self._folder or Path()
        for variant, crashes_s in self._crashes_s().items():
            if len(crashes_s) < CRASHES:
                continue
            path = folder / f"{variant}.name"
            try:
                names = orjson.loads(path.read_bytes())
                found.append((str(names["task"]), str(names["variant"]), crashes_s[-1]))
            except FileNotFoundError:
                continue  # whoever crashed had no room for its name
            except (OSError, ValueError, LookupError, TypeError) as error:
                # What cannot be read must not keep a worker from starting. It stays in quarantine.
                log.warning("%s in the crash ledger cannot be read: %r", path, error)
        return tuple(sorted(found))

    def _crashes_s(self, prefix: str = "") -> dict[str, list[float]]:
        """Unix times of the last day's crashes by variant, ascending.

        The folder is read once: there is a name in it for each variant that was ever loaded.

        Args:
            prefix: with which the names of the files begin that are looked at.
        """
        found: dict[str, list[float]] = {}
        if (folder := self._folder) is None or not folder.is_dir():
            return found
        since_s = time.time() - WINDOW_S
        for name in os.listdir(folder):
            if name.endswith(".crash") and name.startswith(prefix):
                with suppress(FileNotFoundError):  # another worker has just pardoned it
                    if (at_s := (folder / name).stat().st_mtime) >= since_s:
                        found.setdefault(name.partition(".")[0], []).append(at_s)
        return {variant: sorted(crashes_s) for variant, crashes_s in found.items()}

    def pardon(self, variant: bytes) -> None:
        """Forget the crashes of a variant."""
        for record in self._folder.glob(f"{variant.hex()}.*.crash") if self._folder else ():
            record.unlink(missing_ok=True)

    # -- opening and ending -----------------------------------------------------------------------

    def _begin(self, folder: Path) -> None:
        self._token = uuid4().hex
        slot = Slot(folder / f".{self._token}")
        try:
            trace = (folder / f"{self._token}.trace").open("wb", buffering=0)
            self._trace = trace
            allocate(trace.fileno(), TRACE_BYTES)
            slot.rename(folder / f"{self._token}.slot")  # seen by others only once it is locked
            faulthandler.enable(trace)
        except OSError:
            slot.remove()
            self._end()
            raise
        self._slot = slot
        self.note_memory()

    def _end(self) -> None:
        """Take this process' own evidence away, as far as the disk allows it."""
        slot, self._slot = self._slot, None
        self._suspects.clear()
        if slot is not None:
            slot.remove()
        if self._trace is not None:
            faulthandler.disable()
            with suppress(OSError):
                Path(self._trace.name).unlink(missing_ok=True)
            self._trace.close()
            self._trace = None

    def _go_without(self, error: OSError) -> None:
        why = f"the crash ledger in {self._folder} cannot be written: {error.strerror}"
        if why != self.problem:
            log.warning("%s; a variant that crashes the worker is not found out meanwhile", why)
        self.problem = why
        self._retry_at_s = time.monotonic() + self._retry_s

    def _write(self, index: int, entry: bytes) -> None:
        slot = self._slot
        if slot is not None:
            try:
                slot.write(index, entry)
            except OSError as error:
                self._fails(error)

    def _fails(self, error: OSError) -> None:
        """Go on without a ledger: half of the evidence could blame an innocent variant."""
        self._end()
        self._go_without(error)

    def _keep_name(self, folder: Path, variant: bytes, task: str, name: str) -> None:
        """Write down what the variant's id stands for, once. Without it its name is unknown."""
        names = folder / f"{variant.hex()}.name"
        draft = folder / f".{self._token}.draft"
        try:
            if not names.exists():
                draft.write_bytes(orjson.dumps({"task": task, "variant": name}))
                draft.rename(names)
        except OSError as error:
            log.warning("%s cannot be written: %s", names, error.strerror)
            with suppress(OSError):
                draft.unlink(missing_ok=True)


# -- settling -------------------------------------------------------------------------------------


def _settle_all(folder: Path) -> None:
    alone = True
    for slot in sorted(folder.glob("*.slot")):
        with suppress(FileNotFoundError), slot.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                alone = False
                continue  # its process lives, or another one settles it
            if os.fstat(file.fileno()).st_nlink:
                _settle(folder, slot, file.read())
    if alone:
        _forget_old(folder)


def _forget_old(folder: Path) -> None:
    """Remove crashes that count no more, and the names of variants without any. Nobody runs one of
    them, as no other process lives; what is loaded again is named again."""
    files = os.listdir(folder)
    crashed = {name.partition(".")[0] for name in files if name.endswith(".crash")}
    for name in files:
        named = name.endswith(".name") and name.partition(".")[0] not in crashed
        if named or name.endswith(".crash"):
            with suppress(OSError):
                age_s = time.time() - (folder / name).stat().st_mtime
                if age_s > (FRESH_S if named else WINDOW_S):
                    (folder / name).unlink()


def _settle(folder: Path, slot: Path, page: bytes) -> None:
    """Make records of a dead process' evidence, then remove it. May be repeated.

    Where a record cannot be made because the disk is full, the slot stays for the next start.
    """
    token = slot.stem
    trace = folder / f"{token}.trace"
    text = trace.read_bytes().partition(b"\0")[0].decode(errors="replace") if trace.exists() else ""
    for variant in sorted(blamed(page, text, out_of_memory(page, memory_kills()))):
        record = folder / f"{variant.hex()}.{token}.crash"
        try:
            record.touch()
        except OSError as error:
            log.warning("%s cannot be written: %s", record, error.strerror)
            return
        with suppress(OSError):  # that it is there counts; what it says is for people
            record.write_text(text)
        log.warning("a worker crashed on %s: %s", _named(folder, variant), text[:TRACE_LIMIT])
    for path in (*folder.glob(f"{token}.*"), folder / f".{token}.draft", slot):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _named(folder: Path, variant: bytes) -> str:
    """Task and variant, or its number where its name was not kept."""
    try:
        names = orjson.loads((folder / f"{variant.hex()}.name").read_bytes())
        return f"{names['task']}/{names['variant']}"
    except (OSError, ValueError, LookupError, TypeError):
        return f"variant {variant.hex()}"


def blamed(page: bytes, trace: str, out_of_memory: bool = False) -> set[bytes]:
    """Variants that a dead process' slot and trace are evidence against.

    Args:
        out_of_memory: whether the kernel has killed for want of memory meanwhile.
    """
    entries = [page[at : at + ENTRY_BYTES] for at in range(0, len(page), ENTRY_BYTES)]
    found = {entries[index] for index in SUSPECTS if index < len(entries)}
    if out_of_memory or (trace and not trace.startswith(STORAGE_FAULT)):
        found.update(entries[RUNNING : RUNNING + 1])
    return {entry for entry in found if entry != IDLE and len(entry) == ENTRY_BYTES}
