"""Which variant crashed the worker: evidence that outlives the process.

Each process keeps a *slot*, a file of one page that is mapped into memory, locked for as long as
the process lives, and holds the variant that runs now. Writing it costs nothing, so it is done for
every batch. A variant that is loading, or has not run cleanly here yet, also has a *marker* file.

A process that starts looks at the slots whose lock is free, so whose process is gone:

* a marker is evidence against its variant, however the process ended: memory may have run out;
* the slot is evidence only if the process died of its own fault (a segmentation fault, an abort),
  which leaves a *trace* by ``faulthandler``. One that was killed from outside blames nobody.

Evidence becomes one record for each crash and variant. Two records within a day: quarantine.
Several workers may share the folder; renaming decides who settles a dead process' evidence.
"""

import faulthandler
import fcntl
import logging
import mmap
import time
from contextlib import suppress
from pathlib import Path
from typing import IO
from uuid import uuid4

import orjson

log = logging.getLogger(__name__)

CRASHES = 2
"""So many put a variant into quarantine."""
WINDOW_S = 86_400.0
"""Crashes longer ago are forgotten."""
IDLE = bytes(8)
TRACE_LIMIT = 1_000


class CrashLedger:
    """The evidence in one folder, and this process' own part of it.

    With an empty folder name nothing is kept and nothing is ever found.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None
        self._token = uuid4().hex
        self._slot: mmap.mmap | None = None
        self._lock: IO[bytes] | None = None
        self._trace: IO[str] | None = None

    def open(self) -> None:
        """Settle what dead processes left, then begin to keep evidence."""
        if self._folder is None:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._settle_all(self._folder)
        draft = self._folder / f".{self._token}"
        self._lock = draft.open("w+b")
        self._lock.truncate(mmap.PAGESIZE)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._trace = self._path("trace").open("w")
        draft.rename(self._path("slot"))  # seen by others only once it is locked
        self._slot = mmap.mmap(self._lock.fileno(), mmap.PAGESIZE)
        faulthandler.enable(self._trace)

    def close(self) -> None:
        """A clean end: leave no evidence behind."""
        if self._folder is None or self._slot is None:
            return
        faulthandler.disable()
        for path in self._folder.glob(f"{self._token}.*"):
            path.unlink(missing_ok=True)
        self._slot.close()
        self._slot = None
        for file in (self._trace, self._lock):
            if file is not None:
                file.close()

    # -- this process -----------------------------------------------------------------------------

    def enter(self, variant: bytes) -> None:
        """A batch of the variant (its 8-byte id) begins."""
        if self._slot is not None:
            self._slot[:8] = variant

    def leave(self) -> None:
        """No batch runs."""
        if self._slot is not None:
            self._slot[:8] = IDLE

    def suspect(self, variant: bytes, task: str, name: str) -> None:
        """The variant is about to do something it has not done cleanly here yet.

        A full disk costs the evidence, neither the load nor the answers.
        """
        if self._folder is None:
            return
        names = self._folder / f"{variant.hex()}.name"
        draft = self._folder / f".{self._token}.draft"
        try:
            if not names.exists():
                draft.write_bytes(orjson.dumps({"task": task, "variant": name}))
                draft.rename(names)
            self._path(f"{variant.hex()}.marker").touch()
        except OSError:
            log.exception("the crash ledger cannot be written")

    def clear(self, variant: bytes) -> None:
        """It went well."""
        if self._folder is not None:
            try:
                self._path(f"{variant.hex()}.marker").unlink(missing_ok=True)
            except OSError:
                log.exception("the crash ledger cannot be written")

    # -- what is known ----------------------------------------------------------------------------

    def crashes(self, variant: bytes) -> int:
        """Crashes of the last day that are put down to the variant."""
        if self._folder is None:
            return 0
        since = time.time() - WINDOW_S
        count = 0
        for record in self._folder.glob(f"{variant.hex()}.*.crash"):
            with suppress(FileNotFoundError):  # another worker has just pardoned it
                count += record.stat().st_mtime >= since
        return count

    def is_quarantined(self, variant: bytes) -> bool:
        return self.crashes(variant) >= CRASHES

    def quarantined(self) -> tuple[tuple[str, str], ...]:
        """(task, variant) of all in quarantine, ordered."""
        found = []
        for path in self._folder.glob("*.name") if self._folder else ():
            try:
                if self.is_quarantined(bytes.fromhex(path.stem)):
                    names = orjson.loads(path.read_bytes())
                    found.append((str(names["task"]), str(names["variant"])))
            except (OSError, ValueError, LookupError, TypeError) as error:
                # What cannot be read must not keep a worker from starting. It stays in quarantine.
                log.warning("%s in the crash ledger cannot be read: %r", path, error)
        return tuple(sorted(found))

    def pardon(self, variant: bytes) -> None:
        """Forget the crashes of a variant."""
        for record in self._folder.glob(f"{variant.hex()}.*.crash") if self._folder else ():
            record.unlink(missing_ok=True)

    # -- settling ---------------------------------------------------------------------------------

    def _path(self, suffix: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{self._token}.{suffix}"

    def _settle_all(self, folder: Path) -> None:
        for slot in sorted(folder.glob("*.slot")):
            try:
                with slot.open("rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    claimed = slot.with_suffix(".claimed")
                    slot.rename(claimed)
                    self._settle(folder, slot.stem, file.read(8))
                    claimed.unlink()
            except (BlockingIOError, FileNotFoundError):
                continue  # its process lives, or another starter settles it

    def _settle(self, folder: Path, token: str, running: bytes) -> None:
        trace = folder / f"{token}.trace"
        text = trace.read_text(errors="replace") if trace.exists() else ""
        suspects = {path.name.split(".")[1] for path in folder.glob(f"{token}.*.marker")}
        if text and running != IDLE:
            suspects.add(running.hex())
        for suspect in sorted(suspects):
            (folder / f"{suspect}.{token}.crash").write_text(text)
            log.warning("a worker crashed on variant %s: %s", suspect, text[:TRACE_LIMIT])
        for path in (*folder.glob(f"{token}.*"), folder / f".{token}.draft"):
            if path.suffix != ".claimed":
                path.unlink(missing_ok=True)
