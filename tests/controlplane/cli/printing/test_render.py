"""Tables as people read them."""

import io
import re
from collections.abc import Sequence

import pytest
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from controlplane.cli.render import hanging, percent, table

STYLES = re.compile(r"\x1b\[[0-9;]*m")


def as_rich_has_it(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    screen = Console(file=io.StringIO(), width=1_000, highlight=False)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        right = column.startswith(">")
        name = column.removeprefix(">")
        grid.add_column(name, justify="right" if right else "left", no_wrap=True)
    for row in rows:
        grid.add_row(*map(Text, row))
    with screen.capture() as shown:
        screen.print(grid)
    return [line.rstrip() for line in shown.get().splitlines()]


@pytest.mark.parametrize(
    ("columns", "rows"),
    [
        (("NAME", ">COUNT", "WHY"), [("a", "1", "so"), ("longer", "1,200", "")]),
        (("NAME",), [("a",), ("[bold]no markup[/]",)]),
        (("NAME", ">WIDE"), [("日本", "ü"), ("x", "日本語")]),
        (("A LONG HEAD", "B"), [("", "b"), ("a", "")]),
    ],
)
def test_what_needs_no_fold_is_laid_out_as_rich_does(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    head, rule, *lines = as_rich_has_it(columns, rows)
    table(columns, rows, empty="")
    assert capsys.readouterr().out.splitlines() == [head, *lines]
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    table(columns, rows, empty="")
    shown = STYLES.sub("", capsys.readouterr().out).splitlines()
    assert [line.rstrip() for line in shown] == [head, rule, *lines]


def test_a_cell_of_two_lines_has_them_below_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    table(("NAME", "WHY"), [("a", "one\ntwo")], empty="")
    shown = STYLES.sub("", capsys.readouterr().out).splitlines()
    assert [line.rstrip() for line in shown[2:]] == ["a      one", "       two"]


def test_a_pipe_gets_a_line_for_each_row_and_one_of_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sentence = "it ended " * 200
    table(("NO", "WHY"), [("1", sentence), ("2", "one\ntwo")], empty="")
    assert capsys.readouterr().out.splitlines() == [
        "NO   WHY",
        f"1    {sentence.rstrip()}",
        "2    one two",
    ]


def test_on_a_narrow_terminal_sentences_go_below_their_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "40")
    why = "it ended without having said why, after three batches"
    table((">NO", "WHAT", "WORKER", "WHY"), [("9", "worker_lost", "cpu-4-abcdef", why)], empty="")
    shown = STYLES.sub("", capsys.readouterr().out).splitlines()
    assert [line.rstrip() for line in shown] == [
        "NO   WHAT          WORKER",
        "     WHY",
        "─" * 31,
        " 9   worker_lost   cpu-4-abcdef",
        "     it ended without having said why,",
        "     after three batches",
    ]


def test_a_sentence_goes_on_below_itself_behind_its_mark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = "It ended, and nobody came in its place."
    hanging(Console(width=20), "[green]ok[/]", sentence)
    assert capsys.readouterr().out == f"ok {sentence}\n"
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    hanging(Console(width=20), "[green]ok[/]", sentence)
    shown = STYLES.sub("", capsys.readouterr().out).splitlines()
    assert [line.rstrip() for line in shown] == [
        "ok It ended, and",
        "   nobody came in",
        "   its place.",
    ]


def test_columns_that_say_the_same_in_all_rows_go_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ("NAME", "NOTE", "DEVICE", ">MS", ">MIB")
    rows = [("cnn-v1-onnx", "-", "cpu-4", "1.5", "10"), ("mlp-v1-onnx", "-", "cpu-4", "0.5", "2")]
    monkeypatch.setenv("TTY_COMPATIBLE", "1")

    def shown(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        table(columns, rows, empty="", alike=("NOTE", "DEVICE", ">MIB"), spare=(">MIB", ">MS"))
        return [line.rstrip() for line in STYLES.sub("", capsys.readouterr().out).splitlines()]

    assert shown(31)[0] == "NAME           MS   MIB"
    assert shown(31)[-1] == "In all rows: DEVICE cpu-4."
    assert shown(20)[:1] + shown(20)[2:] == [
        "NAME           MS",
        "cnn-v1-onnx   1.5",
        "mlp-v1-onnx   0.5",
        "",
        "In all rows: DEVICE",
        "cpu-4. A wider",
        "terminal also shows",
        "MIB.",
    ]
    assert shown(34)[0] == "NAME          DEVICE    MS   MIB"
    assert len(shown(34)) == 4
    assert shown(40)[0] == "NAME          NOTE   DEVICE    MS   MIB"


def test_what_is_the_same_in_all_rows_goes_before_a_sentence_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        ("a", "cpu-4", "fits; done in 0.5 ms > 0.38 ms"),
        ("b", "cpu-4", "accuracy 89 % < 98 %"),
    ]
    for name, value in (("TTY_COMPATIBLE", "1"), ("COLUMNS", "40")):
        monkeypatch.setenv(name, value)
    table(("NAME", "DEVICE", "WHY"), rows, empty="", alike=("DEVICE",))
    shown = [line.rstrip() for line in STYLES.sub("", capsys.readouterr().out).splitlines()]
    assert shown[2:] == [
        "a      fits; done in 0.5 ms > 0.38 ms",
        "b      accuracy 89 % < 98 %",
        "",
        "In all rows: DEVICE cpu-4.",
    ]


@pytest.mark.parametrize(
    ("share", "said"),
    [
        (None, "-"), (0.0, "0.00 %"), (2e-5, "0.002 %"), (4.96e-5, "0.005 %"), (5e-5, "0.01 %"),
        (0.5, "50.00 %"), (0.999999, "99.99 %"), (1.0, "100.00 %"),
    ],
)  # fmt: skip
def test_a_share_that_is_not_zero_reads_as_more(share: float | None, said: str) -> None:
    assert percent(share) == said
