"""What a variant counts with, and that what is counted is enough for what is taken."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.variants.catalog_builders import kind, profile
from variants.working_memory import counted_mib, own_working_mib, shared_mib

SIZES = st.tuples(st.floats(0.0, 500.0), st.none() | st.floats(0.0, 900.0))
"""What a variant holds, and what its batches take."""


def test_an_eighth_is_shared_and_a_gibibyte_at_most() -> None:
    assert shared_mib(kind(memory_mib=800.0)) == 100.0
    assert shared_mib(kind(memory_mib=100_000.0)) == 1_024.0


def test_on_a_gpu_nothing_is_shared() -> None:
    gpu, batches = kind(gpu="NVIDIA H100"), profile(memory_mib=50.0, working_mib=20.0)
    assert shared_mib(gpu) == 0.0
    assert counted_mib(batches, gpu) == 50.0


@pytest.mark.parametrize(
    ("working_mib", "counted", "own"),
    [(None, 300.0, 0.0), (0.0, 300.0, 0.0), (100.0, 200.0, 0.0), (160.0, 200.0, 60.0)],
)
def test_only_what_goes_beyond_the_share_counts(
    working_mib: float | None, counted: float, own: float
) -> None:
    one, cpu = profile(memory_mib=300.0, working_mib=working_mib), kind(memory_mib=800.0)
    assert (counted_mib(one, cpu), own_working_mib(one, cpu)) == (counted, own)


@given(st.lists(SIZES, min_size=1), st.floats(1.0, 20_000.0))
def test_one_batch_at_a_time_takes_no_more_than_is_counted_and_the_share(
    sizes: list[tuple[float, float | None]], memory_mib: float
) -> None:
    cpu = kind(memory_mib=memory_mib)
    one = profile()
    loaded = [
        replace(one, memory_mib=held + (working or 0.0), working_mib=working)
        for held, working in sizes
    ]
    counted = sum(counted_mib(each, cpu) for each in loaded)
    taken = sum(held for held, _ in sizes) + max(working or 0.0 for _, working in sizes)
    assert taken <= counted + shared_mib(cpu) + 1e-6
