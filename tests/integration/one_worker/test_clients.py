"""Clients that others wrote, as they are, against the whole product.

While they run, other clients hold connections open as slowly as they can.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests import onnx_models as models
from tests.clients import libraries, program
from tests.integration.deployment import PATIENT, Deployment, command
from tests.services import missing
from tests.texts import encoder_model, tokenizer_json, write_texts

pytestmark = [pytest.mark.integration, pytest.mark.slow]

FOLDER = Path(__file__).parents[2] / "clients"
PATIENCE_S = 300.0
EXAMPLES = float(os.environ.get("MODELLESS_TEST_EXAMPLES", "1"))
SLOWLY = {
    "headers": ["-H", "-i", "3"],
    "body": ["-B", "-i", "3", "-s", "8192", "-x", "10"],
    "reading": ["-X", "-w", "1", "-y", "2", "-n", "1", "-z", "32", "-k", "3"],
}
"""Options of slowhttptest: what is slow."""


def run(*command: object, cwd: Path | None = None, **environment: str) -> str:
    """What a program says, on both outputs; it has to end with 0."""
    ended = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4_000:]
    return ended.stdout


@pytest.fixture(scope="module", autouse=True)
def slow_clients(digits: Deployment) -> Iterator[None]:
    """Some hundred connections that are as slow as can be, and a look at what they met."""
    path = shutil.which("slowhttptest")
    if path is None:
        yield
        return
    url = f"http://127.0.0.1:{digits.port}/v1/query"
    options = ["-c", "100", "-r", "100", "-l", "12", "-p", "60", "-t", "POST", "-u", url, "-v", "1"]
    with ExitStack() as stack:
        started = {
            kind: stack.enter_context(
                subprocess.Popen([path, *slowly, *options], stdout=subprocess.PIPE, text=True)
            )
            for kind, slowly in SLOWLY.items()
        }
        yield
        for kind, process in started.items():
            said, _ = process.communicate(timeout=PATIENCE_S)
            plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", said)
            available = re.findall(r"service available: +(\w+)", plain)
            assert available, (kind, said)
            assert available[-1] == "YES", (kind, said)


def test_slow_clients_are_there() -> None:
    """What they met is seen when this module ends."""
    if shutil.which("slowhttptest") is None:
        missing("slowhttptest")


def test_triton(digits: Deployment) -> None:
    python = program("triton", "python")
    session = FOLDER / "triton_session.py"
    assert run(python, session, digits.port, digits.grpc_port) == "as expected\n"


def test_kserve(digits: Deployment) -> None:
    python = program("kserve", "python")
    session = FOLDER / "kserve_session.py"
    assert run(python, session, digits.port, digits.grpc_port).endswith("as expected\n")


@pytest.fixture
def moods(digits: Deployment, tmp_path: Path) -> Iterator[str]:
    """The name of a task that gives vectors of texts."""
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_json())
    command(
        digits, "register", models.write(tmp_path / "mood.onnx", encoder_model()),
        "--task", "moods", "--metric", "nearest", "--eval", write_texts(tmp_path / "texts.csv"),
        "--tokenizer", tmp_path / "tokenizer.json", "--lengths", "4,12",
        "--variants", "onnx-fp32", "--measure", "sampled",
    )  # fmt: skip
    digits.until(
        lambda: digits.request("GET", "/v2/models/moods/ready").status == 200, "both lengths"
    )
    yield "moods"
    assert digits.request("DELETE", "/v1/tasks/moods").status == 200
    digits.until(lambda: digits.request("GET", "/v2/models/moods").status == 404, "its end")


def test_openai(digits: Deployment, moods: str) -> None:
    python = program("openai", "python")
    session = FOLDER / "openai_session.py"
    assert run(python, session, digits.port, moods) == "as expected\n"


@pytest.mark.parametrize("how", ["http", "grpc", "stream"])
def test_perf_analyzer(digits: Deployment, how: str) -> None:
    command: list[object] = [program("triton", "perf_analyzer"), "-m", "digits"]
    if how == "http":
        command += ["-i", "http", "-u", f"127.0.0.1:{digits.port}"]
    else:
        command += ["-i", "grpc", "-u", f"127.0.0.1:{digits.grpc_port}"]
        command += ["--streaming"] if how == "stream" else []
        # In a stream it waits for ever where one was refused, as may be on a busy machine.
        command += ["--request-parameter", f"latency_slo_ms:{PATIENT['latency_ms']:.0f}:int"]
    # One look at so many queries: whether numbers are steady is not the question here.
    command += ["--request-count", "100", "--concurrency-range", "2"]
    search = libraries("triton")
    ldd = run("ldd", command[0], LD_LIBRARY_PATH=search)
    lacks = re.findall(r"(\S+) => not found", ldd)
    if lacks:
        missing(f"{', '.join(lacks)} of perf_analyzer")
    said = run(*command, LD_LIBRARY_PATH=search)
    counted = re.search(r"Concurrency: 2, throughput: ([\d.]+) infer/sec", said)
    assert counted, said
    assert float(counted[1]) > 0.0


def test_the_openapi_document_is_kept(digits: Deployment, tmp_path: Path) -> None:
    schemathesis = program("schemathesis", "schemathesis")
    config = (FOLDER / "schemathesis.toml").read_text()
    if EXAMPLES > 1:  # the whole of it
        config = re.sub(r"phases\..*\n", "", config)
        config = re.sub(r"(max-examples = )(\d+)", rf"\g<1>{int(3 * EXAMPLES)}", config)
    (tmp_path / "schemathesis.toml").write_text(config)
    slo = digits.get("/v1/tasks/digits")["slo"]
    url = f"http://127.0.0.1:{digits.port}/openapi.json"
    seed = ("--seed", "1", "-w", "1", "--no-color", "--request-timeout", "60")
    try:
        said = run(schemathesis, "run", url, *seed, cwd=tmp_path)  # it keeps things there, too
        assert "No issues found" in said
    finally:
        digits.request("DELETE", "/v1/tasks/digits/sharing")
        digits.request("PATCH", "/v1/tasks/digits/slo", slo)
        for rule in digits.get("/v1/rules")["rules"]:  # loads by name have pinned
            digits.request("DELETE", f"/v1/rules/{rule['id']}")
        for peak in digits.get("/v1/peaks")["peaks"]:
            digits.request("DELETE", f"/v1/peaks/{peak['id']}")


def test_prometheus_takes_the_metrics(digits: Deployment, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        missing("promtool")
    answer = digits.connection(PATIENCE_S)
    answer.request("GET", "/metrics")
    read = subprocess.run(
        [promtool, "check", "metrics"],
        input=answer.getresponse().read(),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    answer.close()
    # It ends with 0 for what it would rather have otherwise, too.
    assert (read.returncode, read.stdout, read.stderr) == (0, b"", b"")
