"""Whether a canary is worse than the live versions, as good, or not known well enough yet.

Three shares are compared: of queries that failed, of queries that were late, and of rows that were
wrong, as clients have said. Each has a confidence sequence at both arms (``sequences``), and all
six of them hold at all times with probability ``1 - ERROR``. So it is the chance that a canary that
is no worse is ever called worse, and that one that is worse by more than the margin is ever called
good, however often one looks.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from planner.canary.sequences import bounds
from variants.figures import apart, percent

ERROR = 0.05
"""The chance of a wrong verdict, over all looks."""
MARGIN = 0.02
"""A good canary is shown to be worse by no more than this, in each of the shares: 2 points."""
_COMPARED = 3


class Verdict(StrEnum):
    """What the evidence shows."""

    WORSE = "worse"
    GOOD = "good"
    NOT_YET = "not_yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How queries ended at a canary, or at the live versions of its task."""

    in_time: int = 0
    late: int = 0
    failed: int = 0
    answers: int = 0
    latency_ms: float = 0.0
    """The sum over the answers."""
    right: int = 0
    wrong: int = 0

    @property
    def queries(self) -> int:
        return self.in_time + self.late + self.failed

    @property
    def judged(self) -> int:
        """Rows of which clients have said which class was right."""
        return self.right + self.wrong

    @property
    def mean_ms(self) -> float | None:
        """The mean latency of the answers."""
        return self.latency_ms / self.answers if self.answers else None

    @property
    def accuracy(self) -> float | None:
        """By what clients have said."""
        return self.right / self.judged if self.judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was counted since a canary has its share."""

    canary: Counts = Counts()
    live: Counts = Counts()
    not_diverted: Mapping[str, int] = field(default_factory=dict)
    """Queries that were drawn and answered as always, by why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A verdict with its numbers."""

    verdict: Verdict
    words: str
    """One sentence."""


def evidence_of(counted: Iterable[Mapping[str, Any]]) -> Evidence:
    """The sum of what gateways have counted."""
    counted = list(counted)
    kept_back: dict[str, int] = {}
    for one in counted:
        for why, count in one["not_diverted"].items():
            kept_back[why] = kept_back.get(why, 0) + count
    return Evidence(
        canary=_sum(one["canary"] for one in counted),
        live=_sum(one["live"] for one in counted),
        not_diverted=kept_back,
    )


def judge(evidence: Evidence, after: int) -> Judgement:
    """What the evidence shows of a canary.

    Args:
        after: queries that have to have been diverted before it can be good.
    """
    shares = list(_shares(evidence))
    said = "; ".join(share.words for share in shares if share.known)
    diverted = evidence.canary.queries
    counted = f"{diverted:,} of {after:,}" if diverted < after else f"{diverted:,}"
    begin = f"{counted} queries were diverted"
    if worse := [share for share in shares if share.is_worse]:
        return Judgement(verdict=Verdict.WORSE, words=f"{_and(worse)}; {begin}")
    unsure = [share for share in shares if share.known and not share.is_as_good]
    words = f"{begin}: {said}" if said else begin
    if diverted >= after and not unsure:
        return Judgement(verdict=Verdict.GOOD, words=words)
    if diverted >= after:
        names = " and ".join(share.name for share in unsure)
        words += f"; not known well enough yet: {names}"
    return Judgement(verdict=Verdict.NOT_YET, words=words)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """One share at the canary and beside it, the higher the worse."""

    name: str
    count: int
    of: int
    beside: int
    beside_of: int
    known: bool

    @property
    def is_worse(self) -> bool:
        return self._own[0] > self._beside[1]

    @property
    def is_as_good(self) -> bool:
        return self._own[1] <= self._beside[0] + MARGIN

    @property
    def words(self) -> str:
        own, beside = _percent(self.count, self.of), _percent(self.beside, self.beside_of)
        return f"{self.name} {own}, beside {beside} at the live versions"

    @property
    def why_worse(self) -> str:
        least, most = apart(100 * self._own[0], 100 * self._beside[1])
        return f"{self.words}; that is at least {least} % beside at most {most} %, chance included"

    @property
    def _own(self) -> tuple[float, float]:
        return bounds(self.count, self.of, ERROR / (2 * _COMPARED))

    @property
    def _beside(self) -> tuple[float, float]:
        return bounds(self.beside, self.beside_of, ERROR / (2 * _COMPARED))


def _shares(evidence: Evidence) -> Iterator[_Share]:
    own, live = evidence.canary, evidence.live
    for name, count, beside in (
        ("failed", own.failed, live.failed),
        ("late", own.late, live.late),
    ):
        yield _Share(
            name=name, count=count, of=own.queries, beside=beside, beside_of=live.queries,
            known=own.queries > 0,
        )  # fmt: skip
    yield _Share(
        name="wrong", count=own.wrong, of=own.judged, beside=live.wrong, beside_of=live.judged,
        known=own.judged > 0 and live.judged > 0,
    )  # fmt: skip


def _sum(counted: Iterable[Mapping[str, Any]]) -> Counts:
    totals: dict[str, Any] = dict.fromkeys(Counts.__dataclass_fields__, 0)
    for one in counted:
        for name in totals:
            totals[name] += one.get(name, 0)  # one of another release may not count all
    return Counts(**totals)


def _and(shares: Iterable[_Share]) -> str:
    return "; ".join(share.why_worse for share in shares)


def _percent(count: int, of: int) -> str:
    return f"{percent(count / of)} % of {of:,}" if of else "none"
