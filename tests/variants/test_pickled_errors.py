"""Errors on their way between processes, as pools and queues of tasks send them."""

import copy
import pickle
from collections.abc import Iterator

import pytest

import variants.errors
from variants.errors import Alternative, Cold, ModellessError, SeveralMeant, SloInfeasible

NEAREST = Alternative(
    variant="a-v1-fp32", accuracy=0.9, latency_ms=3.0, cost_usd_per_1k=0.1, reason="p95 3 ms > 1 ms"
)
GIVEN = {
    Cold: Cold("not yet", retry_after_s=2.5),
    SeveralMeant: SeveralMeant("which?", choices={2: "takes version 2 back"}, option="--to "),
    SloInfeasible: SloInfeasible("never", reasons={"a": "b"}, alternatives=[NEAREST]),
}
"""Those that need more than a sentence, or may have more."""


def kinds(of: type[ModellessError] = ModellessError) -> Iterator[type[ModellessError]]:
    yield of
    for each in of.__subclasses__():
        if each.__module__ in (variants.errors.__name__, "controlplane.client.exchange"):
            yield from kinds(each)


@pytest.mark.parametrize("kind", list(kinds()))
def test_an_error_is_the_same_in_another_process(kind: type[ModellessError]) -> None:
    error = GIVEN.get(kind) or kind("a sentence")
    error.request_id = "9f86d081884c7d65"
    for found in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(found) is kind
        assert str(found) == str(error)
        assert vars(found) == vars(error)
