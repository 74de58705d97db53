"""What becomes of a child that misbehaves."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from profiler.sandbox import child
from profiler.sandbox.limits import SandboxLimits
from profiler.sandbox.sandbox import Sandbox
from tests import onnx_models as models
from variants.errors import (
    InvalidArtifact,
    TrialKilled,
    TrialTooLarge,
    VariantNotBuilt,
)

pytestmark = pytest.mark.slow

ROGUE = "tests.profiler.sandbox.rogue"


def rogue(time_s: float = 600.0) -> Sandbox:
    """Its time is long, as what is not about it must not fail where a process starts slowly."""
    return Sandbox(SandboxLimits(memory_mib=500, time_s=time_s), module=ROGUE)


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        ("crash", "m: it crashed its trial process (SIGABRT)"),
        ("leave", "m: its trial process ended with code 3 and gave no answer"),
        ("babble", "m: its trial process wrote what is no answer"),
        ("flood", "m: its trial process wrote what is no answer"),
        ("list", "m: its trial process gave no result"),
        ("refuse", "m: it cannot be loaded: no rule for it"),
    ],
)
def test_misbehaviour_becomes_a_sentence_and_no_process_stays(method: str, sentence: str) -> None:
    before = set(psutil.Process().children())
    with rogue() as sandbox, pytest.raises(InvalidArtifact) as refusal:
        sandbox.call(method, {}, subject="m")
    assert refusal.value.message == sentence
    assert set(psutil.Process().children()) <= before


@pytest.mark.parametrize(
    ("counts", "kind", "sentence"),
    [
        (
            (3, 3),
            TrialKilled,
            "m: its trial process was killed, and the kernel tells of no want of memory",
        ),
        (
            (3, 4),
            TrialTooLarge,
            "m: its trial process was killed, probably because memory ran out",
        ),
        (
            (None, None),
            TrialKilled,
            "m: its trial process was killed; whether memory ran out is not known",
        ),
    ],
)
def test_one_that_was_killed_is_said_to_lack_memory_where_the_kernel_killed_for_it(
    counts: tuple[int | None, int | None], kind: type[InvalidArtifact], sentence: str
) -> None:
    """As when a node is lost: what runs on it is killed."""
    kills = iter(counts)
    sandbox = Sandbox(module=ROGUE, kills=lambda: next(kills))
    with sandbox, pytest.raises(InvalidArtifact) as refusal:
        sandbox.call("killed", {}, subject="m")
    assert (type(refusal.value), refusal.value.message) == (kind, sentence)


def test_of_processes_that_memory_is_short_for_a_trial_goes_first(tmp_path: Path) -> None:
    """Those that answer queries have Ray's score, the highest: none of them went after it."""
    model = models.write(tmp_path / "m.onnx")
    with Sandbox() as sandbox:
        sandbox.call("check", {"path": str(model), "size_mib": 1}, subject="m")
        assert Path(f"/proc/{sandbox.pid}/oom_score_adj").read_text() == "1000\n"


def test_a_child_that_hangs_is_killed_by_its_pid() -> None:
    with rogue(time_s=0.5) as sandbox:
        pid = sandbox.pid
        with pytest.raises(InvalidArtifact, match=r"did not finish within 0\.5 s"):
            sandbox.call("hang", {}, subject="m")
        assert not psutil.pid_exists(pid)
        with pytest.raises(InvalidArtifact, match="has ended"):
            sandbox.call("work", {}, subject="m")


def test_with_a_gpu_what_is_resident_is_watched() -> None:
    limits = SandboxLimits(memory_mib=100, libraries_mib=100)
    with Sandbox(limits, gpu=True, module=ROGUE) as sandbox:
        pid = sandbox.pid
        with pytest.raises(InvalidArtifact, match="m: it needs more than the 100 MiB of a trial"):
            sandbox.call("swell", {}, subject="m")
        assert not psutil.pid_exists(pid)


def test_what_a_child_has_started_ends_with_it() -> None:
    """A back end that compiles starts compilers."""
    with rogue() as sandbox:
        started = psutil.Process(sandbox.call("spawn", {}, subject="m")["pid"])
    gone, _ = psutil.wait_procs([started], timeout=60)
    assert gone or started.status() == psutil.STATUS_ZOMBIE


def test_an_exception_outside_ends_the_child() -> None:
    pids: list[int] = []

    def interrupted() -> None:
        with rogue() as sandbox:
            pids.append(sandbox.pid)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not psutil.pid_exists(pids[0])


def test_progress_comes_before_the_result() -> None:
    told: list[tuple[int, int]] = []
    with rogue() as sandbox:
        result = sandbox.call("work", {}, subject="m", announce=lambda *far: told.append(far))
    assert (told, result) == ([(1, 2)], {"answer": 42})


def test_a_call_that_tells_how_far_it_is_has_its_time_anew() -> None:
    """Judging by many rows may take longer than what is allowed for one silence."""
    now_s = 0.0

    def announce(*_: int) -> None:
        nonlocal now_s
        now_s += 500.0

    limits = SandboxLimits(memory_mib=500, time_s=600.0)
    with Sandbox(limits, module=ROGUE, clock_s=lambda: now_s) as sandbox:
        assert sandbox.call("plod", {}, subject="m", announce=announce) == {"answer": 42}
    assert now_s == 8 * 500.0


def test_progress_that_is_none_is_no_answer() -> None:
    with rogue() as sandbox, pytest.raises(InvalidArtifact, match="wrote what is no answer"):
        sandbox.call("boast", {}, subject="m")


def test_the_child_sees_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELLESS_API_TOKEN", "secret")
    with rogue() as sandbox:
        names = sandbox.call("environment", {}, subject="m")["names"]
    assert "MODELLESS_API_TOKEN" not in names


def test_the_real_child_refuses_without_dying(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.onnx"
    wrong.write_text("no model")
    right = models.write(tmp_path / "right.onnx")
    with Sandbox() as sandbox:
        with pytest.raises(InvalidArtifact, match="is not an ONNX model"):
            sandbox.call("check", {"path": str(wrong), "size_mib": 1}, subject="m")
        info = sandbox.call("check", {"path": str(right), "size_mib": 1}, subject="m")
    assert (info["opset"], info["parameters"]) == (20, 12)


def test_a_child_keeps_to_the_limit_that_its_parent_has() -> None:
    """Under `ulimit -v` every trial ended at once: no process may raise its own hard limit."""
    program = (
        "import resource as r; from profiler.sandbox.child import limit_memory;"
        " r.setrlimit(r.RLIMIT_AS, (4 << 30, 4 << 30)); limit_memory(8192, 1);"
        " assert r.getrlimit(r.RLIMIT_AS) == (4 << 30, 4 << 30); limit_memory(512, 1);"
        " soft, hard = r.getrlimit(r.RLIMIT_AS); assert 512 << 20 < soft == hard < 4 << 30"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert said.returncode == 0, said.stderr


def test_a_builder_that_declines_is_told_apart(tmp_path: Path) -> None:
    models.write_rows(tmp_path / "rows.npz", labels=None)
    with Sandbox() as sandbox, pytest.raises(VariantNotBuilt, match="no builder makes 'onnx-fp1'"):
        sandbox.call(
            "build",
            {
                "kind": "onnx-fp1",
                "source": "s",
                "target": str(tmp_path / "t"),
                "calibration": str(tmp_path / "rows.npz"),
            },
            subject="m",
        )


def test_the_real_child_never_imports_what_it_does_not_run() -> None:
    """Starting it has to stay cheap: it happens for every variant."""
    import subprocess
    import sys

    heavy = ["torch", "sklearn", "ray", "sqlalchemy", "fastapi", "onnx"]
    code = f"import sys, profiler.sandbox.child; print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("refusal", [InvalidArtifact, VariantNotBuilt])
@pytest.mark.parametrize("cause", [MemoryError("std::bad_alloc"), RuntimeError("bad allocation")])
def test_want_of_memory_is_told_whatever_was_made_of_it(
    monkeypatch: pytest.MonkeyPatch, refusal: type[InvalidArtifact], cause: Exception
) -> None:
    """Of a file of 1.9 GiB it was said that it is no valid model: std::bad_alloc."""

    def fails(arguments: object, announce: object) -> dict[str, object]:
        raise refusal("model.onnx is not a valid ONNX model: std::bad_alloc") from cause

    monkeypatch.setitem(child.METHODS, "check", fails)
    reply = child.answer({"method": "check", "arguments": {}}, lambda *_: None)
    assert reply == {"error": child.TOO_MUCH_MEMORY, "kind": "TrialTooLarge"}


def test_a_refusal_for_another_reason_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(arguments: object, announce: object) -> dict[str, object]:
        raise VariantNotBuilt("nothing to quantise") from ValueError("no such node")

    monkeypatch.setitem(child.METHODS, "build", fails)
    reply = child.answer({"method": "build", "arguments": {}}, lambda *_: None)
    assert reply == {"error": "nothing to quantise", "kind": "VariantNotBuilt"}
