"""A planning file that is wrong ends the command with one sentence: file, line, column and why."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.controlplane.cli.shell import Ended, Shell
from tests.controlplane.files.builders import (
    CATALOG,
    DEMAND,
    DEVICES,
    QUERIES,
    RATES,
    with_line,
    with_more,
    write_all,
)

pytestmark = pytest.mark.slow


class Bad(NamedTuple):
    """A spoilt file and what is said of it."""

    name: str
    file: str
    """Which of the files."""
    text: str | bytes
    where: str
    """What follows the file's name: ``, line 3, column latency_ms``."""
    what: str
    """A part of the reason."""


def row(name: str, file: str, number: int, line: str, column: str, what: str) -> Bad:
    """One line of a good file replaced."""
    good = {"catalog": CATALOG, "devices": DEVICES, "demand": DEMAND, "trace": QUERIES}[file]
    return Bad(name, file, with_line(good, number, line), f", line {number}, column {column}", what)


def rates(name: str, number: int, line: str, column: str, what: str) -> Bad:
    text = with_line(RATES, number, line)
    return Bad(name, "trace", text, f", line {number}, column {column}", what)


CNN = "digits,cnn,cnn-fp32,0.98,cpu-4"
LONG = "x" * 129

CATALOGS = [
    row(
        "negative latency",
        "catalog",
        2,
        f"{CNN},1,-10,100,0.5",
        "latency_ms",
        "'-10' is not above 0",
    ),
    row("latency zero", "catalog", 2, f"{CNN},1,0,100,0.5", "latency_ms", "'0' is not above 0"),
    row("latency blank", "catalog", 2, f"{CNN},1,,100,0.5", "latency_ms", "it is blank"),
    row(
        "latency a word",
        "catalog",
        3,
        f"{CNN},8,fast,100,0.5",
        "latency_ms",
        "'fast' is not a number",
    ),
    row(
        "latency nan",
        "catalog",
        3,
        f"{CNN},8,nan,100,0.5",
        "latency_ms",
        "'nan' is not a finite number",
    ),
    row(
        "latency inf",
        "catalog",
        3,
        f"{CNN},8,inf,100,0.5",
        "latency_ms",
        "'inf' is not a finite number",
    ),
    row(
        "latency 1e999", "catalog", 3, f"{CNN},8,1e999,100,0.5", "latency_ms", "not a finite number"
    ),
    row("latency of days", "catalog", 3, f"{CNN},8,1e9,100,0.5", "latency_ms", "above 3,600,000"),
    row("underscore", "catalog", 3, f"{CNN},8,1_0,100,0.5", "latency_ms", "'1_0' is not a number"),
    row("foreign digits", "catalog", 3, f"{CNN},8,٣,100,0.5", "latency_ms", "'٣' is not a number"),
    row(
        "accuracy in percent",
        "catalog",
        2,
        "digits,cnn,cnn-fp32,98,cpu-4,1,10,100,0.5",
        "accuracy",
        "'98' is above 1",
    ),
    row(
        "accuracy below 0",
        "catalog",
        2,
        "digits,cnn,cnn-fp32,-.1,cpu-4,1,10,100,0.5",
        "accuracy",
        "'-.1' is not at least 0",
    ),
    row(
        "accuracy differs",
        "catalog",
        3,
        "digits,cnn,cnn-fp32,0.97,cpu-4,8,40,100,0.5",
        "accuracy",
        "had 0.98 in a row above, and 0.97 here",
    ),
    row(
        "model differs",
        "catalog",
        3,
        "digits,mlp,cnn-fp32,0.98,cpu-4,8,40,100,0.5",
        "model",
        "was of model cnn in a row above",
    ),
    row(
        "memory differs",
        "catalog",
        3,
        f"{CNN},8,40,200,0.5",
        "memory_mib",
        "had 100 in a row above, and 200 here",
    ),
    row(
        "load differs",
        "catalog",
        3,
        f"{CNN},8,40,100,",
        "load_s",
        "had 0.5 in a row above, and 0 here",
    ),
    row(
        "memory negative",
        "catalog",
        2,
        f"{CNN},1,10,-1,0.5",
        "memory_mib",
        "'-1' is not at least 0",
    ),
    row(
        "load infinite",
        "catalog",
        2,
        f"{CNN},1,10,100,inf",
        "load_s",
        "'inf' is not a finite number",
    ),
    row("batch zero", "catalog", 2, f"{CNN},0,10,100,0.5", "batch_size", "'0' is not at least 1"),
    row(
        "half a batch",
        "catalog",
        2,
        f"{CNN},1.5,10,100,0.5",
        "batch_size",
        "'1.5' is not a whole number",
    ),
    row("batch too large", "catalog", 3, f"{CNN},70000,40,100,0.5", "batch_size", "above 65,536"),
    row(
        "batch twice",
        "catalog",
        3,
        f"{CNN},1,40,100,0.5",
        "batch_size",
        "1 stands there twice for cnn-fp32 of digits on cpu-4",
    ),
    row(
        "unknown device kind",
        "catalog",
        4,
        "digits,mlp,mlp-int8,0.9,tpu,1,2,,",
        "device_kind",
        "'tpu' is unknown",
    ),
    row("name blank", "catalog", 4, ",mlp,mlp-int8,0.9,cpu-4,1,2,,", "task", "it is blank"),
    row(
        "name with a blank",
        "catalog",
        4,
        "digits,mlp,mlp int8,0.9,cpu-4,1,2,,",
        "variant",
        "'mlp int8' cannot be a name",
    ),
    row(
        "name with a control character",
        "catalog",
        4,
        "digits,mlp,m\x1b[31m,0.9,cpu-4,1,2,,",
        "variant",
        "'m?[31m' cannot be a name",
    ),
    row(
        "name too long",
        "catalog",
        4,
        f"digits,mlp,{LONG},0.9,cpu-4,1,2,,",
        "variant",
        "at most 128",
    ),
    row(
        "fields missing",
        "catalog",
        5,
        "digits,mlp,mlp-int8,0.9,gpu,1,1",
        "memory_mib",
        "it is missing: the line has 7 fields, the header 9",
    ),
    row(
        "a field too many",
        "catalog",
        5,
        "digits,mlp,mlp-int8,0.9,gpu,1,1,,,",
        "10",
        "the line has 10 fields, the header only 9",
    ),
    row(
        "a quotation mark left open",
        "catalog",
        5,
        'digits,"mlp,mlp-int8,0.9,gpu,1,1,,',
        "model",
        "quotation mark",
    ),
    row(
        "a number below a line with quotes",
        "catalog",
        6,
        'digits,"mlp",mlp-int8,0.9,gpu,16,x,,',
        "latency_ms",
        "'x' is not a number",
    ),
    Bad(
        "behind blank lines",
        "catalog",
        CATALOG + "\n\n" + f"{CNN},16,x,,\n",
        ", line 9, column latency_ms",
        "'x' is not a number",
    ),
]
HEADERS = [
    Bad(
        "column missing",
        "catalog",
        CATALOG.replace("latency_ms,", "", 1),
        ", line 1, column latency_ms",
        "is missing; the header is task,model,",
    ),
    Bad(
        "column unknown",
        "catalog",
        CATALOG.replace("load_s", "load_ms", 1),
        ", line 1, column 'load_ms'",
        "there is no such column",
    ),
    Bad(
        "a demand in place of a trace",
        "trace",
        "task,qps,latency_slo_ms,min_accuracy\ndigits,5,20,0.9\n",
        ", line 1, column 'qps'",
        "the header is arrival_s,task,latency_slo_ms,min_accuracy,max_cost_usd_per_1k or second,",
    ),
    Bad(
        "column twice",
        "devices",
        DEVICES.replace("count", "device_kind", 1),
        ", line 1, column device_kind",
        "the header names it twice",
    ),
    Bad(
        "no header",
        "devices",
        DEVICES.split("\n", 1)[1],
        ", line 1",
        "'cpu-4,4,1000,0.1' is no header",
    ),
    Bad("empty", "devices", "", "", "the file is empty"),
    Bad("only blank lines", "demand", "\n\n  \n", "", "the file is empty"),
    Bad("header only", "demand", DEMAND.split("\n", maxsplit=1)[0], "", "a header and no rows"),
    Bad(
        "empty trace",
        "trace",
        QUERIES.split("\n", maxsplit=1)[0] + "\n",
        "",
        "a header and no rows",
    ),
    Bad(
        "empty rate trace",
        "trace",
        RATES.split("\n", maxsplit=1)[0] + "\n\n",
        "",
        "a header and no rows",
    ),
]
OTHERS = [
    row("count negative", "devices", 2, "cpu-4,-1,1000,0.1", "count", "'-1' is not at least 0"),
    row("count a half", "devices", 2, "cpu-4,1.5,1000,0.1", "count", "not a whole number"),
    row("device memory negative", "devices", 2, "cpu-4,1,-1,0.1", "memory_mib", "'-1' is not at"),
    row("price blank", "devices", 3, "gpu,2,,", "usd_per_hour", "it is blank"),
    row("kind twice", "devices", 3, "cpu-4,2,,0.5", "device_kind", "'cpu-4' stands there twice"),
    row("rate negative", "demand", 2, "digits,-100,100,", "qps", "'-100' is not at least 0"),
    row("floor of 95", "demand", 3, "digits,20,200,95", "min_accuracy", "'95' is above 1"),
    row("floor of -inf", "demand", 3, "digits,20,200,-inf", "min_accuracy", "not a finite number"),
    row("demand's task", "demand", 3, "letters,20,200,", "task", "'letters' is unknown"),
    row("arrival negative", "trace", 2, "-1,digits,100,,", "arrival_s", "'-1' is not at least 0"),
    row("arrival of 1970", "trace", 3, "1.7e9,digits,9,,", "arrival_s", "above 31,622,400"),
    row("slo zero", "trace", 3, "2,digits,0,,", "latency_slo_ms", "'0' is not above 0"),
    row("ceiling", "trace", 3, "2,digits,100,,-1", "max_cost_usd_per_1k", "'-1' is not at least 0"),
    row("ceiling inf", "trace", 3, "2,digits,100,,inf", "max_cost_usd_per_1k", "not a finite"),
    row("trace's task", "trace", 3, "2,letters,100,,", "task", "'letters' is unknown"),
    rates("half a second", 3, "0.5,digits,50,100,", "second", "'0.5' is not a whole number"),
    rates("requests negative", 3, "1,digits,-5,100,", "requests", "'-5' is not at least 0"),
    rates("more than memory holds", 3, "1,digits,3e7,100,", "requests", "more than 20,000,000"),
    Bad(
        "rates of 0",
        "trace",
        RATES.replace("100,100", "0,100").replace("50", "0"),
        ", column requests",
        "all rates are 0",
    ),
    Bad(
        "binary", "catalog", CATALOG.encode()[:90] + b"\0\1\2\n", ", line 2", "this is binary data"
    ),
    Bad(
        "not UTF-8",
        "demand",
        with_more(DEMAND, "d?,1,1,").encode().replace(b"?", b"\xff"),
        ", line 4",
        "this is not UTF-8 text",
    ),
    Bad("UTF-16", "demand", DEMAND.encode("utf-16"), ", line 1", "binary data"),
    Bad(
        "an endless line",
        "trace",
        QUERIES + "1" * 3_000_000,
        ", line 4",
        "longer than 1,048,576 bytes",
    ),
]


def run(shell: Shell, paths: dict[str, Path], spoilt: str) -> Ended:
    """A command that reads the spoilt file."""
    if spoilt == "trace":
        command = ["simulate", "--trace", str(paths["trace"])]
    else:
        command = ["plan", "solve", "--demand", str(paths["demand"])]
    files = ("--catalog", str(paths["catalog"]), "--devices", str(paths["devices"]))
    return shell(*command, *files)


@pytest.mark.parametrize("bad", CATALOGS + HEADERS + OTHERS, ids=lambda bad: bad.name)
def test_a_bad_file_is_one_sentence_and_exit_code_2(bad: Bad, shell: Shell, tmp_path: Path) -> None:
    paths = write_all(tmp_path, **{bad.file: bad.text})

    ended = run(shell, paths, bad.file)

    assert ended.err.startswith(f"error: {paths[bad.file]}{bad.where}: ")
    assert bad.what in ended.err
    assert ended.err.count("\n") == 1
    assert (ended.code, ended.out) == (2, "")


@pytest.mark.parametrize("file", ["catalog", "devices", "trace"])
def test_a_missing_file_is_named(file: str, shell: Shell, tmp_path: Path) -> None:
    paths = write_all(tmp_path)
    paths[file].unlink()

    ended = run(shell, paths, file)

    expected = f"error: {paths[file]}: it cannot be read: No such file or directory\n"
    assert (ended.code, ended.err) == (2, expected)


def test_a_folder_is_no_file(shell: Shell, tmp_path: Path) -> None:
    paths = write_all(tmp_path) | {"trace": tmp_path}

    assert (
        run(shell, paths, "trace").err == f"error: {tmp_path}: it cannot be read: Is a directory\n"
    )


def test_machines_get_the_sentence_as_json(shell: Shell, tmp_path: Path) -> None:
    paths = write_all(tmp_path, catalog=with_line(CATALOG, 2, f"{CNN},1,-10,100,0.5"))
    files = [
        text
        for name in ("catalog", "devices", "demand")
        for text in (f"--{name}", str(paths[name]))
    ]

    ended = shell("plan", "solve", *files, "--json")

    assert ended.code == 2
    assert re.fullmatch(
        r'\{"error":".*line 2, column latency_ms.*","code":"INVALID_INPUT","retryable":false\}\n',
        ended.err,
    )


def test_one_broken_row_in_a_million_is_named(shell: Shell, tmp_path: Path) -> None:
    good = "1,digits,100,,\n"
    rows = good * 900_000 + "900,digits,-100,,\n" + good * 100_000
    paths = write_all(tmp_path, trace=QUERIES.split("\n", maxsplit=1)[0] + "\n" + rows)

    ended = run(shell, paths, "trace")

    where = f"error: {paths['trace']}, line 900002, column latency_slo_ms: "
    assert (ended.code, ended.err) == (2, where + "'-100' is not above 0\n")
