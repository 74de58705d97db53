"""The examples, run as a user runs them: each a process that is given a gateway."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.integration.deployment import Deployment, Load, environment, printed
from tests.integration.digits import GOOD
from tests.ports import free_port

pytestmark = pytest.mark.integration

GOOD_ROW = [0.0] * 64
EXAMPLES = Path(__file__).parents[3] / "examples"


def run(digits: Deployment, name: str, *arguments: str | Path) -> str:
    """What an example prints."""
    url = f"http://127.0.0.1:{digits.port}"
    return printed(digits, [sys.executable, EXAMPLES / name, "--url", url, *arguments])


def test_every_example_is_run_here() -> None:
    tested = Path(__file__).read_text()
    assert all(f'"{path.name}"' in tested for path in EXAMPLES.glob("*.py"))


def test_asking_from_a_script_and_from_an_event_loop(digits: Deployment) -> None:
    first, took, refused, closest, many = run(digits, "ask.py").splitlines()
    labels, _, used = first.partition(": ")
    right = [label == str(digit) for digit, label in enumerate(labels.split())]
    assert len(right) == 5
    assert sum(right) >= 4
    assert "measured accuracy 0.9" in used
    assert took.endswith("in time: True")
    assert refused.startswith("SLO_INFEASIBLE: ")
    assert closest.strip().startswith("closest is ")
    assert many.startswith("20 queries at once: ")
    assert len(many.split()[4:]) == 20


def test_a_web_application_that_asks(digits: Deployment) -> None:
    port, url = free_port(), f"http://127.0.0.1:{digits.port}"
    program = str(EXAMPLES / "web_application.py")
    command = [sys.executable, program, "--url", url, "--port", str(port)]
    serving = subprocess.Popen(command, env=environment(digits.state_dir, digits.port))
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as web:
            digits.until(lambda: answers(web, "/openapi.json"), "the application")
            read = web.post("/cheque", json={"pixels": [GOOD_ROW]}).json()
            wrong = web.post("/cheque", json={"pixels": [GOOD_ROW[1:]]})
        assert len(read["digits"]) == 1
        assert wrong.status_code == 400
    finally:
        serving.terminate()
        serving.wait(30)


def answers(web: httpx.Client, path: str) -> bool:
    try:
        return web.get(path).status_code == 200
    except httpx.TransportError:
        return False


def test_what_other_fleets_would_have_done(digits: Deployment, tmp_path: Path) -> None:
    with Load(digits, GOOD, clients=1, pause_s=0.01) as load:
        digits.until(lambda: load.snapshot()["200"] > 10, "load")
        arguments = ["--seconds", "3", "--workers", "1", "2", "--folder", str(tmp_path)]
        told = run(digits, "what_if.py", *arguments)
    asked, header, *rows = told.splitlines()
    assert asked.startswith("asked within 3 s: {'digits': ")
    assert header.split()[0] == "workers"
    assert [row.split()[0] for row in rows] == ["1", "2"]
    assert all(float(row.split()[2]) > 0.8 for row in rows)
    trace = (tmp_path / "trace.csv").read_text().splitlines()
    assert trace[0] == "second,task,requests,latency_slo_ms,min_accuracy"
    assert {line.split(",")[1] for line in trace[1:]} == {"digits"}


@pytest.mark.campaign
def test_two_models_of_a_new_task(digits: Deployment, tmp_path: Path) -> None:
    told = run(digits, "register_models.py", "--folder", tmp_path)
    for preference in ("cost", "accuracy"):
        (line,) = [line for line in told.splitlines() if line.startswith(f"prefer {preference}: ")]
        labels, _, variant = line.removeprefix(f"prefer {preference}: ").partition(" from ")
        assert set(labels.split(", ")) <= {"barolo", "grignolino", "barbera"}
        assert variant.startswith(("wine-linear-v1-", "wine-mlp-v1-"))
    assert {model["model"] for model in digits.get("/v1/tasks/wine/models")["models"]} == {
        "wine-linear", "wine-mlp",
    }  # fmt: skip


@pytest.mark.campaign
def test_a_regressor_and_an_encoder_from_training_to_an_answer(
    digits: Deployment, tmp_path: Path
) -> None:
    told = run(digits, "numbers_and_vectors.py", "--folder", tmp_path).splitlines()
    (numbers,) = [line for line in told if line.startswith("diabetes: ")]
    said, _, rest = numbers.removeprefix("diabetes: ").partition(" where ")
    assert all(0 < float(number) < 400 for number in said.split(", "))
    assert len(said.split(", ")) == 3
    assert " from ridge-v1-" in rest
    (likeness,) = [line for line in told if line.startswith("likeness: ")]
    pairs = [pair.split(" is like ") for pair in likeness.removeprefix("likeness: ").split(", ")]
    assert len(pairs) == 3
    assert sum(one == other for one, other in pairs) >= 2
    metrics = {task["name"]: task["metric"] for task in digits.get("/v1/tasks")["tasks"]}
    assert (metrics["diabetes"], metrics["likeness"]) == ("within:75", "nearest")


@pytest.mark.campaign
def test_two_models_that_read_texts(digits: Deployment, tmp_path: Path) -> None:
    told = run(digits, "texts.py", "--folder", tmp_path).splitlines()
    found = [line.rpartition(" is of ")[2].split(", from ") for line in told if " is of " in line]
    assert len(found) == 4
    assert {library for library, _ in found} <= {"numpy", "scipy", "scikit-learn"}
    assert all(name.startswith(("narrow-v1-", "wide-v1-")) for _, name in found)
    (task,) = [one for one in digits.get("/v1/tasks")["tasks"] if one["name"] == "library"]
    assert task["text"]["tokens"] == 128
    assert task["best_accuracy"] > 0.5
