"""What ``modelless tasks`` changes, and how queries are explained, against a real gateway."""

from pathlib import Path

import pytest

from tests.controlplane.cli.gateway import Gateway
from tests.controlplane.cli.shell import Shell, Terminal


def test_leave_to_share_answers_is_given_and_taken_back(gateway: Gateway, shell: Shell) -> None:
    given = shell("tasks", "share", "digits", "--ttl-s", "5", url=gateway.url)
    said = "share a run; answers are kept for 5 s, at most 64 MiB"
    assert (given.code, given.out, given.err) == (0, f"digits: {said}\n", "")
    shown = shell("tasks", "get", "digits", url=gateway.url).out
    assert f"equal queries  {said}" in shown
    given = shell("tasks", "share", "digits", "--ttl-s", "0", url=gateway.url)
    assert given.out == "digits: share a run; no answer is kept\n"
    taken = shell("tasks", "unshare", "digits", url=gateway.url)
    assert (taken.code, taken.out) == (0, "digits: every query is run\n")


def test_sharing_that_cannot_be_is_said(gateway: Gateway, shell: Shell) -> None:
    wrong = shell("tasks", "share", "digits", "--memory-mib", "-1", url=gateway.url)
    assert (wrong.code, wrong.out) == (2, "")
    unknown = shell("tasks", "share", "nothing", url=gateway.url)
    assert (unknown.code, unknown.out) == (1, "")


def test_classes_are_named_from_a_list_and_from_a_file(
    gateway: Gateway, shell: Shell, tmp_path: Path
) -> None:
    names = [f"n{number}" for number in range(10)]
    file = tmp_path / "names.txt"
    file.write_text("\n".join(names))
    for given in (",".join(names), f"@{file}"):
        done = shell("tasks", "label", "digits", given, url=gateway.url)
        assert (done.code, done.err) == (0, "")
        assert done.out == f"digits: its 10 classes are called {', '.join(names)}\n"
    wrong = shell("tasks", "label", "digits", "cat,dog", url=gateway.url)
    assert (wrong.code, wrong.out) == (2, "")
    assert "has 2 labels, but output" in wrong.err
    taken = shell("tasks", "label", "digits", "", url=gateway.url)
    assert taken.out == "digits: its classes have no names\n"


@pytest.mark.parametrize("given", ["97", "97%", "-0.1", "nan", "all"])
def test_an_accuracy_that_is_no_share_is_told_how_one_is_written(
    gateway: Gateway, shell: Shell, given: str
) -> None:
    wrong = shell("tasks", "set", "digits", "--accuracy", given, url=gateway.url)
    said = f"must be from 0 to 1, such as 0.97 for 97 %, or 'any', not '{given}'"
    assert (wrong.code, wrong.out, wrong.err) == (2, "", f"error: --accuracy {said}\n")


def test_defaults_are_changed_one_by_one(gateway: Gateway, shell: Shell) -> None:
    done = shell(
        "tasks", "set", "digits", "--latency-ms", "50", "--accuracy", "0.9", url=gateway.url
    )
    said = "digits: unless asked otherwise within 50 ms, accuracy at least 90.00 %, cost any"
    assert (done.code, done.out, done.err) == (0, f"{said}, preferred is cost\n", "")
    done = shell(
        "tasks", "set", "digits", "--accuracy", "any", "--prefer", "latency", url=gateway.url
    )
    said = "digits: unless asked otherwise within 50 ms, accuracy any, cost any"
    assert done.out == f"{said}, preferred is latency\n"
    assert "50 ms unless asked otherwise" in shell("tasks", "get", "digits", url=gateway.url).out


def test_a_default_that_no_variant_reaches_is_told_of(gateway: Gateway, shell: Shell) -> None:
    done = shell("tasks", "set", "digits", "--accuracy", "0.9999", url=gateway.url)
    assert done.code == 0
    assert done.out.splitlines()[1] == (
        "digits: no live variant has the accuracy of 99.99 % that queries ask for which name none"
    )


def test_how_pictures_are_read_is_changed_and_shown(gateway: Gateway, shell: Shell) -> None:
    shown = shell("tasks", "get", "digits", url=gateway.url).out
    assert "pictures       8 x 8, grey, (value / 255 - 0) / 1" in shown
    done = shell("tasks", "set", "digits", "--image-std", "0.0625", url=gateway.url)
    said = "pictures are 8 x 8, grey, (value / 255 - 0) / 0.0625"
    assert (done.code, done.out, done.err) == (0, f"digits: {said}\n", "")
    both = ("--image-mean=-0.5", "--latency-ms", "50")
    done = shell("tasks", "set", "digits", *both, url=gateway.url)
    assert done.out.splitlines() == [
        "digits: unless asked otherwise within 50 ms, accuracy any, cost any, preferred is cost",
        "digits: pictures are 8 x 8, grey, (value / 255 - -0.5) / 0.0625",
    ]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--image-std", "0"), "the image std of task 'digits' is a divisor, and may not be 0"),
        (("--image-mean", "1,2"), "--image-mean has one number, or one for each of three channels"),
        ((), "nothing is to be changed"),
        (
            ("--accuracy", "much"),
            "--accuracy must be from 0 to 1, such as 0.97 for 97 %, or 'any', not 'much'",
        ),
        (("--cost", "nan"), "--cost must be a number or 'any', not 'nan'"),
        (("--cost", "1_0"), "--cost must be a number or 'any', not '1_0'"),
        (("--accuracy", "97"), "accuracy"),
        (("--latency-ms", "1e9"), "latency_ms"),
    ],
)
def test_defaults_that_cannot_be_are_said(
    gateway: Gateway, shell: Shell, options: tuple[str, ...], why: str
) -> None:
    wrong = shell("tasks", "set", "digits", *options, url=gateway.url)
    assert (wrong.code, wrong.out) == (2, "")
    assert why in wrong.err


def test_an_unknown_task_is_refused(gateway: Gateway, shell: Shell) -> None:
    unknown = shell("tasks", "set", "nothing", "--latency-ms", "5", url=gateway.url)
    assert (unknown.code, unknown.out) == (1, "")
    assert "there is no task 'nothing'" in unknown.err


def test_a_task_is_removed_only_if_somebody_says_so(gateway: Gateway, shell: Shell) -> None:
    asked = shell("tasks", "remove", "digits", url=gateway.url)
    assert (asked.code, asked.out) == (2, "")
    assert "nobody can be asked here; --yes says so" in asked.err
    assert "digits" in shell("tasks", "list", url=gateway.url).out
    done = shell("tasks", "remove", "digits", "--yes", url=gateway.url)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("task digits is removed: ")
    assert "There are no tasks" in shell("tasks", "list", url=gateway.url).out
    again = shell("tasks", "remove", "digits", "--yes", url=gateway.url)
    assert (again.code, again.out) == (1, "")
    assert "there is no task 'digits'" in again.err


def test_a_version_is_removed_once_it_is_retired(gateway: Gateway, shell: Shell) -> None:
    live = shell("delete", "digits", "mlp", "1", "--yes", url=gateway.url)
    assert (live.code, live.out) == (1, "")
    assert "only a retired version can be removed" in live.err
    shell("retire", "digits", "mlp", "1", url=gateway.url)
    done = shell("remove", "digits", "mlp", "1", "--yes", "-o", "json", url=gateway.url)
    assert done.json()["versions"] == ["mlp-v1"]
    shown = shell("models", "list", url=gateway.url).out
    assert "mlp " not in shown


@pytest.mark.parametrize(("answer", "left"), [("n", True), ("y", False)])
def test_at_a_terminal_it_is_asked(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch, answer: str, left: bool
) -> None:
    monkeypatch.setattr("controlplane.cli.confirmation.sys.stdin", Terminal(f"{answer}\n"))
    shell("tasks", "remove", "digits", url=gateway.url)
    assert ("digits" in shell("tasks", "list", url=gateway.url).out) is left


EXPLAINED = {
    "task": "digits", "latency_ms": 50.0, "accuracy": 0.97, "cost": None, "prefer": "cost",
    "best_effort": False, "pinned": None, "rows": 1, "outcome": "answered", "refusal": None,
    "plan": "The plan sends such queries to mlp-v1.",
    "doubt": "They differ by no more than chance.",
    "answer": {
        "variant": "mlp-v1-onnx-int8", "model_version": "mlp-v1", "worker": "w1",
        "device_kind": "cpu-4", "reason": "planned", "zone": "", "wait_ms": 1.0, "run_ms": 2.0,
        "predicted_ms": 3.3, "accuracy": 0.98, "price_usd_per_1k": 0.001, "loaded": True,
        "slo_met": True,
    },
    "variants": [
        {"variant": "mlp-v1-onnx-int8", "device_kind": "cpu-4", "accuracy": 0.98,
         "accuracy_low": 0.9, "accuracy_high": 0.99, "run_ms": 2.0,
         "price_usd_per_1k": 0.001, "loaded_on": 1, "verdict": "chosen", "why": "planned"},
        {"variant": "old-v1-onnx-fp32", "device_kind": None, "accuracy": None, "run_ms": None,
         "price_usd_per_1k": None, "loaded_on": 0, "verdict": "stopped", "why": "is retired"},
    ],
}  # fmt: skip


def test_an_explanation_is_shown_and_given_as_json(gateway: Gateway, shell: Shell) -> None:
    gateway.explained = EXPLAINED
    shown = shell("explain", "digits", "--latency-ms", "50", "--rows", "2", url=gateway.url)
    assert (shown.code, shown.err) == (0, "")
    assert gateway.asked == [{"task": "digits", "slo": {"latency_ms": 50.0}, "rows": 2}]
    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert "asked digits within 50 ms, accuracy at least 97.00 %, preferring cost; 1 row" in lines
    assert "doubt They differ by no more than chance." in lines
    assert "because the plan sends such queries there" in lines
    assert "→ mlp-v1-onnx-int8 cpu-4 98.00 % 4.50 2.00 1.00 1 worker planned" in lines
    assert "✗ old-v1-onnx-fp32 - - - - - - is retired" in lines
    assert shell("explain", "digits", "--json", url=gateway.url).json() == EXPLAINED


def test_a_refusal_is_explained_as_well(gateway: Gateway, shell: Shell) -> None:
    near = {
        "variant": "near", "accuracy": 0.9, "latency_ms": 1.0, "cost_usd_per_1k": 0.001,
        "reason": "accuracy 90.00 % < 97.00 %",
    }  # fmt: skip
    refusal = {
        "code": "SLO_INFEASIBLE", "error": "none can", "retry_after_s": None,
        "alternatives": [near],
    }  # fmt: skip
    gateway.explained = EXPLAINED | {"answer": None, "outcome": "refused", "refusal": refusal}
    shown = shell("explain", "digits", url=gateway.url).out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "refused SLO_INFEASIBLE: none can" in lines
    closest = "near: accuracy 90.00 %, 1.00 ms, 1.00 USD per million (accuracy 90.00 % < 97.00 %)"
    assert f"closest {closest}" in lines
