"""Cores that are short, as events: what is told once, and what is not told at all."""

from dataclasses import replace

from controlplane.controller.events.core_watch import BEGINS_S, ENDS_S, CoreWatch
from controlplane.controller.events.journal import Journal
from controlplane.controller.events.loop_report import LoopReport
from tests.controlplane.controller.events.test_storage_watch import Told
from variants.catalog.memory import MemoryCatalog
from variants.core_time import CoreTime
from workers.types import WorkerStatus

CALM = CoreTime(host="h1", cores=2, used=0.4, busy=0.5, waited=0.1, throttled=0.0, stolen=0.0)
CROWDED = replace(CALM, busy=2.0, waited=0.63)
HOVERING = replace(CROWDED, waited=0.45)
WHY = (
    "63 % of the time something waited for one, gateways and workers use 0.4 of its 2 cores, other "
    "programs 1.6; stop some of these, or run modelless on another machine"
)


class Looks:
    def __init__(self) -> None:
        self.watch = CoreWatch()
        self.now_s = 0.0

    def see(self, *readings: CoreTime, for_s: float) -> list[tuple[str, str, str]]:
        found: list[tuple[str, str, str]] = []
        until_s = self.now_s + for_s
        while self.now_s < until_s:
            found += self.watch.look(readings, self.now_s)
            self.now_s += 1.0
        return found


def test_a_shortage_is_told_when_it_has_lasted_and_when_it_is_over() -> None:
    looks = Looks()

    assert looks.see(CROWDED, for_s=BEGINS_S) == []
    assert looks.see(CROWDED, for_s=60.0) == [("cores_short", "h1", WHY)]
    assert looks.see(CALM, for_s=ENDS_S - 1) == []
    assert looks.see(CALM, for_s=60.0) == [
        ("cores_suffice", "h1", "they suffice again, for 30 s now")
    ]


def test_what_is_over_in_seconds_is_not_told() -> None:
    looks = Looks()
    for _ in range(5):
        assert looks.see(CROWDED, for_s=BEGINS_S - 1) == []
        assert looks.see(CALM, for_s=3.0) == []


def test_what_hovers_at_the_threshold_is_told_once() -> None:
    looks = Looks()
    assert [kind for kind, *_ in looks.see(CROWDED, for_s=20.0)] == ["cores_short"]
    for _ in range(10):
        assert looks.see(HOVERING, for_s=ENDS_S) == []
        assert looks.see(CROWDED, for_s=20.0) == []


def test_a_machine_that_is_gone_is_forgotten() -> None:
    looks = Looks()
    looks.see(CROWDED, for_s=20.0)
    assert looks.see(replace(CALM, host="h2"), for_s=100.0) == []
    assert [kind for kind, *_ in looks.see(CROWDED, for_s=20.0)] == ["cores_short"]


async def test_the_control_loop_tells_what_workers_and_gateways_say() -> None:
    catalog, live, now_s = MemoryCatalog(), Told(), [0.0]
    journal = Journal(catalog)
    report = LoopReport(live, journal, tuple, lambda: now_s[0], lambda: 1_000.0)
    worker = WorkerStatus(
        worker="w", device_kind="cpu-2", memory_mib=1.0, reserved_mib=0.0, draining=False,
        backlog_us=0, busy_ratio=0.0, replicas=(), core_time=replace(CROWDED, used=0.3),
    )  # fmt: skip

    for _ in range(20):
        report.workers([worker, replace(worker, core_time=None)])
        report.gateways([{"core_time": {**_plain(CROWDED), "used": 0.1}}, {}])
        await report.turned(None)
        now_s[0] += 1.0
    await journal.store_events()

    assert [(one.kind, one.subject, one.message) for one in catalog.events(10)] == [
        ("cores_short", "h1", WHY)
    ]


def _plain(one: CoreTime) -> dict[str, object]:
    return {name: getattr(one, name) for name in CoreTime.__dataclass_fields__}
