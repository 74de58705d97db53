"""Watching Ray's control store (GCS): what to say when it has died, and when it is back.

Ray's nodes and processes go on without it for a while, and so do queries. But nothing that ends is
started again, and without a Redis of its own it never comes back as what it was.
"""

from collections.abc import Callable

MISSED = 3
"""So many looks in a row without an answer, a second apart, mean that it has died."""

_MEANWHILE = "what ends from now on is not started again, and no plan is applied"
DIED_HERE = (
    f"Ray's control store has died: queries go on, but {_MEANWHILE};"
    " `modelless down` and `modelless up` start anew"
)
DIED_ON_CLUSTER = (
    "Ray's control store at {where} does not answer: queries go on for as long as Ray's nodes wait"
    f" for it, a minute unless they were started otherwise, but {_MEANWHILE};"
    " unless it comes back, start Ray again on all nodes and then modelless"
)
BACK = "Ray's control store answers again"


class ControlStoreWatch:
    """Looks once a second; ``look`` returns a sentence when there is news."""

    def __init__(self, where: str, *, on_cluster: bool, answers: Callable[[], bool]) -> None:
        self._answers = answers
        self._died = DIED_ON_CLUSTER.format(where=where) if on_cluster else DIED_HERE
        self._missed = 0

    @property
    def has_died(self) -> bool:
        return self._missed >= MISSED

    @property
    def sentence(self) -> str:
        """What to say while it does not answer; empty while it does."""
        return self._died if self.has_died else ""

    def look(self) -> str | None:
        had_died = self.has_died
        self._missed = 0 if self._answers() else self._missed + 1
        if self.has_died == had_died:
            return None
        return self._died if self.has_died else BACK
