"""Golden cases of routing, batching and eviction: one JSON file for each rule, under
``tests/cases/route``, ``batch`` and ``evict``."""

import json
from pathlib import Path

import pytest

from planner.eviction import Resident, victims
from planner.lanes import Item
from planner.queue import BATCHING
from planner.routing import least_busy, roomiest, route
from planner.types import LatencyTable
from tests.planner.builders import NOW_MS, worker
from variants.types import WorkerId

CASES = Path(__file__).parent.parent / "cases"
NOW_S = 1_000.0
PICKS = {"route": route, "least_busy": least_busy, "roomiest": roomiest}


def cases(folder: str) -> pytest.MarkDecorator:
    found = sorted((CASES / folder).glob("*.json"))
    assert found, f"there are no cases in {folder}"
    return pytest.mark.parametrize("path", found, ids=[path.stem for path in found])


@cases("route")
def test_route(path: Path) -> None:
    """Workers with how long they are busy; which of them is picked, by its id."""
    case = json.loads(path.read_text())
    workers = tuple(worker(w.pop("id"), **w) for w in case["workers"])
    avoid = WorkerId(case["avoid"]) if "avoid" in case else None
    picked = PICKS[case["rule"]](workers, case.get("draw", 0), NOW_MS, avoid)
    assert (picked and picked.id) == case["expect"], case["why"]


@cases("evict")
def test_evict(path: Path) -> None:
    """Residents with how long ago they were loaded and used; who leaves, in that order."""
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
    queue = BATCHING[case["queue"]]()
    lanes = {
        name: queue.add_lane(lane.get("task", "t"), LatencyTable(lane["latency"]))
        for name, lane in case["lanes"].items()
    }
    names: dict[Item, str] = {}
    said, expected = [], []
    for event in case["events"]:
        now_ms = event["at_ms"]
        if "admit" in event:
            answer: list[str] = []
            for name in event["admit"]:
                lane = lanes[event.get("lane", next(iter(lanes)))]
                item = Item(lane, event["deadline_ms"], event.get("rows", 1))
                names[item] = name
                answer.append(queue.admit(item, now_ms).name.lower())
        elif "run" in event:
            batch = queue.next_batch(now_ms)
            answer = [] if batch is None else [names[item] for item in batch.items]
            if batch is not None:
                queue.finished(batch.lane, now_ms + event["run"], event["run"])
        else:
            answer = [names[item] for item in queue.pop_expired(now_ms)]
        said.append(answer)
        expected.append(event["expect"])
    assert said == expected, case["why"]
