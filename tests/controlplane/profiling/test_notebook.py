"""What is kept of a measuring for whoever measures the same again."""

import json
from dataclasses import replace

from controlplane.profiling.notebook import Readings, _readings, _values
from profiler.sandbox.measure import Weight
from tests.variants.catalog_builders import profile, variant

SEEN = Readings(
    weighed={"1,2": Weight(9.5, 4.25), "1": Weight(8.0)},
    profile=replace(profile(), memory_mib=9.5, working_mib=4.25),
)


def test_what_was_seen_comes_back_as_it_was() -> None:
    assert _readings(json.loads(json.dumps(_values(SEEN))), variant()) == SEEN


def test_what_was_kept_without_the_share_of_batches_is_weighed_again() -> None:
    kept = _values(SEEN)
    del kept["weights"]
    kept["weighed"] = {"1,2": 9.5}
    found = _readings(kept, variant())
    assert (found.weighed, found.profile) == ({}, None)
