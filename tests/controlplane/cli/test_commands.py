"""Every looking, asking and changing command against a real gateway on a free port."""

import fcntl
import io
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from time import time
from typing import Any, cast

import grpc
import numpy as np
import pytest
import yaml
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from typer.main import get_command

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.cli import gateway_client
from controlplane.cli.commands import root
from controlplane.cli.commands.tasks import _ceiling, unanswered
from controlplane.cli.commands.workers import node_news, nodes_of
from controlplane.cli.gateway_client import TIMEOUT_S, Client
from controlplane.cli.render import percent
from controlplane.cli.starting import _not_here, _wanted_workers
from controlplane.http_errors import error_body, error_headers, status_of
from controlplane.settings import load_settings
from controlplane.startup.presence import write_state
from controlplane.startup.state_directory import prepare
from controlplane.views.fleet_status import asked_words
from tests.controlplane.api.served_api import ServedApi
from tests.controlplane.builders import CPU, DictLive, digits_catalog, register, worker
from tests.controlplane.cli.shell import Ended, Shell, Terminal
from tests.ports import free_port
from variants.artifacts.store import FileArtifactStore
from variants.catalog.database import BUSY_TIMEOUT_S
from variants.catalog.memory import MemoryCatalog
from variants.core_time import CoreTime
from variants.errors import (
    Alternative,
    Cold,
    ModellessError,
    NotFound,
    SloInfeasible,
    StateUnavailable,
)
from variants.types import DeviceKindName, Event, Plan, Stage, TaskName, TickRecord
from workers.types import WorkerStatus

ANSWER = {
    "variant": "mlp-v1-onnx-int8",
    "model_version": "mlp-v1",
    "worker": "cpu-4-a",
    "batch_size": 4,
    "queue_ms": 0.25,
    "run_ms": 2.5,
    "accuracy": 0.97,
    "cost_usd_per_1k": 0.000625,
    "slo_met": True,
    "outputs": [[0.0, 0.9]],
    "labels": ["7"],
    "scores": [0.9],
}


INDEX = [
    {"name": "digits", "version": "mlp-v1-onnx-int8", "state": "READY"},
    {"name": "digits", "version": "slow-v1-onnx-fp32", "state": "LOADING"},
]


class Gateway:
    """The control API with a query route that answers as it is told."""

    def __init__(self, tmp_path: Path) -> None:
        self.catalog: MemoryCatalog = digits_catalog()
        self.asked: list[Any] = []
        self.answer: dict[str, Any] | ModellessError = ANSWER
        self.explained: dict[str, Any] = {}
        self.place = ""
        self.certificate_ends_s: float | None = None
        settings = load_settings(state_dir=tmp_path)
        self.live = DictLive(worker("cpu-4-a", "mlp-v1-onnx-int8", loading=["slow-v1-onnx-fp32"]))
        api = build_api(
            ApiContext(
                catalog=self.catalog,
                store=FileArtifactStore(settings.artifacts_dir),
                settings=settings,
                live=self.live,
                certificate_ends_s=lambda: self.certificate_ends_s,
            )
        )
        self._add_query(api)
        api.add_api_route("/v2/health/ready", lambda: {"ready": True})
        api.add_api_route("/v2/repository/index", lambda: INDEX, methods=["POST"])
        self._served = ServedApi(api)
        self.url = self._served.url

    def _add_query(self, api: FastAPI) -> None:
        async def query(request: Request) -> JSONResponse:
            self.asked.append(await request.json())
            if isinstance(self.answer, ModellessError):
                return JSONResponse(
                    error_body(self.answer, "r"), status_of(self.answer), error_headers(self.answer)
                )
            headers = {"x-choice-reason": "cheapest_that_fits"}
            if self.place:
                headers["x-choice-zone"] = self.place
            return JSONResponse(self.answer, headers=headers)

        async def explain(request: Request) -> JSONResponse:
            self.asked.append(await request.json())
            return JSONResponse(self.explained)

        api.add_api_route("/v1/query", query, methods=["POST"])
        api.add_api_route("/v1/explain", explain, methods=["POST"])

    def __enter__(self) -> "Gateway":
        self._served.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._served.__exit__()


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path) as gateway:
        yield gateway


# -- looking ------------------------------------------------------------------------------------

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
    (("peaks", "list"), "No peak is declared."),
    (("plan", "get"), "nothing has been planned yet"),
    (("plan", "list"), "The control loop has not turned yet."),
    (("events", "list"), "worker_lost"),
]


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


STYLES = re.compile(r"\x1b\[[0-9;]*m")


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


def test_status_tells_of_queries_that_miss_their_slo(gateway: Gateway, shell: Shell) -> None:
    calm = shell("status", url=gateway.url)
    lately = {"requests": 10, "met": 8, "late": 0, "refused": 2, "attainment": 0.8}
    [row] = gateway.live.slo["tasks"]
    gateway.live.slo |= {
        "lately_s": 60.0,
        "tasks": [row | {"lately": lately | {"refusals": {"COLD": 2}}}],
    }

    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()

    sentence = (
        "digits: 2 of 10 queries in the last 60 s missed their SLO: 2 refused because the variant "
        "was not loaded or measured yet (COLD)."
    )
    assert (calm.code, told.code) == (0, 0)
    assert "missed their SLO" not in calm.out
    assert f"● {sentence}" in told.out
    assert as_json["service"] == {"level": "missed", "sentence": sentence}


def test_status_tells_of_a_full_disk(gateway: Gateway, shell: Shell) -> None:
    assert "free some space" not in shell("status", url=gateway.url).out
    disk = {"of": "state", "folder": "/srv", "host": "h2", "free_bytes": 2**20, "size_bytes": 2**30}
    gateway.live.told = {"rooms": [disk], "unwritable": "database or disk is full"}

    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()

    sentence = (
        "The catalog cannot be written (database or disk is full): queries go on, new plans, "
        "registrations and changes are not kept. The disk of the state directory has 1 of 1,024 "
        "MiB free (/srv on h2): free some space."
    )
    assert f"● {sentence}" in told.out
    assert as_json["plan"]["storage"] == {"level": "unwritable", "sentence": sentence}


def test_status_tells_of_a_slow_catalog(gateway: Gateway, shell: Shell) -> None:
    gateway.live.told = {"rooms": [], "unwritable": "", "slow_ms": 1_040.4}

    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()

    sentence = (
        "The catalog takes 1,040 ms to give one row: queries go on, plans, registrations and "
        "commands take longer."
    )
    assert f"● {sentence}" in told.out
    assert as_json["plan"]["storage"] == {"level": "slow", "sentence": sentence}


def test_status_tells_of_a_control_loop_that_has_stopped(gateway: Gateway, shell: Shell) -> None:
    gateway.live.told = {"turned_s": time()}
    assert "control loop" not in shell("status", url=gateway.url).out
    gateway.live.told = {"turned_s": time() - 90.0}

    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()

    assert "● The control loop has made no turn for 90 s: queries go on by the last" in told.out
    assert as_json["plan"]["control_loop"]["level"] == "loop_silent"
    assert "The control loop has made no turn" in shell("top", "--once", url=gateway.url).out


def test_status_tells_of_a_certificate_that_ends_soon(gateway: Gateway, shell: Shell) -> None:
    assert "certificate" not in shell("status", url=gateway.url).out
    gateway.certificate_ends_s = time() + 3.5 * 86_400

    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()

    assert "● The gateway's certificate ends in 3 days, at " in told.out
    assert as_json["plan"]["certificate"]["level"] == "certificate_ends_soon"


def test_on_a_terminal_each_task_that_misses_its_slo_begins_a_line(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    lately = {"requests": 10, "met": 8, "late": 2, "refused": 0, "attainment": 0.8}
    row = {**lately, "share_met": 0.8, "lately": {**lately, "share_met": 0.8}}
    tasks = [{"task": "digits"} | row, {"task": "price"} | row]
    gateway.live.slo |= {"lately_s": 60.0, "tasks": tasks}
    piped = shell("status", url=gateway.url).out
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    shown = STYLES.sub("", shell("status", url=gateway.url).out)

    said = [
        f"{task}: 2 of 10 queries in the last 60 s missed their SLO: 2 late."
        for task in ("digits", "price")
    ]
    assert " ".join(said) in piped
    assert [line.strip() for line in shown.splitlines() if "missed" in line] == [
        f"● {said[0]}", said[1],
    ]  # fmt: skip


def test_status_tells_of_cores_that_others_take(gateway: Gateway, shell: Shell) -> None:
    taken = CoreTime(host="h1", cores=2, used=0.4, busy=2.0, waited=0.63)
    row = {"task": "digits", "requests": 10, "met": 8, "late": 2, "refused": 0, "attainment": 0.8}
    gateway.live.slo["tasks"] = [row | {"share_met": 0.8, "lately": row | {"share_met": 0.8}}]
    assert "cores" not in shell("status", url=gateway.url).out
    gateway.live.core_readings = [taken]

    told = shell("status", url=gateway.url)
    as_json = shell("status", "-o", "json", url=gateway.url).json()

    sentence = (
        "The cores of h1 are short: 63 % of the time something waited for one, gateways and "
        "workers use 0.4 of its 2 cores, other programs 1.6; stop some of these, or run modelless "
        "on another machine."
    )
    assert f"● {sentence}" in told.out
    assert "2 late. Cores are short meanwhile, which makes answers late." in told.out
    assert as_json["plan"]["cores"] == {"level": "cores_short", "sentence": sentence}


def test_status_counts_what_no_variant_can_do_apart(gateway: Gateway, shell: Shell) -> None:
    [row] = gateway.live.slo["tasks"]
    gateway.live.slo["tasks"] = [
        row | {"requests": 13, "refused": 4, "infeasible": 3, "share_met": 0.8}
    ]

    lines = shell("status", url=gateway.url).out.splitlines()
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("TASK ")) :]

    assert table[0].split()[2:] == ["QUERIES", "LATE", "REFUSED", "INFEASIBLE", "SLO", "MET"]
    assert table[1].split()[-6:] == ["13", "1", "1", "3", "80.00", "%"]


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


def test_a_ceiling_is_told_of_a_million_queries() -> None:
    told = [_ceiling(usd_per_1k) for usd_per_1k in (None, 0.0005)]
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


# -- nothing there ------------------------------------------------------------------------------


def test_nothing_running_is_exit_code_3(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"

    assert shell("tasks", "list", url=url) == Ended(
        3, "", f"error: modelless is not running at {url}; start it with `modelless up`\n"
    )


def test_status_says_that_queries_go_on_while_the_catalog_is_away(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise StateUnavailable("the catalog at db is not available: connection refused.")

    monkeypatch.setattr(gateway.catalog, "snapshot", away)
    ended, as_json = (shell("status", *more, url=gateway.url) for more in ((), ("-o", "json")))
    goes_on = "while it does not answer, queries are answered with what is loaded"
    away_words = "error: the catalog at db is not available: connection refused"
    assert (ended.code, ended.err) == (1, f"{away_words}; {goes_on}\n")
    assert "ready, the plan is not known" in ended.out
    assert ["cpu-4-a", "cpu-4", "ready", "1"] in [line.split()[:4] for line in lines_of(ended)]
    assert ["digits", "1", "of", "2", "10"] in [line.split()[:5] for line in lines_of(ended)]
    assert (as_json.code, as_json.json()["plan"], as_json.json()["advice"]) == (1, None, None)


def test_status_says_what_is_known_while_the_live_state_is_away(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> None:
        raise StateUnavailable("the live state does not answer")

    monkeypatch.setattr(gateway.live, "slo_report", away)
    ended = shell("status", url=gateway.url)
    assert (ended.code, ended.err.split(";")[0]) == (1, "error: the live state does not answer")
    assert ["digits", "1", "of", "4", "-", "-"] in [line.split()[:6] for line in lines_of(ended)]


def lines_of(ended: Ended) -> list[str]:
    return ended.out.splitlines()


@contextmanager
def closing_at_once() -> Iterator[int]:
    """A port on which each connection is closed without a word, as TLS does with plain HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def close() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.recv(65536)
                    connection.close()

        thread = threading.Thread(target=close)
        thread.start()
        try:
            yield int(server.getsockname()[1])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_port_of_grpc_is_told(shell: Shell) -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        ended = shell("status", url=f"http://127.0.0.1:{port}")
    finally:
        server.stop(None)
    assert ended.code == 1
    assert ended.err.endswith(
        "; what answers there speaks no HTTP: a gateway has a port of its own for gRPC\n"
    )


def test_http_where_tls_is_spoken_is_told_with_what_to_look_at(shell: Shell) -> None:
    with closing_at_once() as port:
        ended = shell("status", url=f"http://127.0.0.1:{port}")
    assert ended.code == 1
    assert ended.err.endswith("; where the gateway speaks TLS, its URL is https\n")


def test_https_where_no_tls_is_spoken_is_told_too(gateway: Gateway, shell: Shell) -> None:
    ended = shell("status", url=gateway.url.replace("http://", "https://"))
    assert ended.code == 3
    assert ended.err.endswith("; perhaps its URL is http\n")


def test_a_name_without_an_address_is_told_as_such(shell: Shell) -> None:
    ended = shell("status", url="http://nowhere.invalid:8000")
    assert ended.code == 3
    assert "http://nowhere.invalid:8000 is not reached: no address is known for its name" in (
        ended.err
    )


def test_the_option_wins_over_the_environment(gateway: Gateway, shell: Shell) -> None:
    assert shell("tasks", "list", "--url", gateway.url, url="http://127.0.0.1:1").code == 0


def test_a_url_that_is_none_is_exit_code_2(shell: Shell) -> None:
    ended = shell("tasks", "list", url="localhost:8000")

    assert ended.code == 2
    assert "must start with http:// or https://" in ended.err


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


def test_a_group_without_a_command_is_explained(shell: Shell) -> None:
    ended = shell("tasks")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Usage: modelless tasks [OPTIONS] COMMAND [ARGS]...\n")


def test_a_typing_error_gets_a_suggestion(shell: Shell) -> None:
    assert "Did you mean 'tasks'" in shell("taks").err
    for wrong, meant in (("--latencyms", "--latency-ms"), ("--row-s", "--cost or --row")):
        said = shell("query", "digits", wrong, "1").err.splitlines()[0]
        assert said == f"error: no such option: {wrong}. Did you mean {meant}?"


# -- workers ------------------------------------------------------------------------------------


def test_many_workers_are_asked_for_in_parts(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"cpu-4-{letter}" for letter in "edcba"]
    gateway.live.statuses = [worker(name) for name in names]
    asked = list[dict[str, Any]]()
    whole = Client.get

    def get(client: Client, path: str, **parameters: Any) -> Any:
        asked.append(parameters)
        return whole(client, path, **parameters)

    monkeypatch.setattr(Client, "get", get)
    monkeypatch.setattr(gateway_client, "WORKERS_AT_ONCE", 2)
    rows = shell("workers", "list", "-o", "json", url=gateway.url).json()

    assert [row["worker"] for row in rows] == sorted(names)
    assert [one["after"] for one in asked] == [None, "cpu-4-b", "cpu-4-d"]


def test_scaling_says_what_is_wanted_and_what_runs(gateway: Gateway, shell: Shell) -> None:
    scaled = shell("workers", "scale", "cpu-4", "3", url=gateway.url)
    again = shell("workers", "scale", "cpu-4", "1", "-o", "json", url=gateway.url)

    assert scaled.code == 0
    assert scaled.out.startswith(
        "cpu-4: 3 wanted, 1 running; not all can start: no worker cpu-4 can run on this machine"
    )
    assert again.json() == {
        "device_kind": "cpu-4", "wanted": 1, "running": 1, "draining": 0, "silent": 0,
        "missing": 0, "asked": 1, "source": "stored", "settings": None, "lack": "",
    }  # fmt: skip
    assert gateway.catalog.inventory() == {DeviceKindName("cpu-4"): 1}


def test_who_scales_the_last_kind_to_nothing_is_told(gateway: Gateway, shell: Shell) -> None:
    own = f"cpu-{len(os.sched_getaffinity(0))}"
    gateway.catalog.set_inventory(DeviceKindName(own), 1)
    some = shell("workers", "scale", "cpu-4", "0", url=gateway.url).out
    assert some == "cpu-4: 0 wanted, 1 running\n"
    gateway.catalog.set_inventory(DeviceKindName(own), 0)
    none = shell("workers", "scale", "cpu-4", "0", url=gateway.url).out
    assert none == (
        "cpu-4: 0 wanted, 1 running; no worker is wanted any more, so no query can be answered:"
        " `modelless workers scale cpu-4 1` asks for one\n"
    )


def test_workers_are_listed_with_what_is_missing(gateway: Gateway, shell: Shell) -> None:
    for kind, count in ((f"cpu-{len(os.sched_getaffinity(0))}", 0), ("cpu-4", 1), ("x-1", 0)):
        gateway.catalog.set_inventory(DeviceKindName(kind), count)
    gateway.catalog.set_inventory(DeviceKindName("cpu-4"), 1)
    met = shell("workers", "list", url=gateway.url).out
    gateway.catalog.set_inventory(DeviceKindName("cpu-4"), 3)
    gateway.catalog.set_inventory(DeviceKindName("x-1"), 1)

    lines = shell("workers", "list", url=gateway.url).out.splitlines()

    assert "wanted" not in met
    assert lines[-1] == "cpu-4: 3 wanted, 1 running; x-1: 1 wanted, 0 running"


def test_a_worker_that_is_silent_or_slow_says_so_where_workers_are_told(
    gateway: Gateway, shell: Shell
) -> None:
    for found, state, why in (
        ({"silent_s": 4.2}, "silent for 4 s", "cpu-4-a: it has not answered for 4 s"),
        (
            {"slowness": 2.6, "spared": True},
            "slow",
            "cpu-4-a: it takes 2.6 times as long as others",
        ),
    ):
        gateway.live.statuses = [asdict(worker("cpu-4-a", "mlp-v1-onnx-int8")) | found]
        for command in (("workers", "list"), ("workers", "get", "cpu-4-a"), ("status",)):
            ended = shell(*command, url=gateway.url)
            assert re.search(rf"cpu-4-a +cpu-4 +{state} ", ended.out), command
            assert why in ended.out + ended.err


def test_zones_are_shown_where_workers_are_in_some(gateway: Gateway, shell: Shell) -> None:
    commands = (("workers", "list"), ("devices", "list"))
    assert not any("ZONE" in shell(*words, url=gateway.url).out for words in commands)
    [found] = gateway.live.statuses
    assert isinstance(found, WorkerStatus)
    seen = {field.name: getattr(found, field.name) for field in fields(WorkerStatus)}
    gateway.live.statuses = [{**seen, "zone": "edge", "round_trip_ms": 18.4}]

    listed, devices = (shell(*words, url=gateway.url).out for words in commands)

    assert re.search(r"ZONE +MS AWAY", listed)
    assert re.search(r"cpu-4-a +cpu-4 +edge +18 ", listed)
    assert re.search(r"RUNNING +ZONES +NODES", devices)
    assert re.search(r"cpu-4 .* edge ", devices)


def test_what_becomes_of_the_demand_of_zones_is_told(gateway: Gateway, shell: Shell) -> None:
    far = "Asked for in zone edge: no worker is near enough to answer digits within 50 ms in time."
    epoch = gateway.catalog.acquire_leadership("here")
    said = ("everything fits", far)
    plan = Plan(version=0, epoch=epoch, placements=(), workers={}, explanation=said)
    gateway.catalog.put_plan(plan)
    listed = shell("workers", "list", url=gateway.url).out
    assert far in listed
    assert said[0] not in listed
    assert far in " ".join(shell("plan", "get", url=gateway.url).out.split())


def test_scaling_an_unknown_kind_is_exit_code_1(gateway: Gateway, shell: Shell) -> None:
    ended = shell("workers", "scale", "gpu", "1", url=gateway.url)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: there is no device kind 'gpu'; there are: cpu-")


# -- stages -------------------------------------------------------------------------------------


def test_promote_takes_the_newest_version_and_retire_a_named_one(
    gateway: Gateway, shell: Shell
) -> None:
    register(gateway.catalog, "mlp", (0.99, 10.0), version=2, stage=Stage.CANARY)

    promoted = shell("promote", "digits", "mlp", url=gateway.url)
    again = shell("promote", "digits", "mlp", "2", url=gateway.url)
    retired = shell("retire", "digits", "mlp", "1", "-o", "json", url=gateway.url)

    beside = "mlp-v1 is live as well; `modelless retire digits mlp 1` takes it out of service\n"
    assert promoted == Ended(0, f"mlp-v2 was canary, now live\n{beside}", "")
    assert again == Ended(0, f"mlp-v2 is live already\n{beside}", "")
    assert (retired.code, retired.json()["version"], retired.json()["stage"]) == (0, 1, "retired")
    stages = [(v.version, v.stage) for v in gateway.catalog.snapshot().versions if v.model == "mlp"]
    assert stages == [(1, Stage.RETIRED), (2, Stage.LIVE)]


def test_promote_tells_of_a_version_that_is_less_accurate_than_a_live_one(
    gateway: Gateway, shell: Shell
) -> None:
    register(gateway.catalog, "mlp", (0.125, 10.0), version=2, stage=Stage.CANARY)
    known = gateway.catalog.snapshot().variants
    was = max(one.accuracy for one in known if one.model_version == "mlp-v1")

    said = shell("promote", "digits", "mlp", url=gateway.url).out.splitlines()

    assert said[1] == (
        f"its accuracy is 12.50 % at best, that of mlp-v1 {percent(was)}; queries that ask for no"
        " accuracy get the cheaper one"
    )


def test_retire_tells_that_nothing_is_live_any_more(gateway: Gateway, shell: Shell) -> None:
    models = sorted({str(v.model) for v in gateway.catalog.snapshot().versions})

    assert "no version is live" not in shell("status", url=gateway.url).out
    said = [shell("retire", "digits", model, "1", "-y", url=gateway.url).out for model in models]

    gone = "digits has no live version: queries that name no variant are refused"
    assert [gone in one for one in said] == [False] * (len(models) - 1) + [True]
    refused = "! digits: no version is live, so queries that name no variant are refused\n"
    assert refused in shell("status", url=gateway.url).out
    assert "0, none of a live version" in shell("tasks", "get", "digits", url=gateway.url).out


@pytest.mark.parametrize("answer", ["n", "y", None])
def test_the_only_live_version_is_retired_only_where_that_is_said(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    for model in ("mlp", "slow"):
        assert shell("retire", "digits", model, "1", url=gateway.url).code == 0
    if answer is not None:
        monkeypatch.setattr("controlplane.cli.confirmation.sys.stdin", Terminal(f"{answer}\n"))

    ended = shell("retire", "digits", "linear", "1", url=gateway.url)

    why = "without it digits has no live version, and queries that name no variant are refused"
    if answer is None:
        said = f"error: {why}, and nobody can be asked here; --yes says so\n"
        assert ended == Ended(2, "", said)
    else:
        assert f"Retire linear-v1? W{why[1:]}." in ended.err
    assert ("nothing was changed" in ended.err) is (answer == "n")
    live = shell("models", "list", "-o", "json", url=gateway.url).json()
    stages = {one["model"]: one["versions"][0]["stage"] for one in live}
    assert stages["linear"] == ("retired" if answer == "y" else "live")


def test_status_tells_of_a_task_whose_own_floor_nothing_reaches() -> None:
    row = {"name": "t", "live_variants": 1, "best_accuracy": 0.85, "slo": {"accuracy": 0.95}}
    floor = "no live variant has the accuracy of 95.00 % that queries ask for which name none"
    assert unanswered(row) == floor
    assert unanswered(row | {"best_accuracy": 0.95}) == ""
    assert unanswered(row | {"slo": {"accuracy": None}}) == ""
    assert unanswered({"name": "t", "variants": 3}) == ""  # the database is away


def test_a_default_floor_that_nothing_reaches_is_told_where_it_is_set(
    gateway: Gateway, shell: Shell
) -> None:
    told = "no live variant has the accuracy of 99.90 % that queries ask for which name none"
    by_command = shell("tasks", "set", "digits", "--accuracy", "0.999", url=gateway.url)
    assert told in by_command.out
    as_json = shell("tasks", "get", "digits", "-o", "json", url=gateway.url).json()
    assert as_json["unanswered"] == told


def test_a_version_that_is_none_is_refused(gateway: Gateway, shell: Shell) -> None:
    assert shell("promote", "digits", "mlp", "9", url=gateway.url) == Ended(
        1, "", "error: model 'mlp' has no version 9; there are: 1\n"
    )


# -- asking -------------------------------------------------------------------------------------


def test_a_query_carries_the_slo_and_shows_the_answer(
    gateway: Gateway, shell: Shell, tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([list(range(64))]))

    ended = shell(
        "query", "digits", "--latency-ms", "50", "--accuracy", "0.95", "--prefer", "cost",
        "--input", str(path), url=gateway.url,
    )  # fmt: skip

    assert gateway.asked == [
        {
            "task": "digits",
            "slo": {"latency_ms": 50.0, "accuracy": 0.95, "prefer": "cost"},
            "inputs": [list(range(64))],
        }
    ]
    assert [line.split(maxsplit=1)[0] for line in ended.out.splitlines()] == [
        "label", "variant", "chosen", "worker", "batch", "queue,", "accuracy", "cost", "slo",
        "request",
    ]  # fmt: skip
    shown = " ".join(ended.out.split())
    assert "label 7 (0.9) variant mlp-v1-onnx-int8 of mlp-v1" in shown
    assert "chosen the cheapest that fits worker cpu-4-a batch 4" in shown
    assert re.search(
        r"0.250 ms, 2.50 ms accuracy 97.00 % cost 0.62 USD per million queries slo met yes "
        r"request [0-9a-f]{16}$",
        shown,
    )


@pytest.mark.parametrize("priority", [0, 7, 70_000], ids=["none", "own", "beyond the lowest"])
def test_a_priority_is_what_it_is_for_the_gateway(
    gateway: Gateway, shell: Shell, priority: int
) -> None:
    """0, which names none there, and numbers beyond the lowest were refused here."""
    shell("query", "digits", "--priority", str(priority), url=gateway.url)

    (asked,) = gateway.asked
    assert asked["priority"] == priority


@pytest.mark.parametrize("option", ["--latency-ms", "--cost"])
def test_a_need_without_end_is_refused_and_not_left_out(
    gateway: Gateway, shell: Shell, option: str
) -> None:
    """JSON has null for it, which is the task's default."""
    ended = shell("query", "digits", option, "inf", url=gateway.url)
    assert (ended.code, gateway.asked) == (2, [])
    assert "must be a finite number, not inf" in ended.err


def test_a_query_says_which_zone_answered_and_why(gateway: Gateway, shell: Shell) -> None:
    gateway.place = "in zone core, 80 ms away: zone edge has no room for it in time"
    ended = shell("query", "digits", url=gateway.url)
    assert f"answered {gateway.place}" in " ".join(ended.out.split())


def test_a_query_in_json_is_the_reply_itself_with_its_request_id(
    gateway: Gateway, shell: Shell
) -> None:
    ended = shell("query", "digits", "-o", "json", url=gateway.url)

    reply = ended.json()
    assert re.fullmatch("[0-9a-f]{16}", reply.pop("request_id"))
    assert (ended.code, reply) == (0, ANSWER)
    assert ended.err == "no --input: asking with a row of zeros\n"
    assert gateway.asked == [{"task": "digits", "inputs": [[0] * 64]}]


def test_a_row_of_an_npz_is_found_by_name_or_by_shape(
    gateway: Gateway, shell: Shell, tmp_path: Path
) -> None:
    rows = np.arange(3 * 64, dtype=np.float32).reshape(3, 64)
    np.savez(tmp_path / "named.npz", pixels=rows, labels=np.array([1, 2, 3]))
    np.savez(tmp_path / "other.npz", x=rows, y=np.array([1, 2, 3]))

    for name in ("named.npz", "other.npz"):
        shell("query", "digits", "-i", str(tmp_path / name), "--row", "2", url=gateway.url)

    assert [asked["inputs"] for asked in gateway.asked] == [[rows[2].tolist()]] * 2


def test_that_only_the_first_row_of_an_npz_is_asked_with_is_said(
    gateway: Gateway, shell: Shell, tmp_path: Path
) -> None:
    rows = np.arange(3 * 64, dtype=np.float32).reshape(3, 64)
    np.savez(tmp_path / "rows.npz", pixels=rows)
    np.savez(tmp_path / "row.npz", pixels=rows[:1])

    ended = shell("query", "digits", "-i", str(tmp_path / "rows.npz"), url=gateway.url)
    alone = shell("query", "digits", "-i", str(tmp_path / "row.npz"), url=gateway.url)

    assert [asked["inputs"] for asked in gateway.asked] == [[rows[0].tolist()]] * 2
    assert (ended.err, alone.err) == (
        "no --row: asking with the first of 3 rows; `modelless batch` answers all\n", "",
    )  # fmt: skip


def test_a_row_of_no_file_is_refused(gateway: Gateway, shell: Shell) -> None:
    ended = shell("query", "digits", "--row", "2", url=gateway.url)
    assert ended.code == 2
    assert ended.err == "error: --row picks a row of a file: name it by --input\n"


def test_a_single_row_may_stand_without_its_list(
    gateway: Gateway, shell: Shell, tmp_path: Path
) -> None:
    path = tmp_path / "row.json"
    path.write_text(json.dumps({"inputs": [1.0] * 64}))

    shell("query", "digits", "-i", str(path), url=gateway.url)

    assert gateway.asked[0]["inputs"] == [[1.0] * 64]


def test_a_command_waits_longer_than_a_write_for_the_database() -> None:
    assert TIMEOUT_S > BUSY_TIMEOUT_S


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros((3, 64)))
    return file.getvalue()


def damaged_npz() -> bytes:
    content = bytearray(npz(pixels=np.zeros((3, 64))))
    start = content.index(b"pixels.npy") + len(b"pixels.npy") + 20
    content[start : start + 8] = b"\xff" * 8
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "arguments", "error"),
    [
        ("none.json", None, (), "none.json cannot be read: No such file or directory"),
        ("broken.json", b"[1,", (), "broken.json is not JSON: "),
        ("rows.csv", b"a,b", (), "rows.csv is not JSON: rows are read from .json and .npz files"),
        ("text.json", b'"x"', (), "text.json holds no rows: a list of rows is needed"),
        ("short.json", b"[[1]]", ("--row", "1"), "short.json has no row 1; it has 1 row"),
        ("none.npz", None, (), "none.npz cannot be read: No such file or directory"),
        ("broken.npz", b"PK not really", (), "broken.npz cannot be read as .npz: "),
        ("npy.npz", npy(), (), "npy.npz cannot be read as .npz: it is a single array"),
        ("damaged.npz", damaged_npz(), (), "damaged.npz cannot be read as .npz: "),
        ("text.npz", npz(pixels=["a"]), (), "text.npz has no array 'pixels'; it has: none of"),
        ("scalar.npz", npz(pixels=1.0), (), "scalar.npz has no array 'pixels'; it has: none of"),
        ("complex.npz", npz(pixels=[1j]), (), "complex.npz has no array 'pixels'; it has: none"),
    ],
)
def test_a_wrong_input_file_is_one_sentence(
    gateway: Gateway,
    shell: Shell,
    tmp_path: Path,
    name: str,
    content: bytes | None,
    arguments: tuple[str, ...],
    error: str,
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)

    ended = shell("query", "digits", "-i", str(tmp_path / name), *arguments, url=gateway.url)

    assert (ended.code, ended.out, gateway.asked) == (2, "", [])
    assert ended.err.startswith(f"error: {tmp_path / name}"[: -len(name)] + error)


def test_a_pickle_in_an_npz_is_never_loaded(gateway: Gateway, shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "pickle.npz"
    np.savez(path, pixels=np.array([{"a": 1}], dtype=object))

    assert shell("query", "digits", "-i", str(path), url=gateway.url).code == 2


def test_an_infeasible_slo_shows_what_comes_closest(gateway: Gateway, shell: Shell) -> None:
    gateway.answer = SloInfeasible(
        "no variant of digits answers within 1 ms",
        alternatives=[
            Alternative(
                variant="linear-v1-onnx-fp32",
                accuracy=0.9,
                latency_ms=1.2,
                cost_usd_per_1k=0.0005,
                reason="p95 1.2 ms > 1 ms",
            )
        ],
    )

    ended = shell("query", "digits", url=gateway.url)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines()[1:] == [
        "error: no variant of digits answers within 1 ms",
        "  the closest are",
        "  linear-v1-onnx-fp32: accuracy 90.00 %, 1.20 ms, 0.50 USD per million"
        " (p95 1.2 ms > 1 ms)",
    ]


def test_a_cold_variant_says_when_to_try_again(gateway: Gateway, shell: Shell) -> None:
    gateway.answer = Cold("the variant is being loaded", retry_after_s=1.5)

    ended = shell("query", "digits", url=gateway.url)

    assert (ended.code, ended.err.splitlines()[-1]) == (1, "  try again in 1.5 s")


# -- the root -----------------------------------------------------------------------------------


def test_help_names_every_command_on_a_line_of_its_own(shell: Shell) -> None:
    lines = shell("--help").out.splitlines()

    for entries in root.COMMANDS.values():
        for entry in entries:
            assert any(line.split() == [entry.name, *entry.help.split()] for line in lines), entry
    assert max(map(len, lines)) <= 80


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """What one types for every command and every group."""
    yield path
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
        yield from leaves(command.get_command(None, name), (*path, name))


@pytest.mark.parametrize("path", list(leaves(get_command(root.app))), ids=" ".join)
def test_a_help_says_things_once_and_in_full(shell: Shell, path: tuple[str, ...]) -> None:
    ended = shell(*path, "--help")

    assert ended.code == 0
    assert ended.out.startswith(f"Usage: {' '.join(('modelless', *path))} [OPTIONS]")
    assert "-h, --help" in ended.out
    ugly = re.findall(
        r"<(?:str|int|float|path|bool)\b.*?>|\{\w+\}|x[<>]=|``|\w\.\.\.$", ended.out, re.M
    )
    assert ugly == []
    assert max(map(len, ended.out.splitlines())) <= 80


def test_help_imports_no_command() -> None:
    import subprocess
    import sys

    script = (
        "import sys\n"
        "from controlplane.cli.commands.root import app\n"
        "app(['--help'], standalone_mode=False)\n"
        "heavy = {'httpx', 'numpy', 'pydantic', 'ray', 'fastapi', 'sqlalchemy'}\n"
        "print(heavy & set(sys.modules), file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert ran.stderr == "set()\n"


def test_looking_imports_nothing_of_measuring_and_serving(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = (
        "import sys\n"
        "from controlplane.cli.main import main\n"
        "try:\n"
        "    main(['tasks', 'list'])\n"
        "finally:\n"
        "    heavy = {'numpy', 'ray', 'fastapi', 'sqlalchemy', 'planner.batching.queue_room'}\n"
        "    here = {name for name, found in sys.modules.items() if found is not None}\n"
        "    print(sorted(here & (heavy | {'httpx', 'httpx._main', 'click'})))\n"
    )
    given = os.environ | {"MODELLESS_STATE_DIR": str(tmp_path), "MODELLESS_PORT": str(free_port())}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=given
    )

    assert (ran.returncode, ran.stdout) == (3, "['httpx']\n"), ran.stderr


# -- up -----------------------------------------------------------------------------------------


def test_up_says_how_many_workers_are_wanted_and_by_what(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path, cores=4, workers=2)
    stored = {DeviceKindName("cpu-2"): 1, DeviceKindName("cpu-4"): 3, DeviceKindName("x"): 0}

    [own], others = _wanted_workers(settings, stored)

    assert asked_words(own) == (
        "1 worker cpu-2 (stored by `modelless workers scale`; MODELLESS_WORKERS says 2)"
    )
    assert [_not_here(row) for row in others] == [
        "3 workers cpu-4 (stored by `modelless workers scale`) wanted too, and not deployed by "
        "this command; `modelless workers scale cpu-4 0` ends that"
    ]


def test_the_list_and_the_plan_say_what_is_wanted_and_what_runs(
    gateway: Gateway, shell: Shell
) -> None:
    gateway.catalog.set_inventory(DeviceKindName("cpu-4"), 3)

    for shown in (
        shell("workers", "list", url=gateway.url).out,
        shell("plan", "get", url=gateway.url).out,
    ):
        assert "1 of 3 workers cpu-4 running, 2 missing" in shown
    assert "cpu-4: 3 wanted, 1 running" in shell("workers", "list", url=gateway.url).out


def test_a_list_of_turns_tells_of_each_what_is_new_and_json_has_all(
    gateway: Gateway, shell: Shell
) -> None:
    full = "w1 holds 14 of 14 variants."
    for number, told in enumerate(([full], ["demand 7", full], ["demand 8", full], [full])):
        body: dict[str, Any] = {"explanation": told}
        if number > 1:
            body["changes"] = ["w2 gets 1 variant", "so"] if number == 2 else []
        gateway.catalog.add_tick(
            TickRecord(plan_version=number, at="2026-11-26T08:00:00", body=body)
        )

    _, *lines = shell("plan", "list", "--all", "--limit", "3", url=gateway.url).out.splitlines()
    rows = shell("plan", "list", "--all", "--limit", "3", "-o", "json", url=gateway.url).json()

    assert [line.split("  ")[-1].strip() for line in map(str.rstrip, lines)] == [
        f"Only planned rates differ. {full}",
        "Changed: w2 gets 1 variant; so. demand 8",
        "demand 7",
    ]  # fmt: skip
    assert [row["body"]["explanation"] for row in rows] == [
        [full], ["demand 8", full], ["demand 7", full],
    ]  # fmt: skip


def test_turns_that_changed_nothing_are_listed_when_all_are_asked_for(
    gateway: Gateway, shell: Shell
) -> None:
    for minute in range(3):
        body = {"explanation": ["w1 holds nothing"], "actions": []}
        gateway.catalog.add_tick(
            TickRecord(plan_version=1, at=f"2026-11-26T08:0{minute}:00", body=body)
        )

    def turns(*options: str) -> list[str]:
        return [
            row["at"]
            for row in shell("plan", "list", "-o", "json", *options, url=gateway.url).json()
        ]

    assert turns() == ["2026-11-26T08:00:00"]
    assert turns("--all") == [f"2026-11-26T08:0{minute}:00" for minute in (2, 1, 0)]


def test_many_loads_in_a_row_are_one_line_and_json_has_each(gateway: Gateway, shell: Shell) -> None:
    def happened(kind: str, subject: str, message: str = "in the plan") -> None:
        gateway.catalog.add_event(
            Event(at="2026-11-26T08:00:00", kind=kind, subject=subject, message=message)
        )

    happened("worker_joined", "w1", "here")
    for number in range(40):
        happened("loaded", f"digits/v{number} on w{number % 2}")
    for number in range(3):
        happened("unloaded", f"digits/v{number} on w1")
    for number in range(4):
        happened("evicted", f"digits/v{number} on w1", f"for v{number}")
    happened("worker_lost", "w1", "gone")

    _, *lines = shell("events", "list", "--limit", "7", url=gateway.url).out.splitlines()
    rows = shell("events", "list", "--limit", "7", "-o", "json", url=gateway.url).json()

    first, last = rows[0]["seq"], rows[-1]["seq"]
    assert [re.split(r"  +", line.strip())[0:1] + re.split(r"  +", line.strip())[2:]
            for line in lines] == [
        [str(last - 48), "worker_joined", "w1", "here"],
        [str(last - 8), "loaded", "40 times on 2 workers", "in the plan; last digits/v39"],
        *([str(last - 7 + n), "unloaded", f"digits/v{n} on w1", "in the plan"] for n in range(3)),
        [str(last - 1), "evicted", "4 times on w1", "last digits/v3"],
        [str(last), "worker_lost", "w1", "gone"],
    ]  # fmt: skip
    assert (len(rows), first) == (7, last - 6)


def test_of_layouts_the_first_comes_that_the_stored_numbers_leave(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path, slices="1xcpu-2|2xcpu-1")
    one, two = DeviceKindName("cpu-1"), DeviceKindName("cpu-2")
    cases: tuple[tuple[dict[DeviceKindName, int], int, int], ...] = (
        ({}, 0, 1), ({two: 0}, 2, 0), ({one: 1}, 0, 1), ({two: 0, one: 1}, 1, 0),
    )  # fmt: skip
    for stored, narrow, wide in cases:
        rows, others = _wanted_workers(settings, stored)
        assert {row.device_kind: row.asked for row in rows} == {"cpu-1": narrow, "cpu-2": wide}
        assert others == []


def test_a_start_that_goes_on_is_no_absence(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("MODELLESS_PORT", str(free_port()))
    settings = load_settings()
    prepare(settings)
    with (settings.run_dir / "up.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_state(settings, os.getpid(), set())
        said = shell("tasks", "list")
    assert said.code == 3
    assert said.err.startswith(f"error: modelless is starting (process {os.getpid()}): it trains")


def test_a_gateway_that_has_ended_is_told_from_nothing_that_runs(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`modelless up`, which was advised, would have refused to start."""
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("MODELLESS_PORT", str(free_port()))
    settings = load_settings()
    prepare(settings)
    (settings.run_dir / "ready").write_text(str(os.getpid()))
    with (settings.run_dir / "up.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        write_state(settings, os.getpid(), set())
        said = shell("status")
    assert said.code == 3
    assert said.err.startswith(f"error: no gateway listens at {settings.gateway_url}, though")
    assert f"`modelless up` runs (process {os.getpid()})" in said.err
