"""Golden cases of routing, batching and eviction: one JSON file for each rule, under
``tests/cases/route``, ``batch`` and ``evict``."""

import json
from pathlib import Path

import pytest

from planner.batching.registry import make_queue
from planner.batching.variant_queues import Item
from planner.eviction.rules import Resident
from planner.eviction.victims import victims
from planner.latency_table import LatencyTable
from planner.selection.load_balancing import host_for, least_busy, route
from planner.types import Candidate, WorkerView
from tests.planner.builders import DIGITS, NOW_MS, catalog, profile, snapshot, variant, worker
from variants.types import WorkerId

CASES = Path(__file__).parent.parent / "cases"
NOW_S = 1_000.0
PICKS = {"route": route, "least_busy": least_busy}


def candidate(memory_mib: float, hosts: tuple[WorkerView, ...]) -> Candidate:
    """Of the task and variant ``digits/new``, held nowhere."""
    known = catalog([variant("new")], [profile("new", 5, memory_mib=memory_mib)])
    (found,) = snapshot(known, *((host, ()) for host in hosts)).tasks[DIGITS].by_cost
    return found


def cases(folder: str) -> pytest.MarkDecorator:
    found = sorted((CASES / folder).glob("*.json"))
    assert found, f"there are no cases in {folder}"
    return pytest.mark.parametrize("path", found, ids=[path.stem for path in found])


@cases("route")
def test_route(path: Path) -> None:
    """Workers with how long they are busy; which of them is picked, by its id."""
    case = json.loads(path.read_text())
    for one in case["workers"]:
        one["loading"] = tuple(map(tuple, one.get("loading", ())))
    workers = tuple(worker(w.pop("id"), **w) for w in case["workers"])
    avoid = WorkerId(case["avoid"]) if "avoid" in case else None
    if case["rule"] == "host_for":
        picked = host_for(candidate(case["memory_mib"], workers), NOW_MS, avoid)
    else:
        picked = PICKS[case["rule"]](workers, case.get("draw", 0), NOW_MS, avoid)
    assert (picked and picked.id) == case["expect"], case["why"]


@cases("evict")
def test_evict(path: Path) -> None:
    """Residents with how long ago they were loaded and used; those that leave, in order."""
    case = json.loads(path.read_text())
    residents = [
        Resident(
            key=r["key"],
            memory_mib=r.get("memory_mib", 100.0),
            load_s=r.get("load_s", 1.0),
            popularity=r.get("popularity", 1.0),
            last_used_s=NOW_S - r.get("used_s_ago", 60.0),
            in_use=r.get("in_use", False),
            loaded_s=NOW_S - r.get("loaded_s_ago", 600.0),
            inflation=r.get("inflation", 0.0),
        )
        for r in case["residents"]
    ]
    found = victims(residents, case["need_mib"], NOW_S, case["rule"])
    assert (None if found is None else list(found)) == case["expect"], case["why"]


@cases("batch")
def test_batch(path: Path) -> None:
    """What happens at a queue, and what it answers to each event.

    ``admit`` names queries and expects the verdict on each; ``run`` takes out the next batch, which
    takes so many ms, and expects its queries; ``expire`` expects those given up.
    """
    case = json.loads(path.read_text())
    slice_queue = make_queue(case["queue"])
    queues = {
        name: slice_queue.add_variant(variant.get("task", "t"), LatencyTable(variant["latency"]))
        for name, variant in case["variants"].items()
    }
    names: dict[Item, str] = {}
    said, expected = [], []
    for event in case["events"]:
        now_ms = event["at_ms"]
        if "admit" in event:
            answer: list[str] = []
            for name in event["admit"]:
                queue = queues[event.get("variant", next(iter(queues)))]
                item = Item(queue, event["deadline_ms"], event.get("rows", 1))
                names[item] = name
                answer.append(slice_queue.admit(item, now_ms).name.lower())
        elif "run" in event:
            batch = slice_queue.next_batch(now_ms)
            answer = [] if batch is None else [names[item] for item in batch.items]
            if batch is not None:
                slice_queue.finished(batch.queue, now_ms + event["run"], event["run"])
        else:
            answer = [names[item] for item in slice_queue.pop_expired(now_ms)]
        said.append(answer)
        expected.append(event["expect"])
    assert said == expected, case["why"]
