"""DemandReport: what is told of tasks, and that what has left the catalog is forgotten in time."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from controlplane.demand_counters import accuracies_of
from controlplane.gateway.counting.task_counters import GONE
from controlplane.gateway.query.query_path import QueryPath
from controlplane.gateway.reports import demand_report
from controlplane.gateway.reports.demand_report import GONE_S, DemandReport
from planner.types import Query
from tests.planner.builders import catalog, task, variant
from variants.types import CatalogSnapshot, TaskName, VariantName


class Reported:
    """A report of a gateway whose catalog and clock a test moves."""

    def __init__(self, known: CatalogSnapshot, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1_000.0
        monkeypatch.setattr(demand_report, "monotonic", lambda: self.now_s)
        self.path = QueryPath(loader=cast(Any, None), clock_ms=lambda: 1_000 * self.now_s)
        workers = SimpleNamespace(round_trips_ms=dict)
        self.known = SimpleNamespace(workers=workers, zone="")
        self.reads(known)
        self.report = DemandReport("g1", self.path, cast(Any, self.known))

    def reads(self, known: CatalogSnapshot) -> None:
        self.known.catalog = self.known.counted = known
        self.known.tasks = {each.name: each for each in known.tasks}
        self.known.variants = frozenset(each.key for each in known.variants)
        self.known.accuracies = accuracies_of(known)

    def asks(self, name: str, **needs: Any) -> None:
        query = Query(TaskName(name), 1, 0.0, 50.0, **needs)
        self.path.demand.count(query)
        self.path.counters.task(name).failed("OVERLOADED")


def two(*variants: Any) -> CatalogSnapshot:
    return catalog(variants, [], tasks=[task("one"), task("two")])


def test_what_has_left_the_catalog_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = variant("a", 0.9, task="one"), variant("b", 0.8, task="two")
    seen = Reported(two(one, other), monkeypatch)
    seen.asks("one")
    seen.asks("two", accuracy=0.7)
    seen.asks("two", variant=VariantName("b"))
    assert len(seen.report.make()["demand"]) == 3

    seen.reads(catalog([one], [], tasks=[task("one")]))
    told = seen.report.make()
    assert list(told["demand"]) == ["one|50.0|"]
    assert told["tasks"].keys() == {"one", "two"}  # who reads it has not seen the last of it

    seen.now_s += GONE_S + 1.0
    seen.asks("one")
    told = seen.report.make()
    assert (told["demand"], told["tasks"].keys()) == ({"one|50.0|": 2}, {"one"})


def test_a_task_that_comes_back_in_time_is_counted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = variant("a", 0.9, task="one"), variant("b", 0.8, task="two")
    seen = Reported(two(one, other), monkeypatch)
    seen.asks("two")
    seen.reads(catalog([one], [], tasks=[task("one")]))
    seen.report.make()
    seen.reads(two(one, other))
    seen.now_s += GONE_S + 1.0
    assert seen.report.make()["tasks"]["two"]["errors"] == {"OVERLOADED": 1}


def test_variants_that_were_removed_are_told_apart_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that gets a version each hour has no end of them; its sums stay as they were."""
    old, new = variant("a", 0.9, task="one"), variant("b", 0.8, task="one")
    seen = Reported(two(old, new), monkeypatch)
    counters = seen.path.counters.task("one")

    def answers(name: str) -> None:
        counters.answered(
            name, 5.0, 1, 10, 20, 0.5, True, batch_size=1, read_ms=0.0, encode_ms=0.0, now_ms=1.0
        )
        counters.variants[name].right += 1

    for name in "aab":
        answers(name)
    seen.report.make()
    seen.reads(two(new))
    assert seen.report.make()["feedback"] == {"one": {"a": [2, 0], "b": [1, 0]}}
    seen.now_s += GONE_S + 1.0
    answers("b")
    told = seen.report.make()
    assert counters.variants.keys() == {"b", GONE}
    assert (counters.variants[GONE].rows, counters.variants[GONE].batches) == (2, {1: [2, 40.0]})
    assert (told["tasks"]["one"]["met"], told["feedback"]) == (4, {"one": {"b": [2, 0]}})
    answers("a")  # it was under way all the time
    assert seen.report.make()["tasks"]["one"]["met"] == 5
    seen.reads(two(old, new))
    seen.now_s += GONE_S + 1.0
    assert seen.report.make()["feedback"]["one"] == {"b": [2, 0], "a": [1, 0]}
