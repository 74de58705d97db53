"""What a change of layouts may not take longer than, and what was tried in vain.

The one thing that is remembered from turn to turn: a tick sees that workers of two layouts run, not
for how long they have.
"""

from collections.abc import Mapping

from planner.layouts import Layout, words
from variants.types import DeviceKindName

LIMIT_S = 180.0
"""A change that takes longer is given up: some starts and loads. Both layouts share the cores for
as long."""
AGAIN_S = 900.0
"""A layout that was given up is not tried again for so long, and for twice as long each time after
that."""
LONGEST_S = 86_400.0


class ChangeLimits:
    """Sees how the machine is split, turn by turn."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._begun_s: float | None = None
        self._split_at_s: float | None = None
        self._refused: list[tuple[Layout, float, float]] = []
        """Layouts, until when, and for how long that was."""

    def look(
        self,
        now_s: float,
        planned: Layout | None,
        running: Mapping[DeviceKindName, int],
    ) -> str:
        """Take in the layout that is planned and the workers that were told to run.

        Returns:
            A sentence, where a change is given up now.
        """
        if not planned:
            return ""
        if self._layout is not None and planned != self._layout:
            self._split_at_s, self._begun_s = now_s, None
        self._layout = dict(planned)
        if all(count <= planned.get(kind, 0) for kind, count in running.items()):
            self._begun_s = None
            return ""
        if self._begun_s is None:
            self._begun_s = now_s
        if now_s - self._begun_s < LIMIT_S:
            return ""
        self._begun_s = None
        before = next((took for one, _, took in self._refused if one == planned), AGAIN_S / 2)
        for_s = min(2 * before, LONGEST_S)
        self._refused = [each for each in self._refused if each[0] != planned]
        self._refused.append((self._layout, now_s + for_s, for_s))
        return (
            f"{words(planned)} could not take over within {LIMIT_S:,.0f} s: its workers did not "
            f"all come and load what the others have ready; it is tried again after {for_s:,.0f} s"
        )

    def refused(self, now_s: float) -> tuple[Layout, ...]:
        """Layouts that are not to be tried now."""
        return tuple(one for one, until_s, _ in self._refused if now_s < until_s)

    def rests(self, now_s: float, horizon_s: float) -> bool:
        """Whether the machine was split anew so lately that it is not to be again."""
        return self._split_at_s is not None and now_s - self._split_at_s < horizon_s
