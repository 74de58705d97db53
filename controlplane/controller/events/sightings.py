"""Sightings: gateways, catalog and live state as the control loop meets them, look by look.

A gateway tells itself that it starts or stops; that one is lost is seen from here, because it
reports no more. The live state only distributes, so its loss costs nothing but news.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from controlplane.controller.events.status_events import StatusEvent
from controlplane.live_state.state import GATEWAY_TTL_S

SILENT_S = 5.0
"""How long a gateway's report may be missing. It was kept for ``GATEWAY_TTL_S`` before; but a live
state that has just come back empty has none of them for a second or two."""


def of_cluster(
    reports: Mapping[str, Mapping[str, Any]], cluster: str
) -> dict[str, Mapping[str, Any]]:
    """The reports of the gateways of a Ray cluster. Who names none is counted among them, and so is
    everybody where the cluster is not known: there is one then."""
    return {
        id_: one
        for id_, one in reports.items()
        if not cluster or one.get("cluster", cluster) == cluster
    }


class Gateways:
    """Who reports, and who did before. Times are on one clock."""

    def __init__(self, known: Iterable[str] = (), *, elsewhere: bool = False) -> None:
        """
        Args:
            known: those that there were before.
            elsewhere: they are of another Ray cluster of this installation.
        """
        self._seen_s: dict[str, float | None] = dict.fromkeys(known)
        self._before = set(known)
        """Those that have not reported since this control loop began."""
        self._lost: set[str] = set()
        self._elsewhere = set(known) if elsewhere else set[str]()
        """Those of another Ray cluster, which ends when queries come here."""

    def look(
        self,
        here: Collection[str],
        leaving: Collection[str],
        now_s: float,
        elsewhere: Collection[str] = (),
    ) -> Iterator[StatusEvent]:
        """The events that follow from which gateways report and which said that they leave.

        Args:
            elsewhere: those of another Ray cluster of this installation.
        """
        self._elsewhere = (self._elsewhere - set(here)) | set(elsewhere)
        for id_ in leaving:
            self._seen_s.pop(id_, None)
            self._lost.discard(id_)
        for id_ in sorted(set(here) - set(leaving)):
            self._seen_s[id_] = now_s
            self._before.discard(id_)
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
                since = f"for {silent_s:,.0f} s"
                if id_ in self._before:
                    since = "since this control loop began"
                if id_ in self._elsewhere:
                    self._elsewhere.discard(id_)
                    whose = "it is of the Ray cluster whose control loop led before"
                    yield "gateway_stopped", id_, f"{whose}, and silent {since}"
                    continue
                why = f"it has not reported {since}, nor said that it stops"
                yield "gateway_lost", id_, why

    def blind(self, now_s: float) -> None:
        """The live state cannot be read: no gateway's silence counts."""
        self._seen_s = dict.fromkeys(self._seen_s, now_s)


class _Watch:
    """Whether something answers that the control loop asks."""

    lost: tuple[str, str, str]
    """Kind and subject of the event that it does not, and what goes on meanwhile."""

    def __init__(self) -> None:
        self._away_since_s: float | None = None

    def away(self, why: str, now_s: float) -> Iterator[StatusEvent]:
        """Note that it did not answer; tell that once."""
        if self._away_since_s is None:
            self._away_since_s = now_s
            kind, subject, goes_on = self.lost
            yield kind, subject, f"{why.rstrip('.')}; {goes_on}"

    def _again(self, now_s: float) -> str:
        """That it answers again, and after how long; empty where it was not away."""
        since_s, self._away_since_s = self._away_since_s, None
        return "" if since_s is None else f"it answers again after {now_s - since_s:,.0f} s"


class CatalogWatch(_Watch):
    """Whether the database answers. What it is told while it does not waits until it does."""

    lost = "catalog_lost", "catalog", "queries go on with what is loaded"

    def answered(self, now_s: float) -> Iterator[StatusEvent]:
        again = self._again(now_s)
        if again:
            yield "catalog_back", "catalog", again


class LiveWatch(_Watch):
    """Whether the live state answers, and whether it still has what was written.

    Args:
        expected: it was written to before, and has no reason to be empty.
    """

    lost = "live_state_lost", "live state", "gateways go on with the workers they know"

    def __init__(self, *, expected: bool) -> None:
        super().__init__()
        self._expected = expected

    def answered(self, *, empty: bool, now_s: float) -> Iterator[StatusEvent]:
        """Note that it answered; ``empty``: what was written before is lost."""
        again = self._again(now_s)
        emptied, self._expected = empty and self._expected, True
        if emptied:
            what = "it came back empty and was filled again"
            yield "live_state_restarted", "live state", f"{again}; {what}" if again else what
        elif again:
            yield "live_state_back", "live state", f"{again}; it has lost nothing"
