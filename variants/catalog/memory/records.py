"""What is planned and what happened, in the memory of one process."""

from collections import deque
from dataclasses import replace
from threading import Lock

from variants.catalog.protocol import EVENTS_KEPT, RARE_EVENTS_KEPT, ticks_kept
from variants.catalog.validity.absent import no_variant
from variants.catalog.validity.peaks import check_learned
from variants.catalog.validity.plans import (
    check_event,
    check_inventory,
    check_leads,
    check_plan,
    plain_body,
)
from variants.catalog.validity.profiles import check_profiling_request
from variants.types import (
    ALL_EVENTS,
    FREQUENT,
    CatalogSnapshot,
    DeviceKindName,
    Event,
    EventFilter,
    Plan,
    ProfilingRequest,
    TaskName,
    TickRecord,
    VariantName,
)


def _changes_something(record: TickRecord, earlier: int) -> bool:
    """Whether its plan differs by more than its rates from that of this version, or something was
    begun."""
    changes = record.body.get("changes")
    # Of the first plan, and in records of old, nothing says what differs.
    planned = record.plan_version != earlier and (changes is None or earlier <= 0)
    return bool(record.body.get("actions") or changes or planned)


class MemoryRecords:
    """The part of ``variants.catalog.protocol.Catalog`` about leaders, plans, ticks and events, the
    inventory, what is to be measured and what was learned.
    """

    def __init__(self) -> None:
        self._writing = Lock()
        self._snapshot = CatalogSnapshot(revision=0)
        self._inventory: dict[DeviceKindName, int] = {}
        self._requests: dict[tuple[TaskName, VariantName, DeviceKindName], ProfilingRequest] = {}
        self._learned: dict[str, tuple[float, bytes]] = {}
        self._epoch = 0
        self._leader = ""
        self._plan: Plan | None = None
        self._ticks: deque[TickRecord] = deque()
        self._events: deque[Event] = deque()
        self._event_seq = 0

    def request_profiling(
        self, requests: tuple[ProfilingRequest, ...], *, anew: bool = False
    ) -> None:
        for request in requests:
            check_profiling_request(request)
        with self._writing:
            variants = {variant.key for variant in self._snapshot.variants}
            for request in requests:
                if (request.task, request.variant) not in variants:
                    raise no_variant(request.task, request.variant)
            # Of two for the same profile the first stands, and anew the last.
            in_turn = requests if anew else reversed(requests)
            asked = {(r.task, r.variant, r.device_kind): r for r in in_turn}
            merged = self._requests | asked if anew else asked | self._requests
            self._requests = dict(sorted(merged.items()))

    def profiling_requests(self) -> tuple[ProfilingRequest, ...]:
        return tuple(self._requests.values())

    def inventory(self) -> dict[DeviceKindName, int]:
        return dict(self._inventory)

    def set_inventory(self, device_kind: DeviceKindName, count: int) -> None:
        check_inventory(device_kind, count)
        with self._writing:
            self._inventory = dict(sorted({**self._inventory, device_kind: count}.items()))

    def put_learned(self, name: str, at_s: float, body: bytes, *, epoch: int) -> None:
        check_learned(name, body)
        with self._writing:
            check_leads(epoch, self._epoch, "what was learned")
            self._learned = {**self._learned, name: (at_s, body)}

    def learned(self, name: str) -> tuple[float, bytes] | None:
        return self._learned.get(name)

    def acquire_leadership(self, owner: str) -> int:
        with self._writing:
            self._epoch += 1
            self._leader = owner
            return self._epoch

    def leader(self) -> str:
        return self._leader

    def put_plan(self, plan: Plan) -> Plan:
        check_plan(plan)
        with self._writing:
            check_leads(plan.epoch, self._epoch, "a plan")
            version = 1 + (self._plan.version if self._plan else 0)
            self._plan = replace(plan, version=version, workers=dict(plan.workers))
            return self._plan

    def latest_plan(self) -> Plan | None:
        return self._plan

    def add_tick(self, record: TickRecord) -> None:
        body, size = plain_body(record)
        keep = ticks_kept(size)
        with self._writing:
            self._ticks.append(replace(record, body=body))
            while len(self._ticks) > keep:
                self._ticks.popleft()

    def ticks(self, limit: int, *, changes: bool = False) -> tuple[TickRecord, ...]:
        with self._writing:
            kept = tuple(self._ticks)
        earlier = (-1, *(record.plan_version for record in kept))
        asked = [
            record
            for record, before in zip(kept, earlier, strict=False)
            if not changes or _changes_something(record, before)
        ]
        return tuple(reversed(asked))[: max(0, limit)]

    def add_event(self, *events: Event) -> None:
        for event in events:
            check_event(event)
        with self._writing:
            for event in events:
                self._event_seq += 1
                self._events.append(replace(event, seq=self._event_seq))
            passed = self._event_seq - EVENTS_KEPT
            if self._events and self._events[0].seq <= passed:
                oldest = self._event_seq - max(EVENTS_KEPT, RARE_EVENTS_KEPT)
                self._events = deque(
                    one
                    for one in self._events
                    if one.seq > passed or (one.seq > oldest and one.kind not in FREQUENT)
                )

    def events(self, limit: int, asked: EventFilter = ALL_EVENTS) -> tuple[Event, ...]:
        with self._writing:
            newest_first = tuple(reversed(self._events))
        return tuple(event for event in newest_first if asked.fits(event))[: max(0, limit)]

    def close(self) -> None:
        """There is nothing to release."""
