"""Two workers, and one of them leaves under load."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.deployment import Deployment, Load, deployed
from tests.integration.digits import GOOD

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def two(halves: Path) -> Iterator[Deployment]:
    """Two workers of half the cores each; what was not measured for them yet is at start."""
    with deployed(halves, workers=2) as running:
        yield running


def test_two_workers_share_the_work(two: Deployment) -> None:
    assert len(two.workers()) == 2
    two.until(lambda: all(two.ready(w) for w in two.workers()), "both loaded")
    with Load(two, GOOD, clients=8) as load:
        two.until(lambda: load.snapshot()["200"] > 300, "load")
    assert load.outcomes.keys() == {"200"}
    used = {two.query([[0.0] * 64]).body["worker"] for _ in range(60)}
    assert len(used) == 2


def test_shrinking_from_two_workers_to_one_loses_no_query(two: Deployment) -> None:
    kind = two.workers()[0]["device_kind"]
    with Load(two, GOOD, clients=8) as load:
        two.until(lambda: load.snapshot()["200"] > 200, "load")
        answer = two.request("PUT", f"/v1/inventory/{kind}", {"count": 1})
        assert answer.status == 200, answer
        two.until(lambda: len(two.workers()) == 1, "one worker")
        before = load.snapshot()["200"]
        two.until(lambda: load.snapshot()["200"] > before + 200, "service")
    assert load.untyped == []
    assert load.outcomes.keys() == {"200"}
