"""An upgrade that is interrupted or killed at any moment goes on when it is run again."""

import contextlib
from collections.abc import Callable, Collection

import pytest

from controlplane.cluster.replicas import Deployment
from controlplane.live_state.state import REPLACING_TTL_S
from tests.controlplane.startup.played import NEW, OLD, Killed, Played, upgrade, workers


@pytest.mark.parametrize("room", [0, 1])
def test_interrupted_at_any_moment_it_goes_on_when_it_is_run_again(room: int) -> None:
    for moment in range(1, 30):
        played = Played({"o1": OLD, "o2": OLD}, room=room, interrupt_at_s=moment / 2)
        parts = workers(played)
        interrupted: Callable[[], None] = lambda: upgrade(played).run(parts)  # noqa: B023, E731
        try:
            interrupted()
        except KeyboardInterrupt:
            assert played.extra is False
            played.pause(5.0)
            interrupted()
        assert set(played.running.values()) == {NEW}, moment
        assert (len(played.running), played.fewest >= 1) == (2, True), moment


class SlowToLeave(Played):
    """The only replica serves on for three seconds after it was asked to leave. Where one is too
    many, Serve ends what has not started, and else the new one."""

    leaving: float | None = None

    def hold(self, extra: Collection[str]) -> None:
        if self.extra and not extra and self.coming:
            self.coming.pop()
            self.extra = False
        else:
            super().hold(extra)

    def leave(self, deployment: Deployment, replica: str) -> bool:
        self.leaving = self.leaving or self.now_s + 3
        return True

    def pause(self, seconds: float) -> None:
        if self.leaving is not None and self.now_s >= self.leaving and "o1" in self.running:
            del self.running["o1"], self.held["o1"]
            self._start()
        super().pause(seconds)


def test_interrupted_at_any_moment_one_serves() -> None:
    """The one more is not ended while the other is on its way out."""
    for moment in range(1, 30):
        played = SlowToLeave({"o1": OLD}, room=1, interrupt_at_s=moment / 2)
        with contextlib.suppress(KeyboardInterrupt):
            upgrade(played).run(workers(played))
        assert played.extra is False
        played.interrupt_at_s = 1e9
        for _ in range(60):
            played.pause(0.5)
        assert (len(played.running), played.extra, played.fewest >= 1) == (1, False, True), moment


def test_interrupted_twice_the_one_more_ends_by_itself() -> None:
    played = SlowToLeave({"o1": OLD}, room=1, interrupt_at_s=1e9)

    def impatient(sentence: str) -> None:
        if sentence.endswith(("w-o1 leaves", "for its successor")):
            played.interrupt_at_s = 0.0

    replacing = upgrade(played, say=impatient)
    with pytest.raises(KeyboardInterrupt):
        replacing.run(workers(played))
    assert (played.extra, "o1" in played.running) == (True, True)
    for _ in range(60):
        played.pause(0.5)
    assert (len(played.running), played.extra, played.fewest >= 1) == (1, False, True)


@pytest.mark.parametrize("later_s", [0.0, 5.0, REPLACING_TTL_S - 0.5, REPLACING_TTL_S + 5.0])
@pytest.mark.parametrize("count", [1, 2])
def test_killed_at_any_moment_it_goes_on_when_it_is_run_again(count: int, later_s: float) -> None:
    """The one more that the killed one had started runs on for a while, and no other comes."""
    for half in range(1, 60):
        played = Played({f"o{n}": OLD for n in range(count)}, room=1)
        played.kill_at_s = played.now_s + half / 2
        with contextlib.suppress(Killed):
            upgrade(played).run(workers(played))
        played.dead, played.kill_at_s = False, 1e9
        until_s = played.now_s + later_s
        while played.now_s < until_s:
            played.pause(0.5)
        upgrade(played).run(workers(played))
        assert set(played.running.values()) == {NEW}, half
        while played.extra:  # where all was new already, it ends by itself
            played.pause(0.5)
        assert len(played.running) == count, half
        assert played.fewest >= 1, half
