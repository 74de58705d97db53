"""How much more than is asked now the workers could serve, as people are told it."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field

from controlplane.views.schemas import Schema

MOST = 10.0
"""Further than this is not looked (``planner.headroom.growth.MOST``, which gateways do not import:
it comes with the solver)."""
UNSURE = 0.15
"""A sentence says how sure it is where that is more."""
FEW = 3
"""Tasks that a sentence names."""


class TaskHeadroom(Schema):
    """What one task could be asked, while the others stay as they are."""

    task: str
    asked_qps: float = Field(description="Rows per second, lately.", examples=[120.0])
    factor: float = Field(
        description="Times that; 10 stands for 10 and more, 0 for less than a sixteenth.",
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
    def of(cls, told: Mapping[str, Any] | None) -> Self | None:
        """From what the control loop tells; None where it tells nothing."""
        if not told:
            return None
        tasks = [TaskHeadroom(**one) for one in told["tasks"]]
        factor, error = told["factor"], told.get("error", 0.0)
        words = sentence(factor, tasks, error)
        return cls(factor=factor, error=error, tasks=tasks, sentence=words)


def sentence(factor: float, tasks: list[TaskHeadroom], error: float = 0.0) -> str:
    """How much more could be asked, in words."""
    if factor >= MOST:
        words = f"The workers could serve {MOST:.0f} times what is asked now, or more"
    elif factor >= 1.0:
        words = f"The workers could serve {factor:.1f} times what is asked now"
    elif factor:
        words = f"The workers can serve {100 * factor:.0f} % of what is asked now"
    else:
        words = "The workers can serve hardly anything of what is asked now"
    if error > UNSURE and 0.0 < factor < MOST:
        words += f", give or take {100 * error:.0f} % while few batches follow on one another"
    scarce = sorted((one for one in tasks if one.factor < MOST), key=lambda one: one.factor)
    if len(tasks) > 1 and scarce:
        named = ", ".join(f"{one.task} {one.factor:.1f} times" for one in scarce[:FEW])
        words += f"; of one task alone: {named}"
    return f"{words}."
