"""Waiting after failures: each doubles the wait before the next try; its reason is told once."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

FIRST_S = 1.0
LONGEST_S = 300.0
SHARE = 4.0
"""What fails slowly waits longer than that, up to so many times what a try took: in the long run
it takes no more than a fifth of the time."""

ActionKey = TypeVar("ActionKey", bound=Hashable)
"""What identifies an action that may fail and is tried again."""


@dataclass(slots=True)
class _Failure:
    count: int
    reason: str
    until_s: float


class Backoff(Generic[ActionKey]):
    """What failed lately, by key: ``first_s`` of waiting after the first failure, or as long as the
    try took, then twice as long, up to ``longest_s``."""

    def __init__(self, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._failures: dict[ActionKey, _Failure] = {}

    def waits(self, key: ActionKey, now_s: float) -> str | None:
        """Why the last try failed, while the next one has to wait; otherwise None."""
        failure = self._failures.get(key)
        return failure.reason if failure is not None and now_s < failure.until_s else None

    def has(self, key: ActionKey) -> bool:
        """Whether it failed when it was tried last."""
        return key in self._failures

    def failed(self, key: ActionKey, reason: str, now_s: float, took_s: float = 0.0) -> bool:
        """Note a failure of a try that took so long; return whether its reason is news."""
        before = self._failures.get(key)
        count = before.count if before else 0
        first_s, longest_s = max(self._first_s, took_s), max(self._longest_s, SHARE * took_s)
        wait_s = min(first_s * 2.0 ** min(count, 30), longest_s)
        self._failures[key] = _Failure(count + 1, reason, now_s + wait_s)
        return before is None or before.reason != reason

    def succeeded(self, key: ActionKey) -> None:
        self._failures.pop(key, None)

    def forget(self, gone: Callable[[ActionKey], bool] = lambda _: True) -> None:
        """Forget the failures of keys that are gone; without an argument, all of them."""
        for key in [key for key in self._failures if gone(key)]:
            del self._failures[key]
