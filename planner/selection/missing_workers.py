"""Missing workers: the refusal of a query when there is no worker that could answer it.

Four cases are told apart: everything is being stopped, no worker is wanted, wanted workers have not
started, and the live state does not say where the workers are. A gateway that has only just started
is in a fifth case until it has met all workers: then its decision may still change
(``may_change``). Workers of a new kind may be there, and what could answer was not measured on it.
"""

from collections.abc import Iterable, Mapping, Sequence

from planner import sentences as explain
from planner.selection.eligibility import Circumstances, Finding, Obstacle, meets, profile_rule
from planner.types import Choice, Refusal, RefusalCode, TaskView
from planner.worker_starts import OVERDUE_MS, Wanted
from variants.figures import duration, seconds, some_of
from variants.types import DeviceKindName, VariantName

MEASURING_S = 5.0
"""When to ask again for what is yet to be measured: about what that takes, of most variants."""
NAMED = 3
"""Variants that a sentence names."""
UNLISTED_RETRY_S = 1.0
"""When to ask again while it is not known where the workers are: gateways look twice a second."""
WAITS = ", and the query has the time to wait for it"
"""Ends the message of a refusal that is ``awaited``."""
_MAY_CHANGE = frozenset({RefusalCode.NO_WORKERS, RefusalCode.COLD, RefusalCode.OVERLOADED})


def may_change(found: Choice | Refusal) -> bool:
    """Whether a decision may be another one once more workers are known.

    A variant that is ready stays ready, and an SLO that no variant can meet stays infeasible. But a
    variant that seems to be cold or crowded may be ready and idle on a worker not known yet.
    """
    return found.cold if isinstance(found, Choice) else found.code in _MAY_CHANGE


def no_workers(
    wanted: Wanted, found: Sequence[Finding], met: Circumstances, reasons: Mapping[str, str]
) -> Refusal | None:
    """The refusal of a query that only lacks a worker; None where another worker would not help.

    ``found`` has no candidate that a worker which is there could answer with.
    """
    absent = {finding.candidate.device_kind for finding in found if _lacks_its_kind(finding, met)}
    if not absent:
        return None
    kinds = wanted.kinds()
    helpful = [kind for kind in kinds if kind in absent]
    if met.kinds and not helpful:
        return None  # workers of other kinds are there, and no wanted kind could answer
    if wanted.ending:
        message = "no worker is running any more: this installation is being stopped"
        return Refusal(code=RefusalCode.NO_WORKERS, message=message, reasons=reasons)
    if met.kinds:
        return _starting(wanted, helpful, met, reasons)
    if wanted.counts is not None and not kinds:
        message = (
            "no worker is running and none is wanted: every device kind is scaled to 0 workers"
        )
        return Refusal(code=RefusalCode.NO_WORKERS, message=message, reasons=reasons)
    if wanted.counts is None or not wanted.listed:
        return Refusal(
            code=RefusalCode.NO_WORKERS,
            message=(
                "no worker is known: the live state, which lists them, does not answer"
                if not wanted.listed
                else "no worker is running, and it is not known whether one is wanted"
            ),
            reasons=reasons,
            retry_after_s=UNLISTED_RETRY_S,
        )
    return _starting(wanted, helpful or kinds, met, reasons, helps=bool(helpful))


def unmeasured(view: TaskView, met: Circumstances, reasons: Mapping[str, str]) -> Refusal | None:
    """The refusal of a query that none of what was measured on the workers' kinds answers, and
    others may, by what was measured of them on other kinds; None where there are none."""
    later = [name for name in _elsewhere(view, met) if met.unmeasured(name)]
    if not later:
        return None
    kinds = sorted({kind for name in later for kind in met.unmeasured(name)})
    are = "is" if len(later) == 1 else "are"
    return Refusal(
        code=RefusalCode.COLD,
        message=(
            f"no variant of {view.task.name!r} that was measured on {' or '.join(kinds)} meets the"
            f" SLO ({explain.asked(met.query)}); {some_of(later, NAMED)} may, and {are} yet"
            " to be measured there"
        ),
        reasons=reasons,
        retry_after_s=MEASURING_S,
    )


def unmeasurable(view: TaskView, met: Circumstances) -> str:
    """Of a query that nothing answers: what may, and could not be measured on the workers' kinds,
    and what to do; empty where there is nothing of the kind."""
    task = view.task.name
    failed = [name for name in _elsewhere(view, met) if met.failed(name)] if met.lacking else []
    if not failed:
        return ""
    first, more = failed[0], f", and {len(failed) - 1} more" if failed[1:] else ""
    return (
        f"{first} may, and {explain.not_measured(met.failed(first))}{more};"
        f" `modelless profile {task} {first}` tries again"
    )


def _elsewhere(view: TaskView, met: Circumstances) -> list[VariantName]:
    """Variants that would answer a query by what was measured of them on kinds without workers."""
    obstacle = profile_rule(met.query, met.transport_ms)
    return [
        *dict.fromkeys(
            candidate.variant
            for candidate in (view.pinned_to(met.query.variant) if met.lacking else ())
            if candidate.device_kind not in met.kinds and obstacle(candidate) is None
        )
    ]


def _lacks_its_kind(finding: Finding, met: Circumstances) -> bool:
    """Whether a worker of the candidate's kind, of which there is none, could answer the query."""
    candidate, obstacle, _ = finding
    if obstacle is not Obstacle.NO_WORKER or candidate.device_kind in met.kinds:
        return False
    return not met.kinds or meets(candidate, met.query, met.transport_ms)


def _starting(
    wanted: Wanted,
    kinds: Iterable[DeviceKindName],
    met: Circumstances,
    reasons: Mapping[str, str],
    *,
    helps: bool = True,
) -> Refusal:
    """``helps``: whether it is known that a worker of these kinds could answer."""
    kinds = list(kinds)
    counts = wanted.counts or {}
    asked = ", ".join(f"{counts[kind]} of {kind}" for kind in kinds)
    being = "is" if sum(counts[kind] for kind in kinds) == 1 else "are"
    if kinds and wanted.failed.issuperset(kinds):
        return Refusal(
            code=RefusalCode.NO_WORKERS,
            message=(
                f"no worker that could answer is running: {asked} {being} wanted and cannot be "
                "started, which is tried again and again"
            ),
            reasons=reasons,
        )
    wait_s = wanted.first_ms(kinds, met.now_ms) / 1_000
    awaited = helps and met.left_ms > 1_000 * wait_s
    overdue_ms = wanted.overdue_ms(kinds, met.now_ms)
    expected = (
        f"is overdue by {duration(overdue_ms / 1_000)}"
        if overdue_ms > OVERDUE_MS
        else f"is expected in {seconds(1_000 * wait_s)}"
    )
    return Refusal(
        code=RefusalCode.NO_WORKERS,
        message=(
            f"no worker that could answer is running: {asked} {being} wanted and being started; "
            f"the first {expected}" + (WAITS if awaited else "")
        ),
        reasons=reasons,
        retry_after_s=wanted.again_ms(kinds, met.now_ms) / 1_000,
        awaited=awaited,
    )
