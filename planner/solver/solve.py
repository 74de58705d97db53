"""Solving a planning problem: an answer at once, then a better one, with what is proven.

Best fit answers first and always. Small problems are then solved exactly over configurations, large
ones by the aggregated relaxation and packing, and by column generation where that leaves a gap. The
relaxations bound what is not solved exactly.
"""

from collections.abc import Callable
from math import fsum, inf

from planner.solver.columns.dive import generated
from planner.solver.configurations import configurations
from planner.solver.exact import exact as exactly
from planner.solver.greedy import greedy, plan
from planner.solver.milp import Answer
from planner.solver.options import CLOSE, Options
from planner.solver.partial_solution import PartialSolution, better, finish, nothing
from planner.solver.power import by_power
from planner.solver.problem import Clock, Planner, Problem, Solution
from planner.solver.relaxation.aggregate import ENOUGH, NEAR, NODES, aggregated
from planner.solver.relaxation.bound import Relaxation
from planner.solver.relaxation.interference import apart_or_together
from planner.types import Objective

SMALL = 2_500
"""Options summed over configurations up to which a problem is solved exactly."""
FEW = 240
"""Options of the relaxation, up to which configurations are listed at all."""
TINY = 600
"""Options of the relaxation, up to which the search goes on to its end."""
NODES_TINY = 20_000
NODES_SMALL = 50
WIDE = 0.01
"""A gap above which columns are generated where sharing a device is limited by more than time. What
is asked for; packing is mostly below it."""
FAR = 0.02
"""A gap above which packing is not tried anew there, because columns close it and it does not."""
LAST_S = 0.05
"""What a bound may still take when time is up."""


def solve(
    problem: Problem,
    objective: Objective,
    *,
    clock: Clock,
    time_limit_s: float,
    exact: bool = True,
) -> Solution:
    """The best plan found within the limit, with its bound; it always answers.

    The same problem gives the same solution unless ``timed_out``.

    Args:
        problem: what is offered and asked for.
        objective: cost, accuracy or energy, once as much as possible is served.
        clock: seconds on a monotonic clock.
        time_limit_s: when the limit cuts in, the solution says ``timed_out``.
        exact: without it the search ends once the relaxation is packed, for a control loop, which
            plans again soon.
    """
    if objective is Objective.ENERGY:
        priced = by_power(problem)
        found = solve(
            priced.problem, Objective.COST, clock=clock, time_limit_s=time_limit_s, exact=exact
        )
        return priced.restored(found)
    until = clock() + time_limit_s
    options = Options(problem)
    if problem.least_accuracy is not None and not _hopeful(options, objective):
        return nothing(options, objective)
    search = _Search(options, objective, lambda: until - clock())
    if problem.least_accuracy is not None and not search.may_reach(problem.least_accuracy):
        return nothing(options, objective)
    search.fit()
    if not search.out_of_time:
        search.pack(far=FAR if exact else inf)
    if exact and not search.out_of_time and not search.near:
        search.prove()
    return search.solution()


def _hopeful(options: Options, objective: Objective) -> bool:
    """Whether a plan may serve everything as accurately as it has to; quickly, without solving
    anything."""
    least = options.problem.least_accuracy
    if not options.has_time:
        return False
    if least is None or objective is not Objective.ACCURACY:
        return True
    return options.most_accuracy >= least * (1 - CLOSE)


class _Search:
    """The best plan and the best bounds so far."""

    __slots__ = (
        "_bound",
        "_bounded",
        "_relaxed_answer",
        "best",
        "left",
        "notes",
        "objective",
        "options",
        "relaxation",
    )

    def __init__(self, options: Options, objective: Objective, left: Callable[[], float]) -> None:
        self.left = left
        self.objective = objective
        self.options = options
        self.notes: list[str] = []
        self.best = PartialSolution(self.options)
        self.relaxation = Relaxation(self.options, objective)
        self._bound = self._nothing
        """Least USD per hour, or the largest sum of rate x accuracy."""
        self._relaxed_answer: Answer | None = None
        """The relaxation's best that serves all, where that was asked for."""
        self._bounded = inf
        """What plans serve at least that the bound is about, in queries per second."""

    @property
    def _nothing(self) -> float:
        """The bound that says nothing."""
        return 0.0 if self.objective is Objective.COST else inf

    @property
    def out_of_time(self) -> bool:
        return self.left() <= 0

    def offer(self, partial: PartialSolution | None, note: str) -> None:
        """Keep a plan if it is the best so far."""
        if partial is not None and better(partial, self.best, self.objective):
            self.best = partial
            self.notes.append(note)

    def learn(self, bound: float, served_qps: float) -> None:
        """Keep a bound if it is about plans like the best one, and the tightest so far."""
        if self.objective is Objective.COST:
            bound = max(bound, self._nothing)  # minus infinity where a search learned nothing
        if self._bounded > served_qps or bound == self._nothing:
            self._bound, self._bounded = bound, served_qps
        elif self.objective is Objective.COST:
            self._bound = max(self._bound, bound)
        else:
            self._bound = min(self._bound, bound)

    def may_reach(self, accuracy: float) -> bool:
        """Whether a plan may serve everything at least as accurately, by the relaxation."""
        answer = self.relaxation.most_accurate(self.options.reachable_qps, time_limit_s=self.left)
        self._relaxed_answer = answer
        if answer.optimal:
            self.options.learn_prices(self.relaxation.prices(answer))
        short = answer.optimal and answer.bound < accuracy * (1 - CLOSE)
        return not (answer.infeasible or short)

    def fit(self) -> None:
        """Find a first plan by best fit."""
        found = plan(self.options, self.objective, lambda: self.out_of_time, quick=True)
        self.offer(found, "best fit")

    def pack(self, far: float) -> None:
        """Solve the relaxation and pack it onto devices.

        ``far`` is the gap above which packing is not tried anew where devices are shared.
        """
        packed = aggregated(
            self.options,
            self.relaxation,
            self.best,
            self.objective,
            left=self.left,
            far=far if self._limited else inf,
            known_answer=self._relaxed_answer,
        )
        self.offer(packed.partial, "packed from the relaxation")
        self.learn(packed.bound, packed.served_qps)

    @property
    def near(self) -> bool:
        """Whether what could still be gained is not worth looking for."""
        if len(self.relaxation.columns) <= FEW:
            return False
        return self.gap <= NEAR

    @property
    def gap(self) -> float:
        """Relative gap between the best plan and its bound."""
        bound = self.bound()
        cost = self.objective is Objective.COST
        reached = self.best.usd_per_hour if cost else self.best.weighed
        bound = bound if cost else bound * self.best.served_qps
        return abs(reached - bound) / max(reached, 1e-9)

    def prove(self) -> None:
        """Search all configurations if they can be listed; otherwise improve by best fit.

        Configurations and columns know only what devices cost, not what runs on them.
        """
        few = len(self.relaxation.columns) <= FEW and not self.options.has_work
        listed = configurations(self.options, self.objective, most=SMALL) if few else None
        size = sum(len(found.batches) for found in listed or ())
        if listed is not None and (size <= TINY or self.gap > NEAR):
            nodes = NODES_TINY if size <= TINY else NODES_SMALL
            found = exactly(self.options, listed, self.objective, left=self.left, nodes=nodes)
            self.offer(found.partial, "exact over configurations")
            self.learn(found.bound, found.served_qps)
            if found.proven or self.out_of_time:
                return
        if self._shares_devices and self.gap > WIDE and not self._binds:
            partial, bound = apart_or_together(self.options, left=self.left)
            self.offer(partial, "packed apart or together")
            if bound > 0:
                self.learn(bound, self.options.reachable_qps)
        if self._shares_devices and self.gap > WIDE:
            partial, bound = generated(self.options, self.best, left=self.left)
            self.offer(partial, "dived from generated columns")
            self.learn(bound, self.options.reachable_qps)
        if self.gap > ENOUGH:
            found_by_hand = plan(self.options, self.objective, lambda: self.out_of_time)
            self.offer(found_by_hand, "best fit, improved")

    @property
    def _shares_devices(self) -> bool:
        """Whether all that can be is served, at a cost that sharing devices has a part in."""
        served = self.best.served_qps >= self.options.reachable_qps * (1 - 1e-9)
        return served and self._limited and not self.out_of_time

    @property
    def _limited(self) -> bool:
        """Whether only cost counts, and something else than time limits sharing devices."""
        options = self.options
        if options.has_work or self.objective is not Objective.COST:
            return False
        return self._binds or any(
            options.slowdown(kind, 2) > 1 for kind in range(len(options.counts))
        )

    @property
    def _binds(self) -> bool:
        """Whether memory may limit what is on a device."""
        return any(self.options.binds(kind) for kind in range(len(self.options.counts)))

    def bound(self) -> float:
        """What no plan that serves as much as the best one can beat: USD per hour, or accuracy."""
        served = self.best.served_qps
        if served <= 0:
            return 0.0
        if self._bounded > served * (1 + 1e-9) or self._bound == self._nothing:
            self._bound = self._relaxed(served)
        return self._bound if self.objective is Objective.COST else self._bound / served

    def _relaxed(self, served_qps: float) -> float:
        def left() -> float:
            return max(self.left(), LAST_S)

        if self.objective is Objective.COST:
            cheapest = self.relaxation.least_cost(
                served_qps, time_limit_s=left, gap=NEAR, nodes=NODES
            )
            return cheapest.bound if 0 < cheapest.bound < inf else 0.0
        answer = self.relaxation.most_accurate(served_qps, time_limit_s=left)
        if answer.optimal:
            return answer.bound * fsum(self.options.rates)
        best = [
            max((self.options.all[i].accuracy for i in found), default=0.0)
            for found in self.options.of_class
        ]
        return fsum(rate * a for rate, a in zip(self.options.rates, best, strict=True))

    def solution(self) -> Solution:
        late = self.out_of_time
        return finish(
            self.best, self.objective, bound=self.bound(), timed_out=late, notes=self.notes
        )


def within(limit_s: float, clock: Clock) -> Planner:
    """A planner for one turn of a control loop: its searches take no longer than this together.

    When time is up, and with no time at all, best fit answers alone.
    """
    until = clock() + limit_s

    def planner(problem: Problem, objective: Objective) -> Solution:
        left_s = until - clock()
        if left_s <= 0:
            return greedy(problem, objective)
        return solve(problem, objective, clock=clock, time_limit_s=left_s, exact=False)

    return planner
