"""A control loop whose turns are in vain, because Ray's control store has died."""

from controlplane.cluster.processes.control_store import BACK, DIED_HERE, ControlStoreWatch
from controlplane.controller.events.journal import Journal
from controlplane.controller.events.loop_report import LoopReport
from tests.controlplane.controller.events.test_storage_watch import Told
from variants.catalog.memory import MemoryCatalog


async def test_turns_without_it_do_not_count_and_are_told() -> None:
    catalog, live, now_s, looks = MemoryCatalog(), Told(), [0.0], iter("+---+")
    journal = Journal(catalog)
    store = ControlStoreWatch("", on_cluster=False, answers=lambda: next(looks) == "+")
    report = LoopReport(live, journal, tuple, lambda: now_s[0], lambda: now_s[0], store)

    for turn in range(5):
        now_s[0] = 10.0 * turn
        report.look_at_disks()
        await report.turned(None)
    await journal.store_events()

    assert [told["turned_s"] for told in live.controllers] == [0.0, 10.0, 20.0, 20.0, 40.0]
    assert [told["control_store"] for told in live.controllers] == ["", "", "", DIED_HERE, ""]
    assert [(one.kind, one.message) for one in catalog.events(10)] == [
        ("control_store_back", BACK),
        ("control_store_lost", DIED_HERE),
    ]
