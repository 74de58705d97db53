"""Damaged artifacts in a running system: refused with the reason, told, and brought back.

In the end all of them are as they were.
"""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.integration.deployment import CLI, PATIENT, Answer, Deployment, environment

pytestmark = [pytest.mark.integration, pytest.mark.campaign]

PATIENCE_S = 600.0

FP32 = "cnn-small-v1-onnx-fp32"
CHANGED = "cnn-small-v1-onnx-int8"
CUT = "mlp-v1-onnx-int8"


@pytest.fixture(scope="module")
def damaged(digits: Deployment) -> dict[str, bytes]:
    """Three variants whose artifacts are damaged, then the worker is killed; what was there."""
    names = {v["name"] for v in digits.variants()}
    before = {name: stored(digits, name).read_bytes() for name in names}
    rebuilt, changed, cut = FP32, CHANGED, CUT
    for name in (rebuilt, changed):
        whole = before[name]
        at = len(whole) // 2
        write(
            digits, name, whole[:at] + bytes(b ^ 0x55 for b in whole[at : at + 7]) + whole[at + 7 :]
        )
    write(digits, cut, before[cut][:100])
    [worker] = digits.workers()
    os.kill(worker["pid"], signal.SIGKILL)
    digits.until(
        lambda: [w for w in digits.workers() if w["pid"] != worker["pid"] and digits.ready(w)],
        "a new worker",
        PATIENCE_S,
    )
    return before


def test_what_the_source_gives_is_rebuilt_by_itself(
    digits: Deployment, damaged: dict[str, bytes]
) -> None:
    told = digits.until(
        lambda: events(digits, f"digits/{FP32}", "artifact_rebuilt"), "", PATIENCE_S
    )
    assert told == ["rebuilt from its source, the same to the byte"]
    assert stored(digits, FP32).read_bytes() == damaged[FP32]
    assert len(events(digits, f"digits/{FP32}", "artifact_invalid")) == 1
    answer = digits.until(lambda: answered(pinned(digits, FP32)), FP32, PATIENCE_S)
    assert answer.body["variant"] == FP32


@pytest.mark.usefixtures("damaged")
@pytest.mark.parametrize("name", [CHANGED, CUT])
def test_what_cannot_be_rebuilt_is_refused_with_the_reason(digits: Deployment, name: str) -> None:
    answer = digits.until(
        lambda: found if (found := pinned(digits, name)).body["code"] != "COLD" else None,
        name,
        PATIENCE_S,
    )
    assert (answer.status, answer.body["code"]) == (503, "ARTIFACT_INVALID")
    assert answer.body["retryable"] is False
    assert f"{name!r} of task 'digits' cannot be loaded: its artifact" in answer.body["error"]
    assert "is damaged" in answer.body["reasons"][name]
    assert str(digits.state_dir) not in json.dumps(answer.body)

    [told] = digits.until(
        lambda: events(digits, f"digits/{name}", "rebuild_failed"), "the event", PATIENCE_S
    )
    assert "register the same file again" in told
    assert len(events(digits, f"digits/{name}", "artifact_invalid")) == 1


@pytest.mark.usefixtures("damaged")
def test_others_answer_with_an_accuracy_that_is_true(digits: Deployment) -> None:
    variants = {v["name"]: v for v in digits.variants()}
    for floor in (None, variants[CHANGED]["accuracy"], variants[CUT]["accuracy"]):
        slo = PATIENT | ({} if floor is None else {"accuracy": floor})
        answer = digits.until(
            lambda slo=slo: answered(digits.query([[0.0] * 64], slo=slo)), "an answer", PATIENCE_S
        )
        assert answer.body["variant"] not in (CHANGED, CUT)
        assert answer.body["slo_met"] is True


@pytest.mark.usefixtures("damaged")
def test_doctor_names_them_and_registering_again_brings_them_back(
    digits: Deployment, damaged: dict[str, bytes]
) -> None:
    digits.until(
        lambda: events(digits, f"digits/{FP32}", "artifact_rebuilt"), "rebuilt", PATIENCE_S
    )
    code, findings = run(digits, "doctor", "-o", "json")
    found = {one["message"]: one["remedy"] for one in findings if one["name"] == "artifacts"}
    assert code == 1
    assert len(found) == 2
    for name in (CHANGED, CUT):
        [(message, remedy)] = [(m, r) for m, r in found.items() if name in m]
        assert "is damaged" in message
        assert remedy == "`modelless repair` rebuilds it from its source"

    zoo = digits.state_dir / "zoo" / "digits"
    for model in ("cnn-small", "mlp"):
        code, body = run(
            digits, "register", str(zoo / model), "--task", "digits",
            "--eval", str(zoo / "evaluation.npz"), "--calibration", str(zoo / "calibration.npz"),
            "-o", "json", "--progress", "none",
        )  # fmt: skip
        assert (code, len(body["repaired"])) == (0, 1)
    for name in (CHANGED, CUT):
        assert stored(digits, name).read_bytes() == damaged[name]
        answer = digits.until(lambda name=name: answered(pinned(digits, name)), name, PATIENCE_S)
        assert (answer.body["variant"], answer.body["slo_met"]) == (name, True)
    code, findings = run(digits, "doctor", "-o", "json")
    assert [one["ok"] for one in findings if one["name"] == "artifacts"] == [True]


def pinned(digits: Deployment, name: str) -> Answer:
    return digits.query([[0.0] * 64], variant=name, slo=PATIENT)


def answered(answer: Answer) -> Answer | None:
    return answer if answer.status == 200 else None


def stored(digits: Deployment, name: str) -> Path:
    digest = str(digits.get(f"/v1/variants/digits/{name}")["artifact"])
    return digits.state_dir / "artifacts" / digest[:2] / digest[2:4] / digest


def write(digits: Deployment, name: str, data: bytes) -> None:
    path = stored(digits, name)
    path.chmod(0o644)
    path.write_bytes(data)


def events(digits: Deployment, subject: str, kind: str) -> list[str]:
    listed = digits.get("/v1/events?limit=1000")["events"]
    return [e["message"] for e in listed if (e["kind"], e["subject"]) == (kind, subject)]


def run(digits: Deployment, *arguments: str) -> tuple[int, Any]:
    ran = subprocess.run(
        [*CLI, *arguments],
        env=environment(digits.state_dir, digits.port),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=600,
        check=False,
    )
    return ran.returncode, json.loads(ran.stdout)
