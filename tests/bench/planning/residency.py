"""What is loaded on one device: the account of a memory that the bench of eviction rules keeps."""

from collections.abc import Container, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from planner.eviction.churn import Churn
from planner.eviction.displacement import Rung, ladder
from planner.eviction.registry import rule_named
from planner.eviction.rules import Resident, absence_s
from planner.eviction.victims import MIN_RESIDENCY_S, victims, worth

Key = TypeVar("Key", bound=Hashable)
Key_contra = TypeVar("Key_contra", bound=Hashable, contravariant=True)


class Book(Protocol[Key_contra]):
    """Is told of every query, and answers what is popular."""

    def seen(self, key: Key_contra, now_s: float) -> None:
        """A query for ``key`` has come."""

    def rates(self, keys: Iterable[Key_contra], now_s: float) -> list[float]:
        """Queries per second to expect for each of ``keys``, in their order."""


@dataclass(slots=True, kw_only=True)
class _Place(Generic[Key]):
    """One loaded key. Changed by each use."""

    key: Key
    memory_mib: float
    load_s: float
    loaded_s: float
    last_used_s: float
    uses: int
    """Since it was loaded, the query that loaded it included (Cherkasova 1998, section 3)."""
    inflation: float


class Residency(Generic[Key]):
    """The memory of one device. Memory is taken from the start of a load.

    For each query: ``book.seen(key, now_s)`` once, wherever it goes; then ``used`` if the key is
    here, otherwise ``make_room``, ``evict`` each victim, and ``load``. The book may be shared by
    all devices.

    Args:
        memory_mib: of the device; infinite for no limit.
        book: needed by the rule ``modelless``, and by ``ladder`` under every rule; the caller
            counts the queries in it.
        min_residency_s: binds the rule ``modelless``. It keeps loading from being done in vain, so
            it is 0 where loads take no time.
    """

    __slots__ = ("_book", "_clock", "_min_residency_s", "_places", "churn", "free_mib", "rule")

    def __init__(
        self,
        memory_mib: float,
        book: Book[Key],
        rule: str = "modelless",
        *,
        min_residency_s: float = MIN_RESIDENCY_S,
    ) -> None:
        rule_named(rule)
        self.rule = rule
        self.free_mib = memory_mib
        self.churn = Churn(memory_mib)
        self._book = book
        self._min_residency_s = min_residency_s
        self._places: dict[Key, _Place[Key]] = {}
        self._clock = 0.0
        """GreedyDual's L: the worth of the last one that left."""

    def __contains__(self, key: Key) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[Key]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def used(self, key: Key, now_s: float) -> None:
        """A query ran on a loaded key.

        Raises:
            KeyError: it is not loaded.
        """
        place = self._places[key]
        place.last_used_s = now_s
        place.uses += 1
        place.inflation = self._clock

    def make_room(
        self, memory_mib: float, now_s: float, in_use: Container[Key] = ()
    ) -> tuple[Key, ...] | None:
        """What has to leave so that ``memory_mib`` fit, least worth first; None if that cannot be.

        Nothing has left yet: the caller evicts each of them.
        """
        need_mib = memory_mib - self.free_mib
        if need_mib <= 0:
            return ()
        return victims(
            self.residents(now_s, in_use),
            need_mib,
            now_s,
            self.rule,
            min_residency_s=self._min_residency_s,
        )

    def ladder(self, now_s: float) -> tuple[Rung, ...]:
        """What a load would cost here by what leaves for it."""
        residents = self.residents(now_s)
        losses_s = None
        if self.rule != "modelless":
            rates = self._book.rates(self._places, now_s)
            losses_s = {
                resident.key: absence_s(rate, resident.load_s)
                for resident, rate in zip(residents, rates, strict=True)
            }
        return ladder(
            residents, now_s, self.rule, losses_s=losses_s, min_residency_s=self._min_residency_s
        )

    def load(self, key: Key, memory_mib: float, load_s: float, now_s: float) -> None:
        """Take memory for a key that is not loaded, for the query that is its first use.

        Raises:
            ValueError: it does not fit.
        """
        if memory_mib > self.free_mib:
            raise ValueError(f"{key} needs {memory_mib} MiB, {self.free_mib} MiB are free")
        self.free_mib -= memory_mib
        self._places[key] = _Place(
            key=key, memory_mib=memory_mib, load_s=load_s, loaded_s=now_s, last_used_s=now_s,
            uses=1, inflation=self._clock,
        )  # fmt: skip

    def evict(self, key: Key, now_s: float) -> None:
        """Give a key's memory back, to make room.

        Raises:
            KeyError: it is not loaded.
        """
        place = self._places.pop(key)
        self.free_mib += place.memory_mib
        self.churn.evicted(place.memory_mib, now_s)
        if self.rule == "gdsf":
            self._clock = max(self._clock, worth(_resident(place, place.uses), self.rule))

    def residents(self, now_s: float, in_use: Container[Key] = ()) -> list[Resident[Key]]:
        """What is loaded, as eviction sees it."""
        places = self._places.values()
        if self.rule == "modelless":
            popularity = self._book.rates(self._places, now_s)
        else:
            popularity = [float(place.uses) for place in places]
        return [
            _resident(place, each, place.key in in_use)
            for place, each in zip(places, popularity, strict=True)
        ]


def _resident(place: _Place[Key], popularity: float, in_use: bool = False) -> Resident[Key]:
    return Resident(
        key=place.key, memory_mib=place.memory_mib, load_s=place.load_s, popularity=popularity,
        last_used_s=place.last_used_s, in_use=in_use, loaded_s=place.loaded_s,
        inflation=place.inflation,
    )  # fmt: skip
