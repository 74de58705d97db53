"""What is kept of a measuring for whoever measures the same again."""

import json
from dataclasses import replace

from controlplane.profiling.notebook import Readings, readings_of, values_of
from profiler.sandbox.measure import Weight
from tests.variants.catalog_builders import profile, variant

SEEN = Readings(
    weighed={"1,2": Weight(9.5, 4.25), "1": Weight(8.0)},
    profile=replace(profile(), memory_mib=9.5, working_mib=4.25),
)


def test_what_was_seen_comes_back_as_it_was() -> None:
    assert readings_of(json.loads(json.dumps(values_of(SEEN))), variant()) == SEEN


def test_what_was_kept_without_the_share_of_batches_is_weighed_again() -> None:
    kept = values_of(SEEN)
    del kept["weights"]
    kept["weighed"] = {"1,2": 9.5}
    found = readings_of(kept, variant())
    assert (found.weighed, found.profile) == ({}, None)
