"""Frames: what is written is read, however the bytes arrive; garbage is refused by name."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from variants.catalog.validity.tasks import MAX_AXES
from workers.channel.frames import (
    HEADER,
    FrameKind,
    FrameRefused,
    Splitter,
    Violation,
    infer_frame,
    layout_of,
    refusal_frame,
    signature_of,
    small_frame,
    small_payload,
    unpack_infer,
    unpack_reply,
)
from workers.runtimes.protocol import Tensor
from workers.types import ReplyCode

DTYPES = ["float32", "float64", "int64", "int32", "uint8", "bool"]
tensors = st.lists(
    st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=4, max_side=5))
    ),
    min_size=1,
    max_size=3,
)


def parse(frame: bytes) -> list[Tensor]:
    length, _, _, described, *_ = unpack_infer(frame)
    base = HEADER + described
    layout = layout_of(frame[HEADER:base])
    assert base + layout.nbytes == length == len(frame)
    return layout.tensors(frame, base)


@settings(deadline=None)
@given(tensors)
def test_tensors_come_back_as_they_were_and_aligned(sent: list[Tensor]) -> None:
    got = parse(b"".join(infer_frame(1, 2, 3, 4, sent)))
    assert [(t.dtype, t.shape, t.tobytes()) for t in got] == [
        (t.dtype, t.shape, t.tobytes()) for t in sent
    ]
    assert all(t.flags.aligned for t in got)


def test_tensors_that_are_not_contiguous_are_sent_in_their_order() -> None:
    sent = np.arange(12, dtype=np.float32).reshape(3, 4).T
    np.testing.assert_array_equal(parse(b"".join(infer_frame(1, 2, 3, 4, [sent])))[0], sent)


def test_large_tensors_are_not_copied() -> None:
    sent = np.zeros((1, 100_000), dtype=np.float32)
    chunks = infer_frame(1, 2, 1, 4, [sent])
    assert any(np.shares_memory(sent, np.frombuffer(c, np.uint8)) for c in chunks)
    np.testing.assert_array_equal(parse(b"".join(chunks))[0], sent)


def test_the_header_says_what_was_asked() -> None:
    frame = b"".join(infer_frame(7, 2**64 - 1, 3, 4_000, [np.zeros((3, 2), "<f4")], 9, False, 5))
    assert unpack_infer(frame) == (
        len(frame), FrameKind.INFER, 0, 16, 7, 3, 2**64 - 1, 4_000, 9, 5,
    )  # fmt: skip


def test_a_type_that_the_channel_does_not_carry_is_refused() -> None:
    with pytest.raises(TypeError, match="complex64"):
        infer_frame(1, 2, 3, 4, [np.zeros(1, dtype=np.complex64)])


def test_big_endian_numbers_are_refused_rather_than_misread() -> None:
    with pytest.raises(TypeError, match=">f4"):
        infer_frame(1, 2, 3, 4, [np.zeros(1, dtype=">f4")])


def test_a_refusal_carries_its_message() -> None:
    frame = refusal_frame(ReplyCode.COLD, 5, 60, "not here")
    assert unpack_reply(frame) == (
        len(frame),
        FrameKind.REPLY,
        ReplyCode.COLD,
        0,
        5,
        0,
        0,
        0,
        60,
        8,
    )
    assert frame[HEADER:] == b"not here"


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50), max_size=20), st.data())
def test_frames_are_found_however_the_stream_is_cut(
    payloads: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(small_frame(FrameKind.STATUS, payload) for payload in payloads)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=10).map(sorted))
    splitter = Splitter(1_000)
    splitter.stepwise = data.draw(st.booleans())
    found: list[bytes] = []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        chunk = stream[begin:end]
        while True:
            buffer, begins = splitter.feed(chunk)
            found += [
                small_payload(buffer[at : at + int.from_bytes(buffer[at : at + 4], "little")])
                for at in begins
            ]
            if not begins:
                break
            chunk = b""
    assert found == payloads


@pytest.mark.parametrize(
    ("data", "violation"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", Violation.TOO_LARGE),
        (bytes(16), Violation.MALFORMED),
        ((17).to_bytes(4, "little"), Violation.MALFORMED),
        ((2_000).to_bytes(4, "little"), Violation.TOO_LARGE),
    ],
)
def test_impossible_lengths_are_refused(data: bytes, violation: Violation) -> None:
    with pytest.raises(FrameRefused) as refused:
        Splitter(1_000).feed(data)
    assert refused.value.violation is violation


@given(st.binary(max_size=64))
def test_any_signature_is_decoded_or_refused(signature: bytes) -> None:
    with suppress(FrameRefused):
        assert layout_of(signature).nbytes % 8 == 0


def test_whatever_tensor_may_be_registered_is_carried() -> None:
    tensor = np.zeros((1,) * (1 + MAX_AXES), dtype=np.float32)
    assert layout_of(signature_of([tensor])).shapes == [tensor.shape]


def test_a_refusal_says_whom_its_message_is_for_and_takes_any_text() -> None:
    frame = refusal_frame(ReplyCode.FAILED, 5, 60, "not \udcff text", True)
    assert unpack_reply(frame)[3] == 1
    assert frame[HEADER:].rstrip(b"\0") == rb"not \udcff text"
