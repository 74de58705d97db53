"""Commands that look, against a real gateway on a free port."""

import json
from dataclasses import replace
from typing import cast

import pytest
import yaml

from controlplane.cli.commands.nodes import node_news, nodes_of
from controlplane.cli.gateway_client import Client
from controlplane.cli.render.task_words import ceiling_words
from tests.controlplane.builders import CPU
from tests.controlplane.cli.gateway import STYLES, Gateway
from tests.controlplane.cli.shell import Ended, Shell
from variants.errors import NotFound
from variants.types import DeviceKindName, Event, TaskName

LOOKS = [
    (("tasks", "list"), "digits"),
    (("tasks", "get", "digits"), "pixels float32[64]"),
    (("models", "list"), "linear"),
    (("models", "list", "--task", "digits"), "mlp"),
    (("models", "get", "digits", "mlp"), "mlp"),
    (("variants", "list"), "mlp-v1-onnx-int8"),
    (("variants", "list", "digits"), "97.00 %"),
    (("variants", "get", "digits", "mlp-v1-onnx-int8"), "measured"),
    (("workers", "list"), "cpu-4-a"),
    (("workers", "get", "cpu-4-a"), "loading"),
    (("devices", "list"), "cpu-4"),
    (("peaks", "list"), "No peak is declared; `modelless peaks add` declares one."),
    (("plan", "get"), "nothing has been planned yet"),
    (("plan", "list"), "The control loop has not turned yet."),
    (("events", "list"), "worker_lost"),
]


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        (("variants",), ("variants", "list")),
        (("variants", "digits"), ("variants", "list", "digits")),
        (("models", "digits", "-o", "json"), ("models", "list", "digits", "-o", "json")),
        (("variants", "nothing"), ("variants", "list", "nothing")),
        (("plan",), ("plan", "get")),
    ],
)
def test_a_group_without_a_command_looks(
    gateway: Gateway, shell: Shell, short: tuple[str, ...], whole: tuple[str, ...]
) -> None:
    assert shell(*short, url=gateway.url) == shell(*whole, url=gateway.url)


@pytest.mark.parametrize(
    "line", ["tasks", "tasks list", "plan get", "variants digits", "status", "tasks get digits"]
)
def test_json_is_an_output_of_each_command_by_that_name_too(
    gateway: Gateway, shell: Shell, line: str
) -> None:
    named = shell(*line.split(), "--json", url=gateway.url)
    assert named == shell(*line.split(), "-o", "json", url=gateway.url)
    assert (named.code, json.loads(named.out) is not None) == (0, True)


@pytest.mark.parametrize(
    "mistyped", [("variants", "lst"), ("events", "worker_lost"), ("tasks", "digits")]
)
def test_what_may_be_a_mistyped_command_is_no_look(
    gateway: Gateway, shell: Shell, mistyped: tuple[str, ...]
) -> None:
    ended = shell(*mistyped, url=gateway.url)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: no such command '{mistyped[1]}'")


@pytest.mark.parametrize(
    ("command", "shown"), LOOKS, ids=[" ".join(command) for command, _ in LOOKS]
)
def test_a_look_is_readable_and_the_same_in_json_and_yaml(
    gateway: Gateway, shell: Shell, command: tuple[str, ...], shown: str
) -> None:
    gateway.catalog.add_event(
        Event(at="2026-01-01T00:00:00+00:00", kind="worker_lost", subject="cpu-4-b", message="")
    )

    table = shell(*command, url=gateway.url)
    as_json = shell(*command, "-o", "json", url=gateway.url)
    as_yaml = shell(*command, "-o", "yaml", url=gateway.url)

    assert (table.code, as_json.code, as_yaml.code) == (0, 0, 0)
    assert shown in table.out
    assert as_json.json() == yaml.safe_load(as_yaml.out)
    assert isinstance(as_json.json(), list if command[1] == "list" else dict)
    assert (table.err, as_json.err, as_yaml.err) == ("", "", "")


@pytest.mark.parametrize(
    ("width", "shown", "left_out"),
    [
        (60, "VARIANT ACCURACY P95 MS USD/MILLION", "± %, P50 MS, ROWS/S, MIB, LOAD S"),
        (80, "VARIANT ACCURACY ± % P95 MS ROWS/S USD/MILLION MIB", "P50 MS, LOAD S"),
        (90, "VARIANT ACCURACY ± % P50 MS P95 MS ROWS/S USD/MILLION MIB", "LOAD S"),
    ],
)
def test_a_narrow_terminal_has_the_columns_that_matter_most(
    gateway: Gateway,
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    shown: str,
    left_out: str,
) -> None:
    piped = shell("variants", "list", url=gateway.url).out
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("COLUMNS", str(width))

    told = STYLES.sub("", shell("variants", "list", url=gateway.url).out)

    lines = told.splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].split() == shown.split()
    assert [line.removeprefix("*").split()[0] for line in lines[2:6]] == [
        "linear-v1-onnx-fp32", "mlp-v1-onnx-int8", "mlp-v1-onnx-fp32", "slow-v1-onnx-fp32",
    ]  # fmt: skip
    said = f"In all rows: STAGE live, DEVICE cpu-4. A wider terminal also shows {left_out}. *: no"
    assert said in " ".join(told.split())
    assert "STAGE" in piped
    assert "LOAD S" in piped
    assert "terminal" not in piped


@pytest.mark.parametrize("width", [40, 50])
def test_on_a_narrow_terminal_a_row_that_does_not_fit_is_a_paragraph(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("COLUMNS", str(width))

    lines = STYLES.sub("", shell("variants", "list", url=gateway.url).out).splitlines()

    rows = lines[: lines.index("")]
    assert max(map(len, rows)) <= width
    assert [row for row in rows if not row.startswith("  ")] == [
        "* linear-v1-onnx-fp32", "* mlp-v1-onnx-int8", "* mlp-v1-onnx-fp32", "slow-v1-onnx-fp32",
    ]  # fmt: skip
    assert "  STAGE live   ACCURACY 90.00 %   " in rows[1]
    told = "   ".join(row.strip() for row in rows)
    assert "MIB 10.0   LOAD S 0.5" in told
    assert all(cell in told for cell in ("± % ", "P50 MS ", "P95 MS ", "ROWS/S ", "USD/MILLION "))


def test_a_table_that_fits_a_terminal_breaks_no_cell_but_its_last(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "it ended without having said why, after three batches of one row each"
    gateway.catalog.add_event(
        Event(at="2026-01-01T00:00:00+00:00", kind="worker_lost", subject="w1", message=message)
    )
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")

    lines = STYLES.sub("", shell("events", "list", url=gateway.url).out).splitlines()

    assert lines[2].rstrip() == (
        " 1   2026-01-01 00:00:00   worker_lost   w1        it ended without having said"
    )
    assert lines[3].strip() == "why, after three batches of"


def test_lines_of_a_pipe_end_in_no_blanks(gateway: Gateway, shell: Shell) -> None:
    for command in (("variants", "list"), ("tasks", "get", "digits"), ("status",)):
        lines = shell(*command, url=gateway.url).out.splitlines()

        assert [line for line in lines if line != line.rstrip()] == [], command


def test_where_nothing_is_registered_the_next_step_is_said(gateway: Gateway, shell: Shell) -> None:
    gateway.catalog.remove_task(TaskName("digits"))

    status = shell("status", url=gateway.url).out
    variants = shell("variants", "list", url=gateway.url).out

    assert status.endswith(
        "\n\nNothing is registered yet: `modelless register MODEL.onnx --task NAME --eval ROWS.npz`"
        "\n`modelless register --help` explains it; `modelless up --example digits` makes examples"
        " first\n"
    )
    assert variants == "There are no variants; `modelless register` makes them.\n"


def test_what_an_older_gateway_says_of_nodes_is_nothing() -> None:
    class Older:
        def get(self, path: str) -> None:
            raise NotFound(f"no route {path}")

    found = nodes_of(cast(Client, Older()))
    assert (node_news(found), found["nodes"]) == ([], [])


def test_devices_of_one_machine_have_no_word_of_autoscaling(gateway: Gateway, shell: Shell) -> None:
    assert "Autoscaling" not in shell("devices", "list", url=gateway.url).out


def test_a_variant_says_where_it_was_measured(gateway: Gateway, shell: Shell) -> None:
    for profile in gateway.catalog.snapshot().profiles:
        beside = replace(
            profile,
            measured_at="2026-01-01T00:00:00+00:00",
            measured_on="node-3 (10.0.0.3)",
            beside_load=True,
        )
        gateway.catalog.put_profiles((beside,))

    shown = " ".join(
        shell("variants", "get", "digits", "mlp-v1-onnx-int8", url=gateway.url).out.split()
    )

    assert "size 0.00095 MiB" in shown  # 1,000 bytes
    assert "measured cpu-4: 20" in shown
    assert " on node-3 (10.0.0.3), beside other work" in shown


def test_variants_are_listed_without_kinds_that_are_gone(gateway: Gateway, shell: Shell) -> None:
    catalog = gateway.catalog
    gone = replace(CPU, name=DeviceKindName("cpu-9"))
    profiles = tuple(replace(one, device_kind=gone.name) for one in catalog.snapshot().profiles)
    catalog.put_profiles(profiles, (gone,))

    listed = shell("variants", "list", "digits", url=gateway.url).out

    table, _, below = listed.partition("*: no other variant")
    assert table.count("linear-v1-onnx-fp32") == 1
    assert "cpu-9" not in table
    assert (
        "Left out is what was measured on cpu-9, of which no worker is there or wanted: variants"
        " get has it." in " ".join(below.split())
    )
    assert "cpu-9" in shell("variants", "get", "digits", "linear-v1-onnx-fp32", url=gateway.url).out


def test_variants_of_which_clients_say_something_else_are_named_in_a_narrow_window_too(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    gateway.live.told = {"contradicted": [["digits", "linear-v1-onnx-fp32", 0.5, 40]]}
    listed = shell("variants", "list", "digits", url=gateway.url).out
    told = (
        "linear-v1-onnx-fp32: clients say that 50.00 % is right, 90.00 % was when it was measured,"
        " and it is no chance; queries and plans go by what was measured."
    )
    assert told in " ".join(listed.split())
    assert listed.count("clients say that") == 1


def test_a_ceiling_is_told_of_a_million_queries() -> None:
    told = [ceiling_words(usd_per_1k) for usd_per_1k in (None, 0.0005)]
    assert told == ["any", "at most 0.50 USD per million queries"]


def test_an_unknown_name_is_one_sentence_and_exit_code_1(gateway: Gateway, shell: Shell) -> None:
    assert shell("tasks", "get", "faces", url=gateway.url) == Ended(
        1, "", "error: there is no task 'faces'; there are: digits\n"
    )
    assert shell("workers", "get", "w", url=gateway.url) == Ended(
        1, "", "error: there is no worker 'w'; there are: cpu-4-a\n"
    )


def test_a_name_cannot_reach_another_path(gateway: Gateway, shell: Shell) -> None:
    ended = shell("tasks", "get", "../plan?x=", "-o", "json", url=gateway.url)

    assert (ended.code, ended.out) == (1, "")


def test_an_error_in_json_is_one_line_on_standard_error(gateway: Gateway, shell: Shell) -> None:
    ended = shell("tasks", "get", "faces", "-o", "json", url=gateway.url)

    assert (ended.code, ended.out) == (1, "")
    assert json.loads(ended.err) == {
        "error": "there is no task 'faces'; there are: digits",
        "code": "TASK_NOT_FOUND",
        "retryable": False,
    }


def test_what_a_server_sends_cannot_steer_the_terminal(gateway: Gateway, shell: Shell) -> None:
    gateway.catalog.add_event(
        Event(at="", kind="x", subject="[bold]s[/]", message="\x1b]0;owned\x07\x1b[31mred")
    )

    out = shell("events", "list", url=gateway.url).out

    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]s[/]" in out
