"""An elastic fleet follows the demand."""

import pytest

from tests.integration.deployment import PATIENT, Deployment, Load

pytestmark = pytest.mark.integration


def test_an_elastic_fleet_follows_the_demand(elastic: Deployment) -> None:
    def count(wanted: int, what: str) -> None:
        elastic.until(lambda: len(elastic.workers()) == wanted, what)

    count(1, "one worker while no query comes")
    floor = max(variant["accuracy"] for variant in elastic.variants())
    slo = {**PATIENT, "accuracy": floor}
    slow = {"task": "digits", "inputs": [[0.0] * 64] * 8, "slo": slo}
    with Load(elastic, slow, clients=8) as load:
        count(2, "two workers under load")
        before = load.snapshot()["200"]
        elastic.until(lambda: load.snapshot()["200"] > before + 20, "service")
    assert load.untyped == []
    count(1, "one worker when the load is over")
