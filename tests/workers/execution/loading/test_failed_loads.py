"""Variants that cannot be loaded: what is said, what is listed, and when it is tried again."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workers.builders import double_model, echo_spec, onnx_spec, vid
from tests.workers.execution.loading.asking import ask, damage, half, states
from variants.artifacts.integrity import seen
from variants.errors import ArtifactDamaged, VariantNotLoadable
from variants.types import ReplicaState
from workers.execution.failures import FIRST_S, LONGEST_S, Failures, not_loadable, why_of
from workers.execution.loader import Loading
from workers.execution.room import Demanded
from workers.types import LoadSpec, ReplyCode


async def test_damaged_weights_are_not_loaded(loading: Loading, tmp_path: Path) -> None:
    path = double_model(tmp_path / "double.onnx")
    spec = onnx_spec(path)
    damage(path)
    with pytest.raises(ArtifactDamaged, match="task/v cannot be loaded: its artifact"):
        await loading.load(spec)
    [(state, message)] = states(loading).values()
    assert state == ReplicaState.DAMAGED
    assert message.startswith(f"its artifact {spec.artifact[:12]} is damaged")
    assert loading.reserved_mib == 0.0
    assert ask(loading.executor, spec).codes == [ReplyCode.COLD]


@pytest.mark.parametrize("left", [0, 60])
async def test_a_truncated_artifact_says_so(loading: Loading, tmp_path: Path, left: int) -> None:
    path = double_model(tmp_path / "double.onnx")
    spec = onnx_spec(path)
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(ArtifactDamaged, match=f"the {left} bytes in the store are not those"):
        await loading.load(spec)


async def test_a_missing_artifact_says_so(loading: Loading, tmp_path: Path) -> None:
    with pytest.raises(ArtifactDamaged, match="its artifact 000000000000 is missing"):
        await loading.load(onnx_spec(tmp_path / "nothing.onnx"))
    assert [state for state, _ in states(loading).values()] == ["damaged"]


async def test_nothing_leaves_for_a_damaged_artifact(loading: Loading, tmp_path: Path) -> None:
    await loading.load(half("a"))
    await loading.load(half("b"))
    with pytest.raises(ArtifactDamaged):
        await loading.load(
            replace(onnx_spec(tmp_path / "nothing"), memory_mib=50.0),
            demanded=Demanded(waiting=True),
        )
    assert {name for name, (state, _) in states(loading).items() if state == "ready"} == {"a", "b"}


async def test_a_restored_artifact_is_loaded(loading: Loading, tmp_path: Path) -> None:
    path = double_model(tmp_path / "double.onnx")
    spec = onnx_spec(path)
    whole = damage(path)
    for _ in range(3):
        with pytest.raises(ArtifactDamaged):
            await loading.load(spec)
    await loading.retry_failed()
    assert [state for state, _ in states(loading).values()] == ["damaged"]

    path.write_bytes(whole)
    await loading.retry_failed()
    assert states(loading) == {}
    await loading.load(spec)
    assert [state for state, _ in states(loading).values()] == ["ready"]


async def test_what_is_loaded_stays_when_its_file_is_damaged(
    loading: Loading, tmp_path: Path
) -> None:
    path = double_model(tmp_path / "double.onnx")
    spec = onnx_spec(path)
    await loading.load(spec)
    damage(path)
    await loading.load(spec)  # new terms only
    assert [state for state, _ in states(loading).values()] == ["ready"]
    answers = ask(loading.executor, spec)
    await loading.executor.quiet()
    assert answers.codes == [ReplyCode.OK]

    await loading.unload("task", "v")
    with pytest.raises(ArtifactDamaged):
        await loading.load(spec)


async def test_what_the_back_end_refuses_is_said_without_a_path(
    loading: Loading, tmp_path: Path
) -> None:
    path = tmp_path / "double.onnx"
    path.write_bytes(b"no model")
    spec = onnx_spec(path)
    with pytest.raises(VariantNotLoadable, match="task/v cannot be loaded: ") as raised:
        await loading.load(spec)
    assert not isinstance(raised.value, ArtifactDamaged)
    assert str(tmp_path) not in raised.value.message
    assert [state for state, _ in states(loading).values()] == ["failed"]
    with pytest.raises(VariantNotLoadable):  # at once: nothing has changed
        await loading.load(spec)


async def test_an_unknown_runtime_is_said(loading: Loading) -> None:
    with pytest.raises(VariantNotLoadable, match="task/v cannot be loaded: runtime 'steam'"):
        await loading.load(replace(echo_spec(), runtime="steam"))
    assert [state for state, _ in states(loading).values()] == ["failed"]


async def test_loads_that_fail_together_fail_alike(loading: Loading, tmp_path: Path) -> None:
    spec = onnx_spec(tmp_path / "nothing.onnx")
    found = await asyncio.gather(*(loading.load(spec) for _ in range(5)), return_exceptions=True)
    assert {type(error) for error in found} == {ArtifactDamaged}


# -- when to try again ----------------------------------------------------------------------------


def test_a_damaged_artifact_waits_for_its_file(tmp_path: Path) -> None:
    path = tmp_path / "artifact"
    path.write_bytes(b"x")
    spec, failures = replace(echo_spec(), path=str(path)), Failures()
    error = not_loadable(spec, ArtifactDamaged("its artifact is damaged"))
    failures.note(spec, error, seen(path), 0.0)
    assert failures.due(1e9) == []
    assert failures.standing(spec, 1e9) is error
    path.unlink()
    assert failures.due(0.0) == [vid(spec)]
    assert failures.standing(spec, 0.0) is None


def test_other_failures_wait_longer_each_time() -> None:
    spec, failures = echo_spec(), Failures()
    waits = []
    for _ in range(9):
        failures.note(spec, VariantNotLoadable("no memory"), None, 0.0)
        waits.append(next(s for s in range(1_000) if failures.due(float(s))))
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert (FIRST_S, LONGEST_S) == (5.0, 300.0)
    failures.succeeded(vid(spec))
    assert failures.due(1e9) == []


def test_a_failure_speaks_of_what_was_loaded() -> None:
    spec, failures = echo_spec(), Failures()
    failures.note(spec, VariantNotLoadable("no"), None, 0.0)
    assert failures.standing(spec, 0.0) is not None
    assert failures.standing(replace(spec, path="elsewhere"), 0.0) is None
    assert failures.standing(replace(spec, share=0.5), 0.0) is not None


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("task/v cannot be loaded: /a/b failed: truncated", "its artifact failed: truncated"),
        ("task/v has no output y", "it has no output y"),
        ("no memory\nleft", "no memory\\nleft"),
    ],
)
def test_a_failure_is_one_sentence(said: str, why: str) -> None:
    spec: LoadSpec = replace(echo_spec(), path="/a/b")
    error = not_loadable(spec, VariantNotLoadable(said))
    assert error.message == f"task/v cannot be loaded: {why}"
    assert why_of(spec, error) == why
