"""So many a second, and some more at once."""


class Allowance:
    """Says of each whether it is one too many.

    Args:
        per_s: how many there may be a second.
        at_once: how many there may be at one moment, after a rest.
        now_ms: the time from which it counts.
    """

    __slots__ = ("_at_ms", "_at_once", "_left", "_per_ms")

    def __init__(self, per_s: float, at_once: float, now_ms: float) -> None:
        self._per_ms = per_s / 1_000
        self._at_once = at_once
        self._left, self._at_ms = at_once, now_ms

    def takes(self, now_ms: float) -> bool:
        """Whether there may be one more now; if so, it is counted."""
        left = self._left + self._per_ms * (now_ms - self._at_ms)
        self._left, self._at_ms = min(left, self._at_once), now_ms
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
