"""How long the gateway waits for a client: for the head of a request, for its body, for the next.

A sweep looks at every connection about once a second and says what it is doing. ``Watch`` remembers
since when, and gives a verdict once that has lasted too long. No request needs a timer of its own,
and time in which the client waits for the gateway is never counted.
"""

from dataclasses import dataclass
from enum import Enum, auto


class Phase(Enum):
    """What a connection is doing."""

    OURS = auto()
    """It waits for the gateway: for an answer, or until the gateway reads on."""
    HEAD = auto()
    """The first byte of a request has come, and not the whole of its headers."""
    BODY = auto()
    IDLE = auto()
    UNREAD = auto()
    """Answers wait until the client takes them."""
    ENDING = auto()
    """It is closed, and what was written is on its way."""


class Verdict(Enum):
    """What to do with a connection whose client keeps the gateway waiting."""

    LATE_HEAD = auto()
    """Answer that the headers have not come in time, and close."""
    SLOW_BODY = auto()
    """Answer that the body comes too slowly, and close."""
    CLOSE = auto()
    ABORT = auto()
    """Close at once: nothing that was written will be taken any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of one gateway."""

    head_s: float = 10.0
    """From the first byte of a request to the end of its headers; a TLS handshake has as long."""
    least_bytes_per_s: float = 1024.0
    """Of a body, over each window."""
    window_s: float = 10.0
    grace_s: float = 5.0
    """What the first window is longer by."""
    idle_s: float = 75.0
    """Without a request."""
    unread_s: float = 75.0
    """Without taking what was answered."""
    ending_s: float = 10.0
    """From closing a connection to taking the last byte that was written."""
    sweep_s: float = 1.0
    """Period of the sweep."""

    def sentence(self, verdict: Verdict) -> str:
        """What is wrong with a request that does not come in full, as part of a sentence."""
        if verdict is Verdict.LATE_HEAD:
            return f"its headers have not come in full within {self.head_s:,g} s"
        return f"its body comes more slowly than {self.least_bytes_per_s:,g} bytes per second"


class Watch:
    """One connection over time."""

    __slots__ = ("_counted", "_due_ms", "_key", "_looked_ms", "_since_ms")

    def __init__(self) -> None:
        self._key: tuple[Phase, float] | None = None
        self._looked_ms = self._since_ms = self._due_ms = 0.0
        self._counted = 0

    def look(
        self, phase: Phase, mark: float, received: int, now_ms: float, limits: ClientLimits
    ) -> Verdict | None:
        """What to do with a connection that is in this phase now.

        Args:
            mark: when the request began, in ms; while answers are unread, bytes that are left. What
                has another mark than at the last look has moved on.
            received: bytes that have come on the connection in all.
        """
        key, before = (phase, mark), self._looked_ms
        self._looked_ms = now_ms
        if key != self._key:
            self._key = key
            # A head may have begun since the last look. One that began before was not read then.
            self._since_ms = max(mark, before) if phase is Phase.HEAD else now_ms
            self._counted = received
            self._due_ms = now_ms + 1000 * (limits.grace_s + limits.window_s)
        for_s = (now_ms - self._since_ms) / 1000
        match phase:
            case Phase.HEAD:
                return Verdict.LATE_HEAD if for_s > limits.head_s else None
            case Phase.BODY if now_ms >= self._due_ms:
                return self._judge(received, now_ms, limits)
            case Phase.IDLE:
                return Verdict.CLOSE if for_s > limits.idle_s else None
            case Phase.UNREAD:
                return Verdict.ABORT if for_s > limits.unread_s else None
            case Phase.ENDING:
                return Verdict.ABORT if for_s > limits.ending_s else None
        return None

    def _judge(self, received: int, now_ms: float, limits: ClientLimits) -> Verdict | None:
        """At the end of a window: whether enough of the body has come; then the next begins."""
        came, self._counted = received - self._counted, received
        self._due_ms = now_ms + 1000 * limits.window_s
        if came < limits.least_bytes_per_s * limits.window_s:
            return Verdict.SLOW_BODY
        return None
