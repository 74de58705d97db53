"""How much more than is asked now the workers could serve, as people are told it."""

from collections.abc import Mapping
from math import exp
from typing import Any, Self

from pydantic import Field

from controlplane.views.schemas import Schema, SloReport
from controlplane.views.service_status import missing
from variants.figures import counted

MOST = 10.0
"""Further than this is not looked (``planner.headroom.growth.MOST``, which gateways do not import:
it comes with the solver)."""
UNSURE = 0.15
"""A sentence says how sure it is where that is more."""
FAR = 0.5
"""From there on as many per cent more and less are far from the same."""
MORE = 1.05
"""A factor below that reads as 1.0."""
FEW = 3
"""Tasks that a sentence names."""


class TaskHeadroom(Schema):
    """What one task could be asked, while the others stay as they are."""

    task: str
    asked_qps: float = Field(description="Rows per second, lately.", examples=[120.0])
    factor: float = Field(
        description="Times that; 10 stands for 10 and more, 0 for less than a sixteenth, or where "
        "the others alone are more than the workers can serve.",
        examples=[2.6],
    )


class HeadroomSchema(Schema):
    """By which factor the demand may grow until the workers that there may be serve it no more."""

    factor: float = Field(
        description="Of all of the demand, in its present proportions; as of tasks.", examples=[1.8]
    )
    error: float = Field(
        0.0,
        description="How sure that is: the standard deviation of its logarithm that comes from "
        "not knowing well what batches take that follow on one another; 0.1 is about 10 % either "
        "way.",
        examples=[0.05],
    )
    tasks: list[TaskHeadroom] = Field(description="The busiest first, as far as there was time.")
    sentence: str

    @classmethod
    def of(
        cls,
        told: Mapping[str, Any] | None,
        report: SloReport | None = None,
        *,
        cores_short: bool = False,
    ) -> Self | None:
        """From what the control loop tells; None where it tells nothing.

        Args:
            report: how queries ended lately. Where some missed their SLO although the workers could
                serve more, the sentence says so.
            cores_short: some machine's cores are.
        """
        if not told:
            return None
        tasks = [TaskHeadroom(**one) for one in told["tasks"]]
        factor, error = told["factor"], told.get("error", 0.0)
        words = sentence(factor, tasks, error)
        if report is not None and factor >= 1.0:
            words += _all_the_same(report, cores_short=cores_short)
        return cls(factor=factor, error=error, tasks=tasks, sentence=words)


def sentence(factor: float, tasks: list[TaskHeadroom], error: float = 0.0) -> str:
    """How much more could be asked, in words."""
    if factor >= MOST:
        words = f"The workers could serve {MOST:.0f} times what is asked now, or more"
    elif factor >= MORE:
        words = f"The workers could serve {factor:.1f} times what is asked now"
    elif factor >= 1.0:
        words = "The workers can serve what is asked now, and hardly more"
    elif factor:
        words = f"The workers can serve {_percent(factor)} of what is asked now"
    else:
        words = "The workers can serve hardly anything of what is asked now"
    if error > UNSURE and 0.0 < factor < MOST:
        words += f", give or take {_spread(error)} while few batches follow on one another"
    return ". ".join([words, *_of_tasks(factor, tasks)]) + "."


def _of_tasks(factor: float, tasks: list[TaskHeadroom]) -> list[str]:
    """What it takes of one of several tasks, while the others stay as they are."""
    if len(tasks) < 2:
        return []
    if factor >= 1.0:
        scarce = sorted((one for one in tasks if one.factor < MOST), key=lambda one: one.factor)
        named = [f"{one.factor:.1f} times of {one.task}" for one in scarce[:FEW]]
        return [f"Where one task alone grows, it is {_or(named)}"] if named else []
    # Of a task that is not among these, not even nothing would leave the others enough.
    enough = sorted((one for one in tasks if one.factor), key=lambda one: -one.factor)
    named = [f"{one.task} alone fell to {_percent(one.factor)}" for one in enough[:FEW]]
    return [f"It would suffice if {_or(named)}"] if named else []


def _all_the_same(report: SloReport, *, cores_short: bool) -> str:
    """What is late or refused now, although there is room; empty where that is not so."""
    short = missing(report.outcomes_lately())
    if not short:
        return ""
    missed = sum(one.missed for _, one in short)
    asked = counted(sum(one.servable for _, one in short), "query")
    its = "its" if missed == 1 else "their"
    within = f"in the last {report.lately_s:,.0f} s"
    words = f" All the same, {missed:,} of {asked} {within} missed {its} SLO"
    if cores_short:
        words += ": this counts with cores that nothing else takes, and they are short now"
    return f"{words}."


def _or(names: list[str]) -> str:
    *before, last = names
    return f"{', '.join(before)} or {last}" if before else last


def _percent(part: float) -> str:
    """Of a part that is not all."""
    return f"{min(round(100 * part), 99)} %"


def _spread(error: float) -> str:
    return f"{100 * error:.0f} %" if error < FAR else f"a factor of {exp(error):.1f}"
