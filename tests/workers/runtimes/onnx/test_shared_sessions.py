"""Variants of one file that share a session: the same answers, and weights in memory once."""

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import onnx_models as models
from tests.onnx_models import node, tensor
from tests.workers.builders import digest_of
from variants.errors import RuntimeFailed
from variants.types import TaskName, TensorSpec, VariantName
from workers.runtimes.onnx import OnnxRuntime
from workers.runtimes.sharing.sessions import OPEN, SharedSessions
from workers.types import LoadSpec

WIDTH = 1_536
"""So that the weights have 9 MiB."""
WEIGHT = np.random.default_rng(0).normal(size=(WIDTH, WIDTH)).astype(np.float32) / WIDTH
WEIGHTS_MIB = WEIGHT.nbytes / 2**20


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A product for each position of rows of any length."""
    made = models.model(
        nodes=[node("MatMul", ("x", "weight"), "y")],
        inputs=[tensor("x", "batch", "length", WIDTH)],
        outputs=[tensor("y", "batch", "length", WIDTH)],
        weights={"weight": WEIGHT},
    )
    return models.write(tmp_path_factory.mktemp("open") / "open.onnx", made)


def runtime(model: Path, length: int, *, threads: int = 1, **changes: Any) -> OnnxRuntime:
    spec = LoadSpec(
        task=TaskName(f"t.{length}"),
        variant=VariantName("v"),
        runtime="onnx",
        artifact=digest_of(model),
        path=str(model),
        inputs=(TensorSpec(name="x", dtype="float32", shape=(length, WIDTH)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=(length, WIDTH)),),
        latency=((1, 1.0),),
        memory_mib=10.0,
        load_s=0.1,
        **({"options": (("session", "shared"),)} | changes),
    )
    return OnnxRuntime(spec, threads)


def loaded(model: Path, length: int, **changes: Any) -> OnnxRuntime:
    made = runtime(model, length, **changes)
    made.load()
    return made


def rows(length: int, count: int = 2) -> Any:
    return np.random.default_rng(length).normal(size=(count, length, WIDTH)).astype(np.float32)


def resident_mib() -> float:
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4_096 / 2**20


def test_each_length_is_answered_by_itself(model: Path) -> None:
    short, long = loaded(model, 3), loaded(model, 7)
    for one, length in ((short, 3), (long, 7), (short, 3)):
        given = rows(length)
        np.testing.assert_allclose(one.run([given])[0], given @ WEIGHT, atol=1e-5)
    short.close()
    with pytest.raises(RuntimeFailed, match="is not loaded"):
        short.run([rows(3)])
    given = rows(7)
    np.testing.assert_allclose(long.run([given])[0], given @ WEIGHT, atol=1e-5)
    long.close()
    long.close()
    assert not OPEN._sessions


def test_weights_are_in_memory_once(model: Path) -> None:
    first = loaded(model, 1)
    before = resident_mib()
    others = [loaded(model, length) for length in (2, 3, 4, 5)]
    assert resident_mib() - before < WEIGHTS_MIB
    alone = loaded(model, 6, options=())
    assert resident_mib() - before > WEIGHTS_MIB  # what this would show if they were not shared
    for one in (first, *others, alone):
        one.close()


def test_another_number_of_threads_has_a_session_of_its_own(model: Path) -> None:
    all_of = [loaded(model, 2), loaded(model, 2, threads=2), loaded(model, 3, threads=2)]
    assert len(OPEN._sessions) == 2
    assert all_of[1]._session is all_of[2]._session is not all_of[0]._session
    for one in all_of:
        one.close()


def test_what_does_not_fit_leaves_the_session_to_others(model: Path) -> None:
    sound = loaded(model, 2)
    other = (TensorSpec(name="z", dtype="float32", shape=(2, WIDTH)),)
    wrong = runtime(model, 2)
    wrong._inputs = [one.name for one in other]
    with pytest.raises(RuntimeFailed, match="takes inputs x, the task has z"):
        wrong.load()
    given = rows(2)
    np.testing.assert_allclose(sound.run([given])[0], given @ WEIGHT, atol=1e-5)
    sound.close()
    assert not OPEN._sessions


def test_what_cannot_be_made_is_made_anew() -> None:
    sessions, tries = SharedSessions(), []

    def fails() -> None:
        tries.append(1)
        raise ValueError("no memory")

    for _ in range(2):
        with pytest.raises(ValueError, match="no memory"):
            sessions.take("a", fails)
    assert len(tries) == 2
    assert sessions.take("a", lambda: "session") == sessions.take("a", fails) == "session"
    sessions.leave("a")
    assert sessions.take("a", fails) == "session"
    sessions.leave("a")
    sessions.leave("a")
    assert sessions.take("a", lambda: "another") == "another"


def test_an_unknown_word_is_refused(model: Path) -> None:
    with pytest.raises(RuntimeFailed, match="session 'both'; there are: own, shared"):
        loaded(model, 2, options=(("session", "both"),))
