"""What came of tries to measure on nodes, and what waits because of it.

A variant that fails where it is measured waits alone. What fails before a process has begun is no
matter of the variant: the node waits, with all that would be measured on it, or, where a slice of
its own was looked for, the device kind.
"""

from collections.abc import Collection

from controlplane.backoff import Backoff
from controlplane.profiling.due.orders import MeasuringOrder
from controlplane.profiling.due.rests import Attempt, Rests, attempt_of
from planner.types import ProfileKey
from variants.errors import ArtifactDamaged, InvalidInput, ModellessError, NotFound, readable
from variants.types import DeviceKindName

REST_S = 600.0
"""How long a profile that was measured is left alone at first, whatever is said of it meanwhile."""
DISTURBED_REST_S = 6 * 3_600.0
"""The same where other work took the processor again: it may do so all day."""
REFUSED_S = 3_600.0
"""How long a variant that failed where it was measured is left alone, unless somebody asks."""

MOST_WORDS = 200
"""Characters of a reason that queries are told."""


class Setbacks:
    """Which orders, nodes and kinds wait. A failure is news where its reason is another one."""

    def __init__(self) -> None:
        self._rests = Rests()
        self._refusals: dict[Attempt, str] = {}
        self._orders: Backoff[Attempt] = Backoff()
        self._nodes: Backoff[str] = Backoff()
        self._slices: Backoff[DeviceKindName] = Backoff()

    def waits(self, order: MeasuringOrder, now_s: float) -> bool:
        failed = self._orders.waits(attempt_of(order), now_s) is not None
        return failed or self._rests.rests(order, now_s)

    def node_waits(self, node: str, now_s: float) -> bool:
        return self._nodes.waits(node, now_s) is not None

    def slice_waits(self, kind: DeviceKindName, now_s: float) -> bool:
        """Whether no slice of its own is looked for now: there was no room for one."""
        return self._slices.waits(kind, now_s) is not None

    def has_failed(self, order: MeasuringOrder) -> bool:
        """What may fail again comes last: a try may take long, and others would wait for it."""
        return self._orders.has(attempt_of(order)) or self._slices.has(order.due.kind.name)

    def begun(self, node: str, kind: DeviceKindName) -> None:
        """A process has begun on a node, for a kind."""
        self._nodes.succeeded(node)
        self._slices.succeeded(kind)

    def measured(self, order: MeasuringOrder, now_s: float, *, beside_load: bool) -> None:
        self._orders.succeeded(attempt_of(order))
        self._refusals.pop(attempt_of(order), None)
        self._rests.measured(order, now_s, DISTURBED_REST_S if beside_load else REST_S)

    def failed(
        self, order: MeasuringOrder, error: Exception, now_s: float, took_s: float = 0.0
    ) -> bool:
        """It failed where it was measured. Refused is refused for a while; what may pass, as an
        artifact that could not be fetched, is tried again soon."""
        if isinstance(error, InvalidInput | ArtifactDamaged | NotFound):
            self._rests.refused(order, now_s, REFUSED_S)
            why = readable(error.message).removeprefix(f"{order.due.variant.name}: ")
            self._refusals[attempt_of(order)] = why[:MOST_WORDS]
        return self._orders.failed(attempt_of(order), repr(error), now_s, took_s)

    def node_failed(self, node: str, error: Exception, now_s: float, took_s: float = 0.0) -> bool:
        return self._nodes.failed(node, _reason(error), now_s, took_s)

    def slice_failed(
        self, kind: DeviceKindName, error: Exception, now_s: float, took_s: float
    ) -> bool:
        return self._slices.failed(kind, _reason(error), now_s, took_s)

    def keep_orders(self, attempts: Collection[Attempt]) -> None:
        """Forget the failures of what is not due any more."""
        self._orders.forget(lambda attempt: attempt not in attempts)
        self._refusals = {one: why for one, why in self._refusals.items() if one in attempts}

    @property
    def refusals(self) -> dict[ProfileKey, str]:
        """What could not be measured where it was tried and is not tried soon, and why."""
        return {key: why for (key, _, _), why in self._refusals.items()}

    def keep_nodes(self, nodes: Collection[str]) -> None:
        """Forget the failures of nodes that are gone."""
        self._nodes.forget(lambda node: node not in nodes)

    def keep_slices(self, kinds: Collection[DeviceKindName]) -> None:
        """Forget the failures of kinds that are measured beside workers now."""
        self._slices.forget(lambda kind: kind not in kinds)


def _reason(error: Exception) -> str:
    """Without the sentence, which names the variant: another one would fail as well."""
    return error.code if isinstance(error, ModellessError) else repr(error)
