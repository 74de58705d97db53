"""When a profile says nothing of the machine any more."""

import pytest

from profiler.fingerprint import fingerprint, is_stale

WAS = "Xeon; family 6 model 207; 2 cores; Linux 6.1.0; onnxruntime 1.30.0"


def test_a_fingerprint_is_not_stale_where_it_was_taken() -> None:
    now = fingerprint("onnxruntime", "numpy", gpu="NVIDIA H200", driver="580.1")
    assert "; onnxruntime 1." in now
    assert now.endswith("; GPU NVIDIA H200; driver 580.1")
    assert is_stale(now, now) is None


def test_a_library_that_is_not_there_is_said_to_be_missing() -> None:
    assert fingerprint("no-such-library").endswith("; no no-such-library")


@pytest.mark.parametrize(
    ("now", "clause"),
    [
        (WAS.replace("1.30.0", "1.31.1"), "onnxruntime 1.30.0 -> 1.31.1"),
        (WAS.replace("onnxruntime 1.30.0", "no onnxruntime"), "onnxruntime 1.30.0 -> none"),
        (WAS.replace("2 cores", "4 cores"), "cores 2 -> 4"),
        (WAS.replace("Xeon", "EPYC"), "processor Xeon -> EPYC"),
        (WAS.replace("model 207", "model 143"), "family 6 model 207 -> 6 model 143"),
        (WAS.replace("Linux 6.1.0", "Darwin 24.0"), "system Linux -> Darwin"),
        (WAS.replace("6.1.0", "6.2.0"), None),
        (WAS + "; torch 2.13.0", None),
        (
            WAS.replace("2 cores", "4 cores").replace("1.30.0", "1.31.1"),
            "cores 2 -> 4, onnxruntime 1.30.0 -> 1.31.1",
        ),
    ],
)
def test_what_changed_is_said_in_one_clause(now: str, clause: str | None) -> None:
    assert is_stale(WAS, now) == clause


def test_a_gpu_or_its_driver_may_change() -> None:
    was = WAS + "; GPU NVIDIA H200; driver 580.1"
    assert is_stale(was, was.replace("580.1", "590.2")) == "driver 580.1 -> 590.2"
    assert is_stale(was, was.replace("H200", "H100")) == "GPU NVIDIA H200 -> NVIDIA H100"
    assert is_stale(was, WAS) is None


def test_older_and_empty_lines_are_compared_by_what_they_have() -> None:
    assert is_stale("Xeon; 2 cores; Linux 6.1.0; onnxruntime 1.30.0", WAS) is None
    assert is_stale("Xeon; 2 cores; Linux 6.1.0; onnxruntime 1.29.0", WAS) == (
        "onnxruntime 1.29.0 -> 1.30.0"
    )
    assert is_stale("", WAS) is None
