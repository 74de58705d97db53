"""Waiting after failures: each doubles the wait before the next try; its reason is told once."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

FIRST_S = 1.0
LONGEST_S = 300.0

ActionKey = TypeVar("ActionKey", bound=Hashable)
"""What identifies an action that may fail and is tried again."""


@dataclass(slots=True)
class _Failure:
    count: int
    reason: str
    until_s: float


class Backoff(Generic[ActionKey]):
    """What failed lately, by key: 1 s of waiting after the first failure, then twice as long."""

    def __init__(self) -> None:
        self._failures: dict[ActionKey, _Failure] = {}

    def waits(self, key: ActionKey, now_s: float) -> str | None:
        """Why the last try failed, while the next one has to wait; otherwise None."""
        failure = self._failures.get(key)
        return failure.reason if failure is not None and now_s < failure.until_s else None

    def failed(self, key: ActionKey, reason: str, now_s: float) -> bool:
        """Note a failure; return whether its reason is news."""
        before = self._failures.get(key)
        count = before.count if before else 0
        wait_s = min(FIRST_S * 2.0 ** min(count, 30), LONGEST_S)
        self._failures[key] = _Failure(count + 1, reason, now_s + wait_s)
        return before is None or before.reason != reason

    def succeeded(self, key: ActionKey) -> None:
        self._failures.pop(key, None)

    def forget(self, gone: Callable[[ActionKey], bool] = lambda _: True) -> None:
        """Forget the failures of keys that are gone; without an argument, all of them."""
        for key in [key for key in self._failures if gone(key)]:
            del self._failures[key]
