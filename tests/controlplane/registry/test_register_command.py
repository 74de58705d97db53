"""``modelless register`` as a process: what it prints where, and its exit codes."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from controlplane.building.build_cache import BuildCache
from controlplane.building.doubt import (
    doubt,
    far_from_best,
    short_of_default,
    slow_for_default,
    too_large,
)
from controlplane.building.types import RegistrationResult
from controlplane.cli.model_options.texts import parse_labels
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
from profiler.evaluation.labelled_rows import LabelledRows
from tests import onnx_models as models
from tests.controlplane.builders import digits_catalog
from tests.controlplane.cli.shell import Shell
from variants.catalog.sql import open_catalog
from variants.errors import InvalidInput
from variants.types import (
    CatalogSnapshot,
    Digest,
    ImageScale,
    LatencyPoint,
    ModelName,
    ModelVersion,
    Prefer,
    Registration,
    Slo,
    Stage,
    Task,
    TaskName,
    VariantName,
)

pytestmark = pytest.mark.slow


def command(folder: Path, *arguments: str) -> tuple[list[str], dict[str, str]]:
    line = [sys.executable, "-m", "controlplane.cli.main", "register", *arguments]
    environment = {n: v for n, v in os.environ.items() if not n.startswith("MODELLESS_")}
    return line, environment | {
        "MODELLESS_STATE_DIR": str(folder / "state"),
        "MODELLESS_CORES": "1",
        "TMPDIR": str(folder),
    }


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line, environment = command(folder, *arguments)
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    models.write(tmp_path / "tiny.onnx")
    models.write_rows(tmp_path / "rows.npz")
    return tmp_path


def test_it_registers_and_says_what(folder: Path) -> None:
    (folder / "labels.txt").write_text("left\nmiddle\nright\n")
    done = run(
        folder, str(folder / "tiny.onnx"), "--task", "shapes", "--eval", str(folder / "rows.npz"),
        "--labels", f"@{folder / 'labels.txt'}", "--latency-ms", "20", "-o", "json",
        "--progress", "json", "--variants", "onnx-int8", "--image-std", "0.0625",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert body["versions"][0] | {"source": ""} == {
        "task": "shapes", "model": "tiny", "version": 1, "stage": "live", "source": "",
    }  # fmt: skip
    assert [v["name"] for v in body["variants"]] == ["tiny-v1-onnx-fp32", "tiny-v1-onnx-int8"]
    assert body["variants"][0]["accuracy"] == 1.0
    steps = [json.loads(line) for line in done.stderr.splitlines()]
    assert (steps[0]["step"], steps[-1]["done"]) == ("check", steps[-1]["total"])
    catalog = open_catalog(f"sqlite:///{folder / 'state' / 'catalog.db'}")
    (task,) = catalog.snapshot().tasks
    catalog.close()
    assert (task.labels, task.slo.latency_ms) == (("left", "middle", "right"), 20.0)
    assert task.image == ImageScale(std=(0.0625,))


def test_the_table_names_every_variant(folder: Path) -> None:
    done = run(
        folder, str(folder / "tiny.onnx"), "--task", "shapes", "--eval", str(folder / "rows.npz"),
        "--variants", "onnx-int8,tensorrt-fp32",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "left out: tiny-v1-tensorrt-fp32: it runs on GPUs only" in done.stdout
    for text in ("tiny-v1-onnx-fp32", "tiny-v1-onnx-int8", "100.00 %", "cpu-1", "24 rows"):
        assert text in done.stdout
    assert done.stderr.splitlines()[0] == "[0/8] checking tiny.onnx"
    assert done.stdout.splitlines()[-2] == (
        f"ask it: `modelless query shapes --input {folder / 'rows.npz'} --row 0`"
    )
    assert done.stdout.splitlines()[-1] == (
        "tiny-v1 may answer any query of shapes from now on; `modelless retire shapes tiny 1` ends"
        " that, and `register --stage canary` would have let it answer only queries that name one"
        " of its variants"
    )


def test_what_comes_from_the_build_cache_is_said(folder: Path) -> None:
    said: list[str] = []
    built: list[int] = []
    for task, options in (("a", ()), ("b", ()), ("c", ("--fresh",))):
        done = run(
            folder, str(folder / "tiny.onnx"), "--task", task, "--eval", str(folder / "rows.npz"),
            "--variants", "onnx-int8", *options,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        said.append(next((x for x in done.stdout.splitlines() if "build cache" in x), ""))
        built.append(done.stderr.count("building"))
    assert said == [
        "",
        "from the build cache: 2 variants built before, 2 measured before; --fresh does all of it"
        " anew",
        "",
    ]
    assert built == [2, 0, 2]


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
    assert f"{variants[0].name}: 64 rows at once and more do not finish" in here
    body_table(json.loads(json.dumps(result_body(result, 1.0))))
    assert capsys.readouterr().out == here


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


def test_what_is_no_better_than_guessing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    def judged(accuracy: float) -> str:
        known = digits_catalog().snapshot()
        made = replace(known.variants[0], accuracy=accuracy)
        rows = LabelledRows(inputs={}, labels=np.array([0, 1, 1, 1]))
        return doubt("a-v2", known.tasks[0], [made], rows)

    assert judged(0.8) == ""
    said = judged(0.08)
    assert said.startswith(
        "a-v2 is right in 8.00 % of the rows, and always saying the most frequent"
    )
    task = Task(name=TaskName("t"), inputs=(), outputs=())
    result = RegistrationResult(task=task, versions=(), variants=(), profiles=(), doubts=(said,))
    result_table(result, 1.0, on_cluster=False)
    assert f"doubtful: {said}" in capsys.readouterr().out


def test_a_version_that_misses_what_its_task_asks_for_by_default_is_told_of() -> None:
    made = replace(digits_catalog().snapshot().variants[0], accuracy=0.85625)
    version = ModelVersion(
        task=made.task, model=ModelName("a"), version=2, stage=Stage.CANARY, source=Digest("0" * 64)
    )

    def said(floor: float | None) -> str:
        task = Task(name=made.task, inputs=(), outputs=(), slo=Slo(accuracy=floor))
        return short_of_default(
            Registration(task=task, version=version, variants=(made,), profiles=())
        )

    assert said(None) == said(0.85625) == ""
    assert said(0.95) == (
        "the accuracy of a-v2 is 85.63 % at best, and queries of digits that name none ask for"
        " 95.00 %: it answers none of these"
    )


def test_a_version_that_is_slower_than_its_task_asks_for_by_default_is_told_of() -> None:
    known = digits_catalog().snapshot()
    made, profile = known.variants[0], known.profiles[0]
    version = ModelVersion(
        task=made.task, model=ModelName("a"), version=1, stage=Stage.LIVE, source=Digest("0" * 64)
    )

    def said(*p95_ms: float) -> str:
        profiles = tuple(
            replace(
                profile,
                variant=VariantName(f"a-v1-{place}"),
                points=(replace(profile.points[0], p50_ms=1.0, p95_ms=took_ms, p99_ms=took_ms),),
            )
            for place, took_ms in enumerate(p95_ms)
        )
        task = Task(name=made.task, inputs=(), outputs=(), slo=Slo(latency_ms=1_000.0))
        return slow_for_default(
            Registration(task=task, version=version, variants=(made,), profiles=profiles)
        )

    assert said() == said(1_000.0) == said(2_600.0, 900.0) == ""
    assert said(2_600.0, 1_174.6) == (
        f"a-v1-1, the quickest of a-v1, takes 1,175 ms for a row on {profile.device_kind} (p95),"
        " and queries of digits that name no latency ask for 1,000 ms:"
        " `modelless tasks set digits --latency-ms MS` allows more"
    )


def test_a_version_that_no_worker_has_the_memory_for_is_told_of() -> None:
    """It is registered all the same: a worker may get more memory, and its queries are refused."""
    known = digits_catalog().snapshot()
    kind = replace(known.device_kinds[0], memory_mib=1_200.0, gpu=None)
    made = known.variants[0]
    version = ModelVersion(
        task=made.task, model=ModelName("a"), version=1, stage=Stage.LIVE, source=Digest("0" * 64)
    )

    def said(*memory_mib: float) -> str:
        profile = replace(known.profiles[0], device_kind=kind.name, working_mib=None)
        task = Task(name=made.task, inputs=(), outputs=())
        return too_large(
            Registration(
                task=task,
                version=version,
                variants=(made,),
                profiles=tuple(
                    replace(profile, variant=VariantName(f"a-v1-{place}"), memory_mib=mib)
                    for place, mib in enumerate(memory_mib)
                ),
                device_kinds=(kind,),
            )
        )

    assert said() == said(1_200.0) == said(2_600.0, 900.0) == ""
    assert said(2_600.0, 2_000.0) == (
        f"no worker can load a-v1: a-v1-1 needs 2,000 MiB, and a {kind.name} has 1,200 for"
        " variants: MODELLESS_WORKER_MEMORY_MIB, or memory_mib= of the kind, gives it more"
    )


def test_a_cheapest_variant_that_is_far_from_the_best_is_told_of() -> None:
    """Who names no accuracy gets it: 8 bits may cost a third of the answers."""
    known = digits_catalog().snapshot()
    variants = [
        replace(known.variants[0], name=VariantName(f"a-v1-onnx-{kind}"), accuracy=accuracy)
        for kind, accuracy in (("fp32", 0.995), ("int8", 0.63), ("fp16", 0.99))
    ]
    profiles = [
        replace(
            known.profiles[0],
            variant=one.name,
            points=(LatencyPoint(batch_size=1, p50_ms=ms, p95_ms=ms, p99_ms=ms),),
        )
        for one, ms in zip(variants, (2.0, 1.0, 3.0), strict=True)
    ]

    empty = CatalogSnapshot(revision=0)

    def said(stage: Stage = Stage.LIVE, before: CatalogSnapshot = empty, **slo: Any) -> str:
        task = Task(name=TaskName("digits"), inputs=(), outputs=(), slo=Slo(**slo))
        version = ModelVersion(
            task=task.name, model=ModelName("a"), version=1, stage=stage, source=Digest("0" * 64)
        )
        return far_from_best(
            Registration(
                task=task, version=version, variants=tuple(variants), profiles=tuple(profiles)
            ),
            before,
        )

    assert said() == (
        "queries of digits that name no accuracy get a-v1-onnx-int8, as the cheapest, whose"
        " accuracy is 63.00 %; that of a-v1-onnx-fp32 is 99.50 %: `modelless tasks set digits"
        " --accuracy 0.98` asks for more"
    )
    assert said(accuracy=0.9) == said(prefer=Prefer.ACCURACY) == said(Stage.CANARY) == ""
    variants[1] = replace(variants[1], accuracy=0.97)
    assert said() == ""
    better = replace(known.variants[0], name=VariantName("b-v1-onnx-fp32"), model=ModelName("b"))
    other = CatalogSnapshot(
        revision=1,
        versions=(replace(known.versions[0], model=ModelName("b"), version=1, stage=Stage.LIVE),),
        variants=(replace(better, version=1, accuracy=1.0),),
        profiles=(replace(profiles[0], variant=better.name),),
    )
    variants[0] = replace(variants[0], accuracy=0.9)
    variants[1] = replace(variants[1], accuracy=0.9)
    variants[2] = replace(variants[2], accuracy=0.9)
    assert "get a-v1-onnx-int8, as the cheapest, " in said(before=other)
    assert "; that of b-v1-onnx-fp32 is 100.00 %: `modelless tasks set d" in said(before=other)
    idle = replace(other.versions[0], stage=Stage.RETIRED)
    assert said(before=replace(other, versions=(idle,))) == ""


@pytest.mark.parametrize("output", ["table", "json"])
def test_wrong_input_is_one_sentence_and_exit_code_2(
    folder: Path, output: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    wrong = folder / "wrong.onnx"
    wrong.write_text("no model")
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(folder / "state"))
    ended = Shell(monkeypatch, capsys)(
        "register", str(wrong), "--task", "shapes", "--eval", str(folder / "rows.npz"),
        "-o", output, "--progress", "none",
    )  # fmt: skip
    assert (ended.code, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    told = json.loads(line)["error"] if output == "json" else line
    assert "wrong.onnx is not an ONNX model" in told


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("MODELLESS_PORT", "eight", "error: setting MODELLESS_PORT: "),
        ("MODELLESS_STATE_DIR", "/dev/null/state", "error: the state directory /dev/null/state "),
    ],
)
def test_a_wrong_setting_is_one_sentence_and_exit_code_2(
    folder: Path,
    name: str,
    value: str,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
) -> None:
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(folder / "state"))
    monkeypatch.setenv(name, value)
    ended = Shell(monkeypatch, capsys)(
        "register", str(folder / "tiny.onnx"), "--task", "shapes",
        "--eval", str(folder / "rows.npz"),
    )  # fmt: skip

    assert (ended.code, ended.out) == (2, "")
    (told,) = ended.err.splitlines()
    assert told.startswith(sentence)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_process_no_row_and_no_file(
    folder: Path, number: signal.Signals
) -> None:
    models.write(folder / "endless.onnx", models.endless())
    line, environment = command(
        folder, str(folder / "endless.onnx"), "--task", "shapes",
        "--eval", str(folder / "rows.npz"), "--progress", "plain", "--variants", "onnx-fp32",
    )  # fmt: skip
    process = subprocess.Popen(
        line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        while "judging" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(0.5)  # anywhere in a step that does not end
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        rest = process.communicate(timeout=120)[1]
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130
    assert rest.splitlines()[-1] == (
        "interrupted: nothing was registered; what was built and measured is kept in"
        f" {folder / 'state' / 'build-cache'}, and the same command goes on from there;"
        " --quick judges by fewer rows and measures less"
    )
    assert [child for child in children if child.is_running()] == []
    assert [p.name for p in folder.glob("modelless-*")] == []
    store = folder / "state" / "artifacts"
    assert [p for p in store.rglob("*") if p.is_file()] == []
    catalog = open_catalog(f"sqlite:///{folder / 'state' / 'catalog.db'}")
    assert catalog.snapshot().versions == ()
    catalog.close()


@pytest.mark.parametrize("text", ["", "a,,b", "a, ,b", "@none.txt"])
def test_labels_that_cannot_be(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_labels(text)


def test_the_mark_that_a_file_of_labels_begins_with_is_no_part_of_a_label(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_bytes("\ufeffcat\r\ndog\r\n".encode())
    assert parse_labels(f"@{file}") == ("cat", "dog")


def test_an_empty_label_of_a_file_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_text("cat\n \ndog\n")
    with pytest.raises(InvalidInput, match=rf"^a label is empty, that on line 2 of {file};"):
        parse_labels(f"@{file}")


def test_only_line_feeds_end_a_label(tmp_path: Path) -> None:
    """A list of signs, as a recogniser of texts has, has some that separate lines elsewhere."""
    file = tmp_path / "labels.txt"
    file.write_text("a\u2028b\nc\n", encoding="utf-8")
    assert parse_labels(f"@{file}") == ("a\u2028b", "c")


def test_labels_lose_their_blanks() -> None:
    assert parse_labels("cat, dog") == ("cat", "dog")
