"""What is kept of answers: for how long, how much, and of which variants."""

import gc
import tracemalloc

import numpy as np
import pytest

from controlplane.gateway.sharing.content import content_key
from controlplane.gateway.sharing.kept_answers import KeptAnswers, Source
from variants.types import Digest, Sharing, VariantName
from workers.runtimes.protocol import Tensor

FP32, INT8 = VariantName("m-v1-onnx-fp32"), VariantName("m-v1-onnx-int8")
SOURCES: dict[VariantName, Source] = {
    FP32: (Digest("a" * 64), 0.99),
    INT8: (Digest("b" * 64), 0.95),
}
ONE: list[Tensor] = [np.array([[1.0, 2.0]], np.float32)]


def kept(ttl_s: float = 10.0, memory_mib: float = 1.0) -> KeptAnswers:
    return KeptAnswers(Sharing(ttl_s=ttl_s, memory_mib=memory_mib), SOURCES)


def add(to: KeptAnswers, key: bytes, now_ms: float, variant: VariantName = FP32) -> None:
    to.add(key, variant, "m-v1", "w1", 1, ONE, now_ms)


def test_an_answer_is_given_until_it_is_too_old() -> None:
    answers = kept(ttl_s=10.0)
    add(answers, b"k", 1_000.0)
    (found,) = answers.find(b"k", 10_999.0)
    assert (found.variant, found.worker, found.outputs[0].tolist()) == (FP32, "w1", [[1.0, 2.0]])
    assert answers.find(b"other", 1_000.0) == []
    assert answers.find(b"k", 11_000.0) == []
    assert (len(answers), answers.size_bytes) == (0, 0)


def test_what_is_kept_is_its_own_and_cannot_be_changed() -> None:
    """What comes from a worker is a view of a buffer that holds more."""
    answers, buffer = kept(), np.zeros((1_000, 2), np.float32)
    answers.add(b"k", FP32, "m-v1", "w1", 1, [buffer[:1]], 0.0)
    buffer[:] = 7.0
    (found,) = answers.find(b"k", 1.0)
    assert found.outputs[0].tolist() == [[0.0, 0.0]]
    assert found.outputs[0].base is None
    with pytest.raises(ValueError, match="read-only"):
        found.outputs[0][:] = 1.0


def test_variants_have_answers_of_their_own() -> None:
    answers = kept()
    add(answers, b"k", 0.0, INT8)
    add(answers, b"k", 0.0, FP32)
    assert [one.variant for one in answers.find(b"k", 1.0)] == [FP32, INT8]


def test_a_new_answer_takes_the_place_of_the_old_one() -> None:
    answers = kept(ttl_s=10.0)
    add(answers, b"k", 0.0)
    size = answers.size_bytes
    add(answers, b"k", 9_000.0)
    assert (len(answers), answers.size_bytes) == (1, size)
    assert len(answers.find(b"k", 15_000.0)) == 1


def test_who_was_asked_for_longest_ago_leaves_first() -> None:
    answers = kept(memory_mib=3_000 / 2**20)
    for key in (b"a", b"b", b"c"):
        add(answers, key, 0.0)
    (first,) = answers.find(b"a", 1.0)
    answers.used(b"a", first)
    add(answers, b"d", 2.0)
    assert [bool(answers.find(key, 3.0)) for key in (b"a", b"b", b"c", b"d")] == [
        True, False, True, True,
    ]  # fmt: skip
    assert answers.evicted == 1


def test_an_answer_larger_than_all_room_is_not_kept() -> None:
    answers = kept(memory_mib=1.0)
    add(answers, b"k", 0.0)
    answers.add(b"l", FP32, "m-v1", "w1", 1, [np.zeros((1, 2**18), np.float32)], 0.0)
    assert (len(answers), len(answers.find(b"k", 1.0)), answers.evicted) == (1, 1, 0)


def test_nothing_is_kept_for_no_time_nor_of_what_has_left_service() -> None:
    answers = kept(ttl_s=0.0)
    add(answers, b"k", 0.0)
    assert len(answers) == 0
    answers = kept()
    add(answers, b"k", 0.0, VariantName("gone-v1-onnx-fp32"))
    assert len(answers) == 0


@pytest.mark.parametrize(
    ("now", "kept_then"),
    [
        (SOURCES, 2),
        ({FP32: SOURCES[FP32]}, 0),
        ({**SOURCES, INT8: (Digest("c" * 64), 0.95)}, 0),
        ({**SOURCES, INT8: (Digest("b" * 64), 0.90)}, 0),
        ({**SOURCES, VariantName("new-v1-onnx-fp32"): (Digest("d" * 64), 0.9)}, 2),
    ],
    ids=["the same", "retired", "another artifact", "another accuracy", "one more variant"],
)
def test_another_catalog(now: dict[VariantName, Source], kept_then: int) -> None:
    answers = kept()
    add(answers, b"k", 0.0, FP32)
    add(answers, b"l", 0.0, INT8)
    answers.follow(answers.sharing, now)
    assert len([*answers.find(b"k", 1.0), *answers.find(b"l", 1.0)]) == kept_then
    answers.sweep(1.0)
    assert len(answers) == kept_then
    assert (answers.size_bytes > 0) == (kept_then > 0)


def test_much_is_freed_little_by_little() -> None:
    """Freeing tens of thousands of answers at once would keep queries waiting."""
    answers = kept(memory_mib=16.0)
    for key in range(2_500):
        add(answers, key.to_bytes(32, "big"), 0.0)
    answers.clear()
    left = []
    while len(answers):
        answers.sweep(1.0)
        left.append(len(answers))
    assert left == [1_500, 500, 0]
    assert (answers.size_bytes, answers.evicted) == (0, 0)


def test_tighter_limits_hold_for_what_is_kept() -> None:
    answers = kept()
    for key in range(100):
        add(answers, bytes([key]), 0.0)
    answers.follow(Sharing(ttl_s=10.0, memory_mib=8_000 / 2**20), SOURCES)
    answers.sweep(1.0)
    assert 0 < answers.size_bytes <= 8_000
    answers.follow(Sharing(ttl_s=5.0, memory_mib=1.0), SOURCES)
    assert answers.find(bytes([99]), 1.0) == []


def test_a_sweep_forgets_what_is_too_old() -> None:
    answers = kept(ttl_s=10.0)
    add(answers, b"old", 0.0)
    add(answers, b"new", 5_000.0)
    answers.sweep(12_000.0)
    assert (len(answers), len(answers.find(b"new", 12_000.0))) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("floats", [4, pytest.param(1_000, marks=pytest.mark.campaign)])
def test_memory_is_bounded_in_truth(floats: int) -> None:
    """As Python's allocator counts it, and not only as the answers count themselves."""
    answers = kept(memory_mib=4.0)
    output = np.zeros((1, floats), np.float32)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for key in range(20_000):
        answers.add(key.to_bytes(32, "big"), FP32, "m-v1", "w1", 1, [output], 0.0)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answers.evicted > 0
    assert 2.0 * 2**20 < after - before <= 4.0 * 2**20


def test_what_differs_has_another_key() -> None:
    zeros: Tensor = np.zeros((2, 3), np.float32)
    different: list[list[Tensor]] = [
        [zeros],
        [zeros.reshape(3, 2)],
        [zeros.reshape(1, 6)],
        [zeros.astype(np.int32)],
        [zeros.view(np.uint8)],
        [zeros[:1], zeros[1:]],
        [zeros[:1]],
        [-zeros],
        [zeros + np.float32(1e-45)],
        [zeros, zeros],
    ]
    assert len({content_key(tensors) for tensors in different}) == len(different)


def test_what_is_equal_has_the_same_key_however_it_lies() -> None:
    wide = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert content_key([wide[:, ::2]]) == content_key([wide[:, ::2].copy()])
