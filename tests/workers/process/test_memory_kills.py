"""The kernel's count of processes that it killed for want of memory."""

from pathlib import Path

import pytest

from workers.process.memory_kills import known_memory_kills, memory_kills


@pytest.mark.parametrize(
    ("text", "kills"),
    [("nr_free_pages 1\noom_kill 3\nswap_ra 0\n", 3), ("oom\n", None), (None, None)],
)
def test_what_the_kernel_does_not_tell_is_not_known(
    tmp_path: Path, text: str | None, kills: int | None
) -> None:
    counters = tmp_path / "vmstat"
    if text is not None:
        counters.write_text(text)
    assert known_memory_kills(counters) == kills
    assert memory_kills(counters) == (kills or 0)
