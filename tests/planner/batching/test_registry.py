"""The batching rules by name."""

import pytest

from planner.batching.registry import BATCHING, make_queue
from variants.errors import InvalidInput
from variants.registry import missing


@pytest.mark.parametrize("name", BATCHING)
def test_every_rule_makes_an_empty_queue_and_needs_nothing_more(name: str) -> None:
    assert missing(BATCHING[name]) is None
    assert make_queue(name).count == 0
    assert make_queue(name) is not make_queue(name)


def test_an_unknown_rule_is_refused_and_the_known_ones_are_told() -> None:
    with pytest.raises(InvalidInput, match=r"batching rule 'fifo' is unknown; .* aimd, profile"):
        make_queue("fifo")
