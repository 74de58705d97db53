"""What is kept of a run that is under way: each answer as soon as it is there.

Beside the file of answers lie, while it is made, ``FILE.part`` with a line of JSON for each row as
it was answered, and ``FILE.part.about`` with what was asked, so that nothing else goes on with it.
Lines come as answers do; no line stands more than a window of rows away from its place, so that
putting them in order takes a window's memory.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import orjson

from variants.disk import full_disk_explained
from variants.errors import InvalidInput


class Done:
    """Numbers of rows that are done: all below one, and some above it."""

    def __init__(self) -> None:
        self.below = 0
        self._above: set[int] = set()

    def __contains__(self, number: int) -> bool:
        return number < self.below or number in self._above

    def __len__(self) -> int:
        return self.below + len(self._above)

    def add(self, number: int) -> None:
        if number >= self.below:
            self._above.add(number)
        while self.below in self._above:
            self._above.remove(self.below)
            self.below += 1


class Journal:
    """The lines of one run. Use it as a context."""

    def __init__(self, output: Path, about: Mapping[str, Any], *, resume: bool) -> None:
        """
        Raises:
            InvalidInput: an interrupted run has left its lines, and they are not to be gone on
                with, or belong to other rows or another query; another run writes there now; or no
                file can be there.
            StateUnavailable: the disk is full.
        """
        self.path = output.with_name(output.name + ".part")
        self._about = output.with_name(output.name + ".part.about")
        self.done = Done()
        self.refused = 0
        """Of them those whose row has an error."""
        try:
            # Without a buffer: what did not find room is not written again when it is closed.
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise InvalidInput(f"{output} cannot be written: {error.strerror}") from error
        try:
            self._begin(about, resume=resume)
        except BaseException:
            self._file.close()
            raise

    def _begin(self, about: Mapping[str, Any], *, resume: bool) -> None:
        self._lock()
        if not self.path.stat().st_size:
            with full_disk_explained(self._about):
                self._about.write_bytes(orjson.dumps(about))
            return
        if not resume:
            raise InvalidInput(
                f"{self.path} has the answers of a run that was interrupted: --resume goes on with"
                " it; remove it to begin anew"
            )
        self._check(about)
        self._recall()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidInput(f"another run writes to {self.path} now") from None

    def _check(self, about: Mapping[str, Any]) -> None:
        try:
            before = orjson.loads(self._about.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            before = {}
        names = dict.fromkeys((*about, *before))
        if other := [name for name in names if before.get(name) != about.get(name)]:
            raise InvalidInput(
                f"{self.path} is of another run ({', '.join(other)}): ask as it did, or remove it"
                " to begin anew"
            )

    def _recall(self) -> None:
        """Read which rows are done. A last line that is not whole is taken away."""
        whole = 0
        with self.path.open("r+b") as file:
            for line in file:
                try:
                    if not line.endswith(b"\n"):
                        break
                    row = orjson.loads(line)
                    number = int(row["row"])
                except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
                    break
                whole += len(line)
                if number not in self.done:
                    self.refused += "error" in row
                self.done.add(number)
            file.truncate(whole)

    def note(self, numbers: Sequence[int], lines: Sequence[bytes]) -> None:
        """Keep the lines of these rows: they are in the file when this returns.

        Raises:
            StateUnavailable: the disk is full.
        """
        left = memoryview(b"".join(line + b"\n" for line in lines))
        with full_disk_explained(self.path):
            while left:
                left = left[self._file.write(left) :]
        for number in numbers:
            self.done.add(number)

    def ordered(self) -> Iterator[bytes]:
        """All lines in the order of their rows, each row once."""
        waiting: list[tuple[int, bytes]] = []
        due = 0
        with self.path.open("rb") as file:
            for line in file:
                number = int(orjson.loads(line)["row"])
                if number >= due:
                    heappush(waiting, (number, line))
                while waiting and waiting[0][0] <= due:
                    first, text = heappop(waiting)
                    if first == due:
                        due += 1
                        yield text

    def remove(self) -> None:
        """Nothing of the run is needed any more."""
        self._file.close()
        os.unlink(self.path)
        self._about.unlink(missing_ok=True)
