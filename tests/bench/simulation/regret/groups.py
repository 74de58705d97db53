"""On which queries accuracy is lost against the bound: ``python -m
tests.bench.simulation.regret.groups``.

The parts of ``tests.bench.simulation.regret.parts`` that queries in time have, by groups of them:
the kind of device and the variant that answered, how many rows its batch had, what a millisecond of
the dearest kind was worth at the bound's prices while the query waited, how much its task is asked
for, and when it came. Means of the draws; a few seconds a draw, and nothing depends on the machine.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from planner.bounds.windows import Floats
from planner.simulate import simulate
from planner.simulation.trace import Trace
from planner.types import Objective
from tests.bench.simulation.cases import Case, made
from tests.bench.simulation.policies import setting_of
from tests.bench.simulation.regret.draws import draws_of, draws_parser
from tests.bench.simulation.regret.parts import Answer, Priced, answers, recorded

OPENING_S = 40.0
"""The quiet beginning of a draw, and the rise to all of its rate."""
DEAR = 0.3
"""Part of the highest price from which on time is dear."""


class Groups:
    """Tells for an answer which groups it belongs to."""

    def __init__(self, priced: Priced, trace: Trace) -> None:
        self._trace = trace
        asked = np.bincount(np.asarray(trace.task), minlength=len(trace.tasks))
        self._rank = np.argsort(np.argsort(-asked))
        self._price: Floats = np.max(priced.least, axis=0)

    def of(self, answer: Answer) -> Iterator[str]:
        """The names of its groups, one of each way to group."""
        kind, (_, variant) = answer.ran.option
        rows = len(answer.ran.queries)
        yield f"answered on {kind} devices"
        yield f"by {variant} on {kind} devices"
        yield f"in batches of {rows if rows < 8 else '8 or more'} on {kind} devices"
        price, most = self._price[answer.number], self._price.max()
        yield "time " + ("dear" if price > DEAR * most else "cheap" if price > 0.0 else "free")
        rank = int(self._rank[self._trace.task[answer.number]])
        last = min(rank // 3 * 3 + 3, len(self._rank))
        yield f"tasks {rank // 3 * 3 + 1} to {last} by rate"
        early = self._trace.arrival_s[answer.number] < OPENING_S
        yield "came in the beginning" if early else "came later"


def main() -> None:
    given = draws_parser(__doc__).parse_args()
    numbers = draws_of(given)
    found: dict[str, Floats] = defaultdict(lambda: np.zeros(4))
    for number in numbers:
        case = Case(catalog="draws", workload=f"draw-{number:02}", seed=given.seed)
        setting, trace = setting_of(case, Objective.ACCURACY), made(case)[2].trace
        with recorded() as ran:
            report = simulate(setting, trace, "modelless", clock=lambda: 0.0)
        priced = Priced(setting, trace, report.in_time)
        groups = Groups(priced, trace)
        for answer in answers(priced, trace, ran):
            what = np.array((1.0, answer.option, answer.batch, answer.moment))
            for name in groups.of(answer):
                found[name] += what / report.in_time / len(numbers)
    print("| queries | of all | option | batch | moment |\n|---|--:|--:|--:|--:|")
    for name in sorted(found):
        part, *lost = found[name]  # rounding may leave less than nothing
        print(
            f"| {name} | {part:.1%} | "
            + " | ".join(f"{max(0.0, each):.4f}" for each in lost)
            + " |"
        )


if __name__ == "__main__":
    main()
