"""``Client.register``: the form, the operation that is followed, and what comes of it."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane.client import (
    Client,
    Conflict,
    DeadlineExceeded,
    Exported,
    InvalidInput,
    RateLimited,
    Unreachable,
    registering,
)
from variants.types import Prefer

RESULT = {"task": "churn", "versions": [], "variants": [], "seconds": 1.0}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registering, "LOOK_EVERY_S", 0.01)
    for name in ("churn.onnx", "rows.npz", "more.npz"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


class There:
    """A gateway that answers with these operations, one after the other."""

    def __init__(self, *operations: Any, first: httpx.Response | None = None) -> None:
        self._first = first or httpx.Response(202, json={"id": "ab", "state": "running"})
        self._operations = list(operations)
        self.form = b""
        self.looks = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            self.form = request.read()
            return self._first
        assert request.url.path == "/v1/operations/ab"
        self.looks += 1
        found = self._operations[0] if len(self._operations) == 1 else self._operations.pop(0)
        if isinstance(found, httpx.Response):
            return found
        return httpx.Response(200, json={"id": "ab", "state": "running"} | found)

    @property
    def fields(self) -> dict[str, str]:
        boundary = self.form.split(b"\r\n", 1)[0]
        found = {}
        for part in self.form.split(boundary)[1:-1]:
            head, _, value = part.strip(b"\r\n").partition(b"\r\n\r\n")
            found[head.split(b'name="')[1].split(b'"')[0].decode()] = value.decode()
        return found


def register(there: There, folder: Path, **given: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"task": "churn", "evaluation": folder / "rows.npz"} | given
    model = asked.pop("model", folder / "churn.onnx")
    with Client(transport=httpx.MockTransport(there)) as client:
        return client.register(model, **asked)


def step(done: int) -> dict[str, Any]:
    return {"progress": {"step": "measure", "done": done, "total": 3, "message": f"step {done}"}}


def test_a_model_is_sent_and_followed_to_its_end(folder: Path) -> None:
    ends = {"state": "succeeded", "result": RESULT}
    busy = httpx.Response(503, json={"error": "away", "code": "STATE_UNAVAILABLE"})
    there = There(step(1), step(1), busy, step(2), ends)
    told: list[str] = []

    found = register(
        there, folder, name="forest", calibration=str(folder / "more.npz"), labels=["no", "yes"],
        variants=("onnx-int8", "onnx-fp16"), latency_ms=50, accuracy=0.9, prefer=Prefer.LATENCY,
        stage="canary", fresh=True, lengths=(16, 64), pad="ids=1",
        told=lambda one: told.append(one["message"]),
    )  # fmt: skip

    assert found == RESULT
    assert told == ["step 1", "step 2"]
    assert there.fields == {
        "task": "churn", "name": "forest", "labels": "no,yes", "latency_ms": "50",
        "accuracy": "0.9", "prefer": "latency", "variants": "onnx-int8,onnx-fp16",
        "stage": "canary", "model": "churn.onnx", "evaluation": "rows.npz",
        "calibration": "more.npz", "fresh": "true", "lengths": "16,64", "pad": "ids=1",
    }  # fmt: skip


def test_options_may_be_the_texts_of_the_command_line(folder: Path) -> None:
    there = There({"state": "succeeded", "result": RESULT})
    register(
        there, folder, labels="no,yes", lengths="16,64", variants="onnx-int8", image_mean="0.5",
        axis_sizes={"h": 8, "w": 8}, fix_inputs="sr=16000", keep_outputs=("scores", "boxes"),
    )  # fmt: skip
    assert there.fields == {
        "task": "churn", "name": "churn", "labels": "no,yes", "lengths": "16,64",
        "variants": "onnx-int8", "image_mean": "0.5", "axis_sizes": "h=8,w=8",
        "fix_inputs": "sr=16000", "keep_outputs": "scores,boxes", "model": "churn.onnx",
        "evaluation": "rows.npz",
    }  # fmt: skip


def test_what_was_exported_brings_its_labels(folder: Path) -> None:
    exported = Exported(
        path=folder / "churn.onnx", inputs=(), outputs=(), labels=("a", "b"), rows=1, difference=0.0
    )
    there = There({"state": "succeeded", "result": RESULT})
    register(there, folder, model=exported)
    assert there.fields["labels"] == "a,b"
    assert there.fields["name"] == "churn"


def test_why_nothing_was_registered_is_raised(folder: Path) -> None:
    error = {"error": "version 'churn-v1' exists", "code": "CONFLICT", "request_id": "ab"}
    with pytest.raises(Conflict, match="version 'churn-v1' exists"):
        register(There({"state": "failed", "error": error}), folder)
    full = httpx.Response(429, json={"error": "two register now", "code": "RATE_LIMITED"})
    with pytest.raises(RateLimited, match="two register now"):
        register(There(first=full), folder)
    with pytest.raises(Unreachable):
        register(There({"state": "succeeded", "result": None}), folder)


def test_a_registration_that_takes_too_long_goes_on_there(folder: Path) -> None:
    there = There(step(1))
    with pytest.raises(DeadlineExceeded, match=r"longer than 0\.05 s; it goes on at http"):
        register(there, folder, timeout_s=0.05)
    assert there.looks


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model": "nowhere.onnx"}, "model: there is no file nowhere.onnx"),
        ({"evaluation": "nowhere.npz"}, "evaluation: there is no file nowhere.npz"),
        ({"task": "a/b"}, "'a/b' cannot be the name of a task"),
        ({"name": ""}, "'' cannot be the name of a model"),
        ({"labels": ["a,b"]}, "a label has a comma"),
    ],
)
def test_what_cannot_be_sent_is_refused_here(
    folder: Path, given: dict[str, Any], said: str
) -> None:
    there = There({"state": "succeeded", "result": RESULT})
    with pytest.raises(InvalidInput, match=said):
        register(there, folder, **given)
    assert there.form == b""
