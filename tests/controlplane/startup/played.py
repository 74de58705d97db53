"""A Serve and workers that are played, and an upgrade of them."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from controlplane.cluster.replicas import Deployment, Replicas
from controlplane.live_state.state import REPLACING_TTL_S
from controlplane.startup.replacing.parts import Part
from controlplane.startup.replacing.served import Serving
from controlplane.startup.replacing.upgrade import Upgrade
from variants.errors import ClusterUnavailable, StateUnavailable

NEW, OLD = "new", "old"
ALL = frozenset({("digits", "a"), ("digits", "b")})


class Made(Deployment):
    """One whose generation needs no Ray."""

    @property
    def generation(self) -> str:
        return NEW


class Killed(BaseException):
    """What runs is ended without a word."""


@dataclass
class Played:
    """Serve with workers: a replica that leaves is replaced after a second, loaded after two."""

    running: dict[str, str]
    room: int = 0
    """For how many more there is room."""
    broken: bool = False
    """New ones do not load what they should."""
    now_s: float = 0.0
    renewed: bool = False
    starts_new: bool = False
    """What Serve starts is new before anything is replaced."""
    extra: bool = False
    extra_until_s: float = 0.0
    held: dict[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    coming: list[tuple[float, str]] = field(default_factory=list)
    loading: list[tuple[float, str]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    fewest: int = 99
    """Workers that had everything, at the worst moment."""
    interrupt_at_s: float = 1e9
    kill_at_s: float = 1e9
    dead: bool = False
    """The upgrade was killed: nothing of it does anything any more."""
    made: int = 0

    def __post_init__(self) -> None:
        self.target = len(self.running)
        self.held = dict.fromkeys(self.running, ALL)

    # -- Serve ----------------------------------------------------------------------------------

    def look(self, deployment: Deployment) -> Replicas:
        return Replicas(
            target=self.target, generations=dict(self.running), going=0,
            message="",
        )  # fmt: skip

    def starts(self, deployment: Deployment) -> str:
        return NEW if self.renewed or self.starts_new else OLD

    def renew(self, deployment: Deployment, mark: str) -> None:
        self.renewed = True
        self.asked.append(f"renew {deployment.application}")

    def end(self, deployment: Deployment) -> None:
        self.asked.append(f"end {deployment.application}")

    def leave(self, deployment: Deployment, replica: str) -> bool:
        self.asked.append(deployment.application)
        if self.now_s % 4 == 1.0:
            return False  # it takes in a configuration
        del self.running[replica], self.held[replica]
        self._start()
        return True

    # -- the control loop, the gateway and the clock ----------------------------------------------

    def hold(self, extra: Collection[str]) -> None:
        if self.dead:
            raise Killed
        if extra and not self.extra:
            self.target += 1
            self._start()
        if not extra and self.extra:
            self._end_the_one_more()
        self.extra = bool(extra)
        self.extra_until_s = self.now_s + REPLACING_TTL_S

    def _end_the_one_more(self) -> None:
        self.target -= 1
        if len(self.running) > self.target:
            del self.held[gone := min(self.running)], self.running[gone]
        elif self.coming:
            self.coming.pop()

    def serving(self) -> Serving:
        if self.now_s % 3 == 0.5:
            raise ClusterUnavailable("it does not answer for a moment")
        if self.now_s % 3 == 1.0:
            raise StateUnavailable("the database is busy for a moment")
        return Serving(workers={f"w-{one}": held for one, held in self.held.items()}, planned={})

    def pause(self, seconds: float) -> None:
        self.fewest = min(self.fewest, sum(held == ALL for held in self.held.values()))
        self.now_s += seconds
        if self.extra and self.now_s >= self.extra_until_s:
            self._end_the_one_more()  # nobody has asked for it since
            self.extra = False
        if self.dead or self.now_s >= self.kill_at_s:
            self.dead, self.kill_at_s = True, 1e9
            raise Killed
        if self.now_s >= self.interrupt_at_s:
            self.interrupt_at_s = 1e9
            raise KeyboardInterrupt
        for due, replica in [one for one in self.coming if one[0] <= self.now_s]:
            self.coming.remove((due, replica))
            new = self.renewed or self.starts_new
            self.running[replica], self.held[replica] = NEW if new else OLD, frozenset()
            self.loading.append((due + 2, replica))
        for due, replica in self.loading:
            if due <= self.now_s and not self.broken and replica in self.held:
                self.held[replica] = ALL

    def _start(self) -> None:
        self.made += 1
        self.coming.append((self.now_s + 1, f"n{self.made}"))


def upgrade(
    played: Played,
    *,
    allow_gap: bool = False,
    every: bool = False,
    say: Callable[[str], None] | None = None,
) -> Upgrade:
    return Upgrade(
        played, played.serving, played.hold, say or played.said.append, lambda: played.now_s,
        played.pause, patience_s=30.0, allow_gap=allow_gap, every=every,
    )  # fmt: skip


def workers(played: Played) -> list[Part]:
    made = Made(application="a", name="worker", built=None)
    room = played.room > 0
    return [Part(words="workers", deployment=made, extra="cpu-1", room=room, worker_prefix="w-")]
