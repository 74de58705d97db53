"""How far a long piece of work is: steps begun, of those that are expected by now."""

from collections.abc import Callable

from controlplane.building.types import Progress


class Meter:
    """Counts steps and passes them on. What is done never goes back; the total may grow."""

    def __init__(self, progress: Callable[[Progress], None], *, total: int = 0) -> None:
        self._progress = progress
        self._total = total
        self._begun = 0

    def expect(self, steps: int) -> None:
        """Expect so many steps more than before, or fewer where it is negative."""
        self._total = max(self._begun, self._total + steps)

    def begin(self, step: str, message: str) -> None:
        """The step before is done, and this one begins."""
        self._begun += 1
        self._total = max(self._total, self._begun)
        self._tell(step, message)

    def say(self, step: str, message: str) -> None:
        """Tell what is going on within the present step."""
        self._tell(step, message)

    def finish(self, step: str, message: str) -> None:
        """All is done."""
        self._progress(Progress(step=step, done=self._total, total=self._total, message=message))

    def _tell(self, step: str, message: str) -> None:
        done = max(0, self._begun - 1)
        self._progress(Progress(step=step, done=done, total=self._total, message=message))
