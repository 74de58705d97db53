"""Tokenizers that are loaded."""

import pytest

from controlplane.gateway.texts.reading import Tokenisers
from tests.controlplane.gateway.texts.several_tokenizers import BOTH


@pytest.fixture(scope="module")
def tokenisers() -> Tokenisers:
    made = Tokenisers()
    made.follow(BOTH, BOTH)
    return made
