"""What ``modelless`` prints of tasks whose models are no classifiers, against a real gateway."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli.asking.shown_answers import output_lines, short_numbers
from tests.controlplane.cli.gateway import ANSWER, Gateway
from tests.controlplane.cli.shell import Shell
from tests.variants import catalog_builders as build
from variants.types import TensorSpec

NUMBERS = {name: value for name, value in ANSWER.items() if name not in ("labels", "scores")}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path) as gateway:
        output = TensorSpec(name="values", dtype="float32", shape=(2,))
        for name, metric in (("prices", "within:5%"), ("fits", "r2")):
            task = build.task(name, outputs=(output,), labels=(), metric=metric)
            gateway.catalog.register(build.registration(of=name, task=task))
        yield gateway


def test_a_task_says_what_its_accuracy_means(gateway: Gateway, shell: Shell) -> None:
    shown = shell("tasks", "get", "prices", url=gateway.url).out
    assert (
        "metric         within:5%: share of the rows of which every number is within 5% of its "
        "target" in shown
    )
    found = shell("tasks", "get", "prices", "-o", "json", url=gateway.url).json()
    assert found["metric"] == "within:5%"
    assert found["accuracy_means"].startswith("share of the rows of which every number")


def test_only_a_share_of_rows_has_an_interval(gateway: Gateway, shell: Shell) -> None:
    for task, counted in (("prices", True), ("fits", False)):
        url = gateway.url
        row = shell("variants", "get", task, "mlp-v1-onnx-fp32", url=url).out
        assert ("; 95 % sure of" in row) is counted
        assert "90.00 % on 100 rows" in row
        assert "90.00 %" in shell("variants", "list", task, url=url).out
        found = shell("variants", "get", task, "mlp-v1-onnx-fp32", "-o", "json", url=url).json()
        assert (found["accuracy_low"] is not None) is counted


@pytest.mark.parametrize(
    ("outputs", "lines"),
    [
        ([[152.41234]], "outputs     152.41\n"),
        ([1.5, -2e-7], "outputs     1.5\n            -2e-07\n"),
        ([[0.5] * 64], "outputs     [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, ... 64 numbers]\n"),
        ({"price": [[3.0]], "risk": [[0.1, 0.9]]}, "price       3\nrisk        [0.1, 0.9]\n"),
    ],
)
def test_numbers_are_shown_row_by_row(
    gateway: Gateway, shell: Shell, outputs: Any, lines: str
) -> None:
    gateway.answer = NUMBERS | {"outputs": outputs}
    shown = shell("query", "prices", url=gateway.url)
    assert shown.code == 0
    assert "\n".join(line.rstrip() for line in shown.out.splitlines()).startswith(lines)


def test_long_answers_are_shortened() -> None:
    ((name, text),) = output_lines([[float(row)] for row in range(25)])
    assert (name, text.splitlines()[-2:]) == ("outputs", ["19", "... 5 more rows"])
    assert short_numbers([[[1.0, 2.0]] * 3] * 9).endswith("... 9 rows]")
    assert (short_numbers(True), short_numbers(7), short_numbers([])) == ("true", "7", "[]")
