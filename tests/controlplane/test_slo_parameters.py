"""What clients send of an SLO is what gateways read."""

from controlplane.gateway.query.query_fields import PARAMETERS
from controlplane.gateway.query.v2.parsing import query_v2
from controlplane.slo_parameters import slo_parameters
from tests.controlplane.serving import TASK
from variants.types import Prefer


def test_a_gateway_reads_what_a_query_needs() -> None:
    parameters = slo_parameters(
        latency_ms=50.0, accuracy=0.97, cost=0.25, prefer=Prefer.ENERGY, best_effort=True,
        model_version="cnn-v2", priority=3,
    )  # fmt: skip

    read = query_v2(TASK, 1, parameters, 0.0, 0, None)

    assert read.latency_ms == 50.0
    assert (read.accuracy, read.cost, read.prefer) == (0.97, 0.25, Prefer.ENERGY)
    assert (read.best_effort, read.version, read.priority) == (True, "cnn-v2", 3)


def test_nothing_else_is_known_but_the_protocols_own_timeout() -> None:
    everything = slo_parameters(
        latency_ms=50.0, accuracy=0.97, cost=0.25, prefer="cost", best_effort=True,
        model_version="cnn-v2", priority=3,
    )  # fmt: skip

    assert everything.keys() | {"timeout"} == PARAMETERS


def test_what_is_not_needed_is_no_parameter() -> None:
    assert slo_parameters(accuracy=0.0, priority=0) == {"min_accuracy": 0.0, "priority": 0}
