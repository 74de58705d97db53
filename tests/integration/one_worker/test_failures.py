"""Kill -9 of each part under load: every query is answered or typed, service comes back."""

import psutil
import pytest

from tests.integration.deployment import BUSY, Deployment, Load
from tests.integration.digits import GOOD, check_killed_worker

pytestmark = pytest.mark.integration


def test_a_killed_worker_loses_nothing_and_comes_back(digits: Deployment) -> None:
    check_killed_worker(digits)


def test_a_killed_gateway_comes_back(digits: Deployment) -> None:
    (gateway,) = [p for p in digits.processes() if "gateway" in p.name()]
    gateway.kill()
    digits.until(lambda: digits.query([[0.0] * 64]).status == 200, "the gateway")


def test_without_controller_and_live_state_queries_go_on(digits: Deployment) -> None:
    plan = digits.get("/v1/plan")
    (controller,) = [p for p in digits.processes() if "controll" in p.name() and "ray::" in name(p)
                     and "ServeController" not in name(p)]  # fmt: skip
    (valkey,) = [p for p in digits.processes() if "valkey" in p.name()]
    with Load(digits, GOOD, clients=2) as load:
        digits.until(lambda: load.snapshot()["200"] > 100, "load")
        controller.kill()
        valkey.kill()
        digits.until(lambda: digits.get("/v1/plan")["epoch"] > plan["epoch"]
                     or digits.get("/v1/ticks?limit=1")["ticks"][0]["body"]["epoch"]
                     > plan["epoch"], "a successor")  # fmt: skip
        before = load.snapshot()["200"]
        digits.until(lambda: load.snapshot()["200"] > before + 100, "service")
    assert load.outcomes.keys() <= {"200", *BUSY}
    assert load.untyped == []


def name(process: psutil.Process) -> str:
    return " ".join(process.cmdline())
