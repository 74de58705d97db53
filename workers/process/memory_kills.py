"""How many processes the kernel of this machine has killed for want of memory."""

from pathlib import Path

COUNTERS = Path("/proc/vmstat")


def memory_kills(counters: Path = COUNTERS) -> int:
    """The kernel's count; 0 where it does not tell. Takes about 0.1 ms."""
    return known_memory_kills(counters) or 0


def known_memory_kills(counters: Path = COUNTERS) -> int | None:
    """The kernel's count; ``None`` where it does not tell."""
    try:
        text = counters.read_text()
    except OSError:
        return None
    begin = text.find("\noom_kill ")
    return int(text[begin + 10 : text.index("\n", begin + 10)]) if begin >= 0 else None
