"""Sightings: gateways, catalog and live state as the control loop meets them, look by look.

A gateway tells itself that it starts or stops; that one is lost is seen from here, because it
reports no more. The live state only distributes, so its loss costs nothing but news.
"""

from collections.abc import Collection, Iterable, Iterator

from controlplane.controller.events.status_events import StatusEvent
from controlplane.live_state import GATEWAY_TTL_S

SILENT_S = 5.0
"""How long a gateway's report may be missing. It was kept for ``GATEWAY_TTL_S`` before; but a live
state that has just come back empty has none of them for a second or two."""


class Gateways:
    """Who reports, and who did before. Times are on one clock."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._seen_s: dict[str, float | None] = dict.fromkeys(known)
        self._lost: set[str] = set()

    def look(
        self, here: Collection[str], leaving: Collection[str], now_s: float
    ) -> Iterator[StatusEvent]:
        """The events that follow from which gateways report and which said that they leave."""
        for id_ in leaving:
            self._seen_s.pop(id_, None)
            self._lost.discard(id_)
        for id_ in sorted(set(here) - set(leaving)):
            self._seen_s[id_] = now_s
            if id_ in self._lost:
                self._lost.discard(id_)
                yield "gateway_returned", id_, "it reports again"
        for id_, seen_s in tuple(self._seen_s.items()):
            if seen_s is None:  # known from before: it is silent from now on
                self._seen_s[id_] = now_s
            elif now_s - seen_s > SILENT_S:
                del self._seen_s[id_]
                self._lost.add(id_)
                silent_s = GATEWAY_TTL_S + now_s - seen_s
                why = f"it has not reported for {silent_s:.0f} s, nor said that it stops"
                yield "gateway_lost", id_, why

    def blind(self, now_s: float) -> None:
        """The live state cannot be read: no gateway's silence counts."""
        self._seen_s = dict.fromkeys(self._seen_s, now_s)


class CatalogWatch:
    """Whether the database answers. What it is told while it does not waits until it does."""

    def __init__(self) -> None:
        self._away_since_s: float | None = None

    def away(self, why: str, now_s: float) -> Iterator[StatusEvent]:
        """It does not answer."""
        if self._away_since_s is None:
            self._away_since_s = now_s
            goes_on = "queries go on with what is loaded"
            yield "catalog_lost", "catalog", f"{why.rstrip('.')}; {goes_on}"

    def answered(self, now_s: float) -> Iterator[StatusEvent]:
        since_s, self._away_since_s = self._away_since_s, None
        if since_s is not None:
            yield "catalog_back", "catalog", f"it answers again after {now_s - since_s:.0f} s"


class LiveWatch:
    """Whether the live state answers, and whether it still has what was written.

    Args:
        expected: it was written to before, and has no reason to be empty.
    """

    def __init__(self, *, expected: bool) -> None:
        self._expected = expected
        self._away_since_s: float | None = None

    def away(self, why: str, now_s: float) -> Iterator[StatusEvent]:
        """It does not answer."""
        if self._away_since_s is None:
            self._away_since_s = now_s
            goes_on = "gateways go on with the workers they know"
            yield "live_state_lost", "live state", f"{why.rstrip('.')}; {goes_on}"

    def answered(self, *, empty: bool, now_s: float) -> Iterator[StatusEvent]:
        """It answers; ``empty``: what was written before is lost."""
        since_s, self._away_since_s = self._away_since_s, None
        emptied, self._expected = empty and self._expected, True
        again = "" if since_s is None else f"it answers again after {now_s - since_s:.0f} s; "
        if emptied:
            what = f"{again}it came back empty and was filled again"
            yield "live_state_restarted", "live state", what
        elif since_s is not None:
            yield "live_state_back", "live state", f"{again}it has lost nothing"
