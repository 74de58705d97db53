"""`modelless upgrade`: what runs is replaced by what is installed and set now, one by one.

Workers first, then gateways, then the control loop. Of each, one more is started where there is
room; it has to hold what the one holds that leaves, and a gateway has to know it. Where there is
none, one leaves while the others answer for its tasks, and the next only when its successor holds
what it held. Everything is looked at anew in each step, so that who is interrupted runs it again:
what is new already stays.
"""

import contextlib
from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import TypeVar

from controlplane.cluster.replicas import Replicas
from controlplane.cluster.start_reports import NO_ROOM
from controlplane.startup.replacing.parts import Fleet, Part
from controlplane.startup.replacing.served import Held, Serving
from variants.errors import ClusterUnavailable, Conflict, DeadlineExceeded, StateUnavailable

T = TypeVar("T")

POLL_S = 0.5
LEAVES_S = 30.0
"""How long an upgrade that is ended waits for one that leaves, and as long for its successor."""
COMES_S = 10.0
"""How long one more is waited for where one is new already: an upgrade that was killed may have
left it, and then no other comes."""
SETTLED = 4
"""So often in a row a gateway has to say it: each of them is asked now and then."""


class Upgrade:
    """Replaces part after part."""

    def __init__(
        self,
        fleet: Fleet,
        serving: Callable[[], Serving],
        hold: Callable[[Collection[str]], None],
        say: Callable[[str], None],
        clock_s: Callable[[], float],
        pause: Callable[[float], None],
        *,
        patience_s: float,
        allow_gap: bool = False,
        every: bool = False,
    ) -> None:
        """
        Args:
            hold: has the control loop run one more of each of these for some seconds.
            patience_s: how long a replacement may take to be healthy.
            allow_gap: a worker may leave although no other one answers for its tasks.
            every: what is as it is to be is replaced as well.
        """
        self._fleet = fleet
        self._serving = serving
        self._hold = hold
        self._say = say
        self._clock_s = clock_s
        self._pause = pause
        self._patience_s = patience_s
        self._allow_gap = allow_gap
        self._every = every
        self._marked: frozenset[str] = frozenset()
        """Replicas that are replaced whatever they are."""
        self._held: frozenset[str] = frozenset()
        self._unfinished: Callable[[float], None] | None = None
        """Returns when who was asked to leave is gone and its successor does its work."""
        self._idle: list[Part] = []
        """Of which none was to run."""
        self.replaced = 0

    def run(self, parts: Sequence[Part]) -> None:
        """Replace what is not as it is to be.

        Raises:
            DeadlineExceeded: a replacement did not become healthy; the others run on.
            Conflict: a worker alone answers for a task.
            ClusterUnavailable: Serve does not answer.
        """
        # All before anything leaves: what crashes meanwhile starts with the code and the settings
        # that are installed now, and would refuse those of before.
        for part in parts:
            self._renew(part)
        for part in parts:
            try:
                self._replace(part)
            except DeadlineExceeded:
                raise
            except BaseException:
                self._finish()
                raise
            finally:
                self._let_go()
        for part in self._idle:  # last: the control loop that deploys them again is a new one
            self._forget(part)

    def _renew(self, part: Part) -> None:
        """Have Serve start what is installed and set now, where a replica is missing."""
        now = self._looked(part)
        if not now.target:
            return
        next_too = self._fleet.starts(part.deployment) == part.deployment.generation
        if self._old(part, now) or not next_too or len(now.generations) < now.target:
            self._fleet.renew(part.deployment, str(self._clock_s()))

    def _forget(self, part: Part) -> None:
        """End an application of workers that starts none: the control loop deploys it anew, with
        what is installed and set now, when some are wanted."""
        if not part.forgettable or self._looked(part).target:
            return
        if self._fleet.starts(part.deployment) != part.deployment.generation:
            self._fleet.end(part.deployment)
            self._say(f"{part.words}: what starts later is of this generation")

    def _replace(self, part: Part) -> None:
        now = self._looked(part)
        if not now.target:
            self._idle.append(part)
            self._say(f"{part.words}: none is to run, and none is replaced")
            return
        self._marked = frozenset(now.generations if self._every else ())
        old = self._old(part, now)
        if not old and len(now.generations) >= now.target:
            self._say(f"{part.words}: all {len(now.generations)} are of this generation already")
            return
        count = max(now.target, len(now.generations))  # some may be missing, and start anew
        self._say(f"{part.words}: {len(old)} of {count} to be replaced")
        held = Held()
        if part.worker_prefix:
            serving = self._asked()
            held = held.union(*(serving.of(part.worker_prefix + one) for one in old))
        if old and part.extra and part.room:
            self._say(f"{part.words}: one more is started first")
            self._held = frozenset({part.extra})
            self._await_new(part, set(now.generations) - set(old), held, known_s=COMES_S)
        elif old and part.lacks:
            self._say(f"{part.words}: {part.lacks}")
        elif old and part.extra and not part.worker_prefix:
            self._leaves_others(part, now.target)
        self._until(lambda: self._complete(part), lambda: self._incomplete(part))
        while old := self._old(part, self._looked(part)):
            self._until(lambda: self._complete(part), lambda: self._incomplete(part))
            news = len(self._looked(part).generations) - len(old)
            # The one more stays in the place of the last one. Serve ends what has not started.
            self._one(part, old[0], followed=not (self._held and news >= now.target))
        if self._let_go():
            # One that took in its new configuration when they were looked at was not among them.
            self._await_surplus(part, max(now.target, len(now.generations)))

    def _leaves_others(self, part: Part, count: int) -> None:
        """
        Raises:
            Conflict: there is one, no node has room for another, and no gap is allowed.
        """
        if count < 2 and not self._allow_gap:
            raise Conflict(
                f"no node has room for one more of the {part.words}, and nobody answers while the"
                " only one is replaced: add a node for it, or accept that with --allow-gap"
            )
        self._say(
            f"{part.words}: no node has room for one more, so one leaves before the next comes"
        )

    def _old(self, part: Part, now: Replicas) -> list[str]:
        """What runs and is to be replaced."""
        generation, marked = part.deployment.generation, self._marked
        return sorted(
            one for one, made in now.generations.items() if made != generation or one in marked
        )

    def _let_go(self) -> bool:
        """Have no more run than are to run; whether there was one more."""
        held, self._held = self._held, frozenset()
        if held:
            self._hold(self._held)
        return bool(held)

    def _finish(self) -> None:
        """Have the one more run until who was asked to leave has a successor.

        Serve might end the one more instead, and then both would be gone. If this is ended too, the
        one more ends by itself after some seconds.
        """
        if not self._held or self._unfinished is None:
            return
        self._say(f"one leaves: waiting up to {2 * LEAVES_S:,.0f} s for its successor")
        finished = False
        with contextlib.suppress(DeadlineExceeded):
            try:
                self._unfinished(LEAVES_S)
                finished = True
            finally:
                if not finished:
                    self._held = frozenset()

    def _await_surplus(self, part: Part, count: int) -> None:
        """Return when the one more has left; that it does not hinders nothing."""

        def left() -> bool:
            found = self._fleet.look(part.deployment)
            return len(found.generations) <= count and not found.going

        try:
            self._until(left, lambda: f"{part.words}: one more runs still")
        except DeadlineExceeded as error:
            self._say(f"{error.message}; the control loop ends it")

    def _one(self, part: Part, replica: str, *, followed: bool) -> None:
        """Replace one replica; ``followed``: it needs a successor."""
        worker = part.worker_prefix + replica
        held = self._may_leave(worker) if part.worker_prefix else Held()
        now = self._looked(part)
        before = set(now.generations) - set(self._old(part, now))

        def replaced(patience_s: float) -> None:
            self._until(
                lambda: replica not in self._fleet.look(part.deployment).generations,
                lambda: f"{worker} was asked to leave and has not",
                patience_s,
            )
            if followed:
                self._await_new(part, before, held, patience_s)

        self._unfinished = replaced
        self._until(
            lambda: self._fleet.leave(part.deployment, replica),
            lambda: f"{worker} cannot be asked to leave",
        )
        self._say(f"{part.words}: {worker} leaves")
        replaced(self._patience_s)
        self._unfinished = None
        self.replaced += 1

    def _may_leave(self, worker: str) -> Held:
        """What a worker holds, once the others answer for all of its tasks.

        Raises:
            Conflict: they do not.
        """
        alone: list[str] = []
        waits = not self._allow_gap

        def others_answer() -> bool:
            nonlocal alone, waits
            alone = self._serving().tasks_only_of(worker)
            if alone and waits:
                waits = False
                self._say(
                    f"{worker} alone answers for {', '.join(alone)}: waiting up to"
                    f" {self._patience_s:,.0f} s for another worker to (--allow-gap does not wait)"
                )
            return not alone

        try:
            self._until(others_answer, lambda: "", patience_s=0 if self._allow_gap else None)
        except DeadlineExceeded:
            if not self._allow_gap:
                raise Conflict(
                    f"no other worker answers for {', '.join(alone)} while {worker} is replaced,"
                    " and there is no room for one more: nothing of it was stopped. Let another"
                    " worker have them, or run `modelless upgrade --allow-gap`, in which queries"
                    " for these tasks are refused for some seconds"
                ) from None
            self._say(f"{worker} alone answers for {', '.join(alone)}: there is a gap")
        now = self._asked()
        if only := now.only_of(worker):
            names = ", ".join(f"{task}/{variant}" for task, variant in only)
            self._say(
                f"{worker} alone holds {names}: queries that need them may be refused until they"
                " are loaded again"
            )
        return now.of(worker)

    def _await_new(
        self,
        part: Part,
        before: Collection[str],
        held: Held,
        patience_s: float | None = None,
        known_s: float | None = None,
    ) -> None:
        """Return when a replica that was not there ``before`` does what is expected of it.

        Args:
            held: what a worker has to hold, or all that the plan puts there.
            known_s: after so long a new one that was there before is enough, if all run that are to
                run; None: never.
        """
        message, in_a_row = "", 0
        known_at_s = inf if known_s is None else self._clock_s() + known_s
        known = self._looked(part).generations.keys()

        def healthy() -> bool:
            nonlocal message, in_a_row
            now = self._fleet.look(part.deployment)
            message = now.message
            enough = self._clock_s() >= known_at_s and len(now.generations) >= now.target
            fresh = [
                replica
                for replica, made in now.generations.items()
                if made == part.deployment.generation
                and replica not in self._marked
                and (enough or replica not in before)
            ]
            if strangers := now.generations.keys() - known - set(fresh):
                message = (
                    f"{', '.join(sorted(strangers))} started with other sources than this command:"
                    " have they changed meanwhile, or differ between machines?"
                )
            good = [replica for replica in fresh if self._does_its_work(part, replica, held)]
            in_a_row = in_a_row + 1 if good else 0
            return in_a_row >= (SETTLED if part.worker_prefix else 1)

        failed = f"no new one of the {part.words} is healthy"
        self._until(healthy, lambda: failed + _told(message), patience_s)
        self._say(f"{part.words}: a new one is healthy" + (" and loaded" if held else ""))

    def _does_its_work(self, part: Part, replica: str, held: Held) -> bool:
        if not part.worker_prefix:
            return part.ready(replica)
        return self._serving().has(part.worker_prefix + replica, held)

    def _asked(self) -> Serving:
        """What gateways say, as soon as one answers."""
        return self._first(self._serving, "no gateway says what workers hold")

    def _looked(self, part: Part) -> Replicas:
        """What runs of a part, as soon as all that runs has said what it is."""
        failed = f"Ray Serve does not say what {part.words} there are"
        return self._first(lambda: self._fleet.look(part.deployment), failed)

    def _first(self, ask: Callable[[], T], failed: str) -> T:
        """What is said, as soon as it can be asked.

        Raises:
            DeadlineExceeded: it could not for too long.
        """
        found: list[T] = []

        def asked() -> bool:
            found.append(ask())
            return True

        self._until(asked, lambda: failed)
        return found[-1]

    def _complete(self, part: Part) -> bool:
        """Whether all run that are to run and have room, and do their work."""
        now = self._fleet.look(part.deployment)
        if not (part.worker_prefix or all(map(part.ready, now.generations))):
            return False
        return len(now.generations) >= now.target or NO_ROOM in now.message

    def _incomplete(self, part: Part) -> str:
        return f"not all of the {part.words} serve" + _told(self._looked(part).message)

    def _until(
        self,
        condition: Callable[[], bool],
        failed: Callable[[], str],
        patience_s: float | None = None,
    ) -> None:
        """Return once it holds; what cannot be asked for a moment does not hold.

        Raises:
            DeadlineExceeded: it took too long.
        """
        patience_s = self._patience_s if patience_s is None else patience_s
        until_s = self._clock_s() + patience_s
        while True:
            if self._held:
                self._hold(self._held)
            unasked = ""
            try:
                if condition():
                    return
            except (ClusterUnavailable, StateUnavailable, OSError, ValueError, KeyError) as error:
                unasked = _told(str(error))
            if self._clock_s() >= until_s:
                raise DeadlineExceeded(f"{failed()} after {patience_s:,.0f} s{unasked}")
            self._pause(POLL_S)


def _told(message: str) -> str:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return f" ({lines[-1]})" if lines else ""
