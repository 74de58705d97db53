"""What ``modelless register`` says of what was registered."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.building.build_cache import BuildCache
from controlplane.building.types import RegistrationResult, SkippedVariant
from controlplane.cli.registration_results import (
    FEW_ROWS,
    asked_like,
    body_table,
    few_rows,
    left_behind,
    result_body,
    result_table,
    what_it_answers,
)
from tests.controlplane.builders import digits_catalog
from variants.types import Digest, ModelName, ModelVersion, Stage, Task, TaskName


def test_an_interrupt_that_leaves_nothing_says_so() -> None:
    quick = "nothing was registered; --quick judges by fewer rows and measures less"
    assert left_behind("nothing was registered", None, quick=False) == quick
    cache = BuildCache(Path("cache"), 0)
    assert left_behind("nothing was registered", cache, quick=False) == quick
    assert left_behind("nothing was registered", cache, quick=True) == "nothing was registered"


def version(stage: Stage) -> ModelVersion:
    return ModelVersion(
        task=TaskName("t"), model=ModelName("a"), version=2, stage=stage, source=Digest("0" * 64)
    )


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (
            Stage.CANARY,
            "a-v2 answers only queries that name it or one of its variants, until `modelless canary"
            " t a 2 --share 5%` gives it a share of the others or `modelless promote t a 2` makes"
            " it live",
        ),
        (Stage.CANDIDATE, "a-v2 answers nothing until `modelless promote t a 2`"),
    ],
)
def test_a_version_that_does_not_take_over_says_what_would_let_it(stage: Stage, words: str) -> None:
    assert what_it_answers("t", "a", 2, stage) == words


@pytest.mark.parametrize("new", [True, False])
def test_which_queries_it_answers_is_said_of_new_versions_alone(
    new: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    task = Task(name=TaskName("t"), inputs=(), outputs=())
    result = RegistrationResult(
        task=task, versions=(version(Stage.LIVE),), variants=(), profiles=()
    )
    result_table(result, 1.0, on_cluster=False, new=new)
    said = capsys.readouterr().out
    assert "task t: a-v2 (live) in 1.0 s" in said
    assert ("may answer any query" in said) is new


def test_what_was_registered_elsewhere_is_told_in_as_many_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Which queries it may answer, what was left out of it and its throughput were not."""
    catalog = digits_catalog().snapshot()
    variants = tuple(
        replace(one, note="64 rows at once and more do not finish within 900 s: left out")
        for one in catalog.variants
    )
    result = RegistrationResult(
        task=catalog.tasks[0],
        versions=catalog.versions,
        variants=variants,
        profiles=catalog.profiles,
        doubts=("it is doubtful",),
        repaired=("an artifact was repaired",),
    )
    result_table(result, 1.0, on_cluster=False)
    here = capsys.readouterr().out
    assert "may answer any query of digits from now on" in here
    assert "doubtful: it is doubtful" in here
    assert f"{variants[0].name}: 64 rows at once and more do not finish" in here
    body_table(json.loads(json.dumps(result_body(result, 1.0))))
    assert capsys.readouterr().out == here


def test_what_was_left_out_for_the_same_reason_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nothing, gpus = "it has nothing to quantise", "it runs on GPUs only"
    reasons = {"int8": nothing, "cuda": gpus, "entropy": nothing}
    result = RegistrationResult(
        task=digits_catalog().snapshot().tasks[0], versions=(), variants=(), profiles=(),
        skipped=tuple(SkippedVariant(name=name, reason=reason) for name, reason in reasons.items()),
    )  # fmt: skip
    result_table(result, 1.0, on_cluster=False)
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("left out")]
    assert said == [f"left out: int8, entropy: {nothing}", f"left out: cuda: {gpus}"]


def test_a_quick_registration_elsewhere_says_where_the_rest_is_done(
    capsys: pytest.CaptureFixture[str],
) -> None:
    catalog = digits_catalog().snapshot()
    result = RegistrationResult(
        task=catalog.tasks[0],
        versions=catalog.versions,
        variants=catalog.variants,
        profiles=catalog.profiles,
    )
    body_table(result_body(result, 1.0), quick=True, there="http://a:8000")
    assert "was predicted, both on the machine of http://a:8000\n" in capsys.readouterr().out


def test_an_accuracy_on_few_rows_is_told_with_what_it_may_be() -> None:
    def judged(accuracy: float, rows: int) -> list[dict[str, object]]:
        return [{"name": "it-v1-onnx-fp32", "accuracy": accuracy, "accuracy_rows": rows}]

    assert few_rows(judged(1.0, 8), "top1") == (
        "few rows: 8 rows judged it-v1-onnx-fp32: it is right in 100.00 % of them, and may be in"
        " 67.6 to 100.0 % of others (95 % interval)"
    )
    assert few_rows(judged(0.9, 8), "r2") == (
        "few rows: 8 rows judged it-v1-onnx-fp32, and what its accuracy is may be chance"
    )
    assert few_rows(judged(1.0, FEW_ROWS), "top1") == ""
    assert few_rows([], "top1") == ""
    [rare] = judged(0.9, 100)
    assert few_rows([{**rare, "note": "as handed in; its rarest class has 3 rows"}], "f1") == (
        "few rows of a class: of those that judged it-v1-onnx-fp32, its rarest class has 3 rows,"
        " and what its accuracy is may be chance"
    )


def test_how_a_task_is_asked_is_said_by_the_rows_that_judged_it(tmp_path: Path) -> None:
    texts, pairs, words = (tmp_path / name for name in ("t.csv", "p.tsv", "w.jsonl"))
    texts.write_text("text,label\ngood,pos\n")
    pairs.write_text("text\ttext_pair\tlabel\na\tb\tpos\n")
    words.write_text('{"words": ["good"], "labels": ["pos"]}\n')
    assert [asked_like(one) for one in (texts, words, pairs, Path("rows.npz"), Path("it"))] == [
        "--text 'a text'",
        "--text 'a text'",
        "--text 'a text' --text-pair 'another one'",
        "--input rows.npz --row 0",
        "",
    ]


def test_memory_is_told_as_plans_count_it() -> None:
    catalog = digits_catalog().snapshot()
    (kind,) = catalog.device_kinds
    profile = replace(catalog.profiles[0], memory_mib=90.0, working_mib=40.0)
    (made,) = [one for one in catalog.variants if one.name == profile.variant]
    result = RegistrationResult(
        task=catalog.tasks[0], versions=(), variants=(made,), profiles=(profile,)
    )
    for known, counted in ((), 90.0), ((kind,), 50.0):
        body = result_body(replace(result, device_kinds=known), 1.0)
        assert body["variants"][0]["profiles"][0]["memory_mib"] == counted
