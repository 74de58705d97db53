"""Sessions by what they are made of, each made once and dropped with its last user."""

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any


class SharedSessions:
    """Those that are open in this process. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._sessions: dict[Hashable, Any] = {}
        self._users: dict[Hashable, int] = {}

    def take(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The session of a key, made if there is none; ``leave`` has to follow.

        What ``make`` raises leaves nothing behind. Others wait for it: who makes the same would
        hold its weights twice meanwhile.
        """
        with self._lock:
            if key not in self._sessions:
                self._sessions[key] = make()
            self._users[key] = self._users.get(key, 0) + 1
            return self._sessions[key]

    def leave(self, key: Hashable) -> None:
        """Use a session no more. The last one to leave drops it."""
        with self._lock:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._sessions[key]


OPEN = SharedSessions()
"""Of this process."""
