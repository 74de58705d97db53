"""Command lines that are wrong, and what is said of them."""

import json

import pytest

from tests.controlplane.cli.shell import Shell


def test_a_wrong_setting_is_exit_code_2(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELLESS_PORT", "many")

    ended = shell("tasks", "list")

    assert ended.code == 2
    assert ended.err.startswith("error: setting MODELLESS_PORT: ")


@pytest.mark.parametrize("arguments", [("upp",), ("tasks", "all"), ("query",), ("-o", "json")])
def test_a_command_that_is_none_is_exit_code_2(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert shell(*arguments).code == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("query", "digits", "--accuracy", "97"),
            "'--accuracy': it must be at most 1, such as 0.97 for 97 %",
        ),
        (
            ("query", "digits", "--accuracy", "97%"),
            "'--accuracy': it must be a number, such as 0.97 for 97 %",
        ),
        (("query", "digits", "--row", "x"), "'--row': it must be a whole number"),
        (("query", "digits", "--row", "1_0"), "'--row': it must be a whole number"),
        (("query", "digits", "--latency-ms", "1_000"), "'--latency-ms': it must be a number"),
        (("query", "digits", "--latency-ms=\u0661\u0660"), "'--latency-ms': it must be a number"),
        (("status", "-o", "xml"), "'--output' / '-o': 'xml' is not one of 'table', 'json', 'yaml'"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(
    shell: Shell, arguments: tuple[str, ...], sentence: str
) -> None:
    assert shell(*arguments).err.startswith(f"error: invalid value for {sentence}\n")


def test_the_help_of_simulate_says_what_to_type_and_what_belongs_together(shell: Shell) -> None:
    said = " ".join(shell("simulate", "--help").out.split())

    assert "dynamo; or all: each of them, side by side." in said
    assert (
        "A worker takes --provision-s to start, and a change has to pay within --linger-s." in said
    )


def test_the_range_of_an_option_leaves_its_help_whole(shell: Shell) -> None:
    said = " ".join(shell("plan", "solve", "--help").out.split())

    assert "for what energy emits; else the mean of the day." in said


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ("query",),
            ["error: missing argument 'TASK'", "usage: modelless query [OPTIONS] TASK"],
        ),
        (
            ("tasks", "all"),
            ["error: no such command 'all'", "usage: modelless tasks [OPTIONS] COMMAND [ARGS]..."],
        ),
        (("tasks", "list", "--output"), ["error: option '--output' requires an argument"]),
    ],
)
def test_a_wrong_command_line_is_told_as_all_other_errors(
    shell: Shell, arguments: tuple[str, ...], lines: list[str]
) -> None:
    ended = shell(*arguments)

    told = [line.strip() for line in ended.err.splitlines()]
    assert (ended.code, ended.out, told[: len(lines)]) == (2, "", lines)
    command = " ".join(arguments[:1])
    assert told[len(lines) :] in ([], [f"`modelless {command} --help` explains it"])


def test_an_option_that_must_be_given_is_told_with_what_it_is(shell: Shell) -> None:
    ended = shell("register", "m.onnx", "--task", "t")

    told = [line.strip() for line in ended.err.splitlines()]
    assert told[0] == "error: missing option '--eval' / '--evaluation'"
    assert told[1].startswith("--eval FILE: Rows (.npz) that nothing was trained")
    assert told[-1] == "`modelless register --help` explains it"


def test_a_wrong_command_line_in_json_is_one_line(shell: Shell) -> None:
    ended = shell("tasks", "list", "-o", "json", "extra")

    assert (ended.code, ended.out) == (2, "")
    assert json.loads(ended.err) == {
        "error": "got unexpected extra argument(s) (extra)",
        "code": "INVALID_INPUT",
        "retryable": False,
    }


@pytest.mark.parametrize(
    "line",
    [
        "query digits --latency-ms abc -o json",
        "query -o json digits --latency-ms abc",
        "query digits --latency-ms abc --output=json",
        "explain digits --latency-ms abc --json",
    ],
)
def test_a_line_that_cannot_be_read_is_told_in_the_format_that_it_names(
    shell: Shell, line: str
) -> None:
    ended = shell(*line.split())

    assert (ended.code, ended.out) == (2, "")
    assert json.loads(ended.err) == {
        "error": "invalid value for '--latency-ms': it must be a number",
        "code": "INVALID_INPUT",
        "retryable": False,
    }


def test_a_group_that_has_nothing_to_list_is_explained(shell: Shell) -> None:
    ended = shell("export")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Usage: modelless export [OPTIONS] COMMAND [ARGS]...\n")


def test_a_typing_error_gets_a_suggestion(shell: Shell) -> None:
    assert "Did you mean 'tasks'" in shell("taks").err
    for wrong, meant in (("--latencyms", "--latency-ms"), ("--row-s", "--cost or --row")):
        said = shell("query", "digits", wrong, "1").err.splitlines()[0]
        assert said == f"error: no such option: {wrong}. Did you mean {meant}?"
