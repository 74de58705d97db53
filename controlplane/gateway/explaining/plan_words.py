"""What the plan says of a query: which variants its routes lead to, and that in a sentence."""

from dataclasses import dataclass

from planner.selection.routes import RouteTable
from planner.selection.select import suited
from planner.types import Choice, Query, Reason, Refusal, Snapshot
from variants.figures import percent, some_of
from variants.types import Canary, Prefer, VariantName

NAMED = 3
"""Variants of the plan that a sentence names."""
GOING = "they go where they are done first"
"""Queries without room where the plan would have them."""
SILENT = "says nothing of such queries"
"""What a plan does that has no place for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAnswers:
    """What answers such queries where they follow routes; empty where they follow none."""

    variants: tuple[VariantName, ...] = ()
    """Those to which the plan sends them, those that come first first."""
    without_room: tuple[VariantName, ...] = ()
    """Others that answer them where there is no room."""
    qps: float = 0.0
    """Rows per second that the plan expects."""


def planned_answers(routes: RouteTable, query: Query) -> PlannedAnswers:
    """What a plan for cost or energy has for a query."""
    if not routes.used or routes.prefer is Prefer.ACCURACY or query.of_some_versions:
        return PlannedAnswers()
    targets = routes.targets(query)
    planned = tuple([target for target in targets if not target.last]) or targets
    variants = dict.fromkeys(one.variant for target in planned for one in target.candidates)
    last = dict.fromkeys(one.variant for target in targets[-1:] for one in target.candidates)
    return PlannedAnswers(
        variants=tuple(variants),
        without_room=tuple([name for name in last if name not in variants]),
        qps=sum(target.bounds[-1] for target in planned),
    )


def plan_words(
    snapshot: Snapshot,
    routes: RouteTable,
    query: Query,
    found: Choice | Refusal,
    planned: PlannedAnswers,
) -> str:
    """Whether a query follows the plan, in a sentence.

    Args:
        found: what selection gives for it now.
        planned: what answers it by the routes.
    """
    if query.variant is not None:
        return "The query names its variant, so the plan has no say."
    if query.of_some_versions:
        best = suited(snapshot, query)
        counted = "" if best is None else f", and plans count them for {best.variant}"
        if query.version is not None:
            return (
                "The query names its version: such queries take what they prefer of its variants"
                f"{counted}."
            )
        return (
            f"Not every model holds this: such queries take what they prefer of what fits{counted}."
        )
    if not routes.used:
        return "The plan has no routes, as nothing was asked: queries take the best of what fits."
    if query.prefer is not routes.prefer:
        return (
            f"Plans are made for {routes.prefer}, and the query prefers {query.prefer}: it follows "
            "none of them."
        )
    if routes.prefer is Prefer.ACCURACY:
        follows = routes.offers(query) is not None
        names = "what it gains in accuracy against what its time costs" if follows else ""
    else:
        names = some_of(planned.variants, NAMED)
    says = "weighs for" if routes.prefer is Prefer.ACCURACY else "sends"
    to = "" if routes.prefer is Prefer.ACCURACY else "to "
    if isinstance(found, Choice) and Reason(found.reason) is Reason.EARLIEST_COMPLETION:
        if not names:
            return f"The plan {SILENT}: while others are refused, {GOING}."
        return f"The plan {says} such queries {to}{names}; there is no room now: {GOING}."
    if not names:
        return f"The plan {SILENT}: they take what they prefer of what fits."
    quickest = some_of(planned.without_room, NAMED)
    full = f", and where there is no room to {quickest}" if quickest else ""
    return f"The plan {says} such queries {to}{names}{full}."


def canary_words(canary: Canary | None) -> str:
    """What a canary's share means for a query, as a sentence behind another one."""
    if canary is None:
        return ""
    share = f"{percent(canary.share)} %"
    return (
        f" Of such queries {share} go to {canary.label} instead, a canary, where it is loaded and"
        " predicted to meet the SLO."
    )
