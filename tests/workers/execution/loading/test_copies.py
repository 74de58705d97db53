"""Loading on a machine that does not see where artifacts are kept."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.workers.builders import double_model, echo_spec, onnx_spec
from tests.workers.execution.loading.asking import ask, damage, states
from variants.artifacts.cache import CachedArtifactStore
from variants.artifacts.served import ArtifactService, ServedArtifacts
from variants.artifacts.store import FileArtifactStore
from variants.errors import ArtifactDamaged, StateUnavailable, VariantNotLoadable
from variants.types import VariantName
from workers.execution.artifacts import CopiedArtifacts
from workers.execution.executor import Executor
from workers.execution.loader import Loading
from workers.process.quarantine import CrashLedger
from workers.types import LoadSpec, ReplyCode


class Head:
    """Where artifacts are kept, and the way there."""

    def __init__(self, folder: Path) -> None:
        self.store = FileArtifactStore(folder)
        self._service = ArtifactService(self.store)
        self.answers = threading.Event()
        self.answers.set()
        self.dead = False
        self.asked: list[str] = []

    def __call__(self, question: str, *arguments: Any) -> Any:
        self.asked.append(question)
        self.answers.wait(60)
        if self.dead:
            raise StateUnavailable("the cluster's head does not answer")
        return self._service.answer(question, *arguments)

    def registered(self, model: Path) -> LoadSpec:
        """The spec of a model, whose path nobody on the worker's machine has."""
        self.store.put(model)
        return replace(onnx_spec(model), path="/elsewhere/artifact", memory_mib=60.0)


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path / "head")


@pytest.fixture
async def loading(tmp_path: Path, head: Head) -> AsyncIterator[Loading]:
    async with worker(tmp_path, head) as made:
        yield made


@asynccontextmanager
async def worker(tmp_path: Path, head: Head) -> AsyncIterator[Loading]:
    """What one process of the machine has."""
    ledger = CrashLedger("")
    executor = Executor(ledger)
    executor.start()
    store = CachedArtifactStore(tmp_path / "node", ServedArtifacts(head), 1 << 20)
    made = Loading(executor, ledger, 100.0, 1, artifacts=CopiedArtifacts(store))
    yield made
    await executor.stop()
    made.shutdown()


async def test_what_is_fetched_answers_and_its_time_counts(
    loading: Loading, head: Head, tmp_path: Path
) -> None:
    spec = head.registered(double_model(tmp_path / "double.onnx"))
    await loading.load(spec)
    answers = ask(loading.executor, spec)
    await loading.executor.quiet()
    assert answers.codes == [ReplyCode.OK]
    assert loading.thread.fetched_s > 0.0

    await loading.unload("task", "v")
    head.dead = True  # it is here
    assert (await loading.load(spec)).state == "ready"


async def test_a_worker_that_starts_beside_a_copy_asks_a_head_that_is_away_once(
    loading: Loading, head: Head, tmp_path: Path
) -> None:
    spec = head.registered(double_model(tmp_path / "double.onnx"))
    await loading.load(spec)
    head.dead = True
    head.asked.clear()
    async with worker(tmp_path, head) as another:
        assert (await another.load(spec)).state == "ready"
    assert head.asked == ["look"]


async def test_nothing_that_is_here_waits_for_what_is_fetched(
    loading: Loading, head: Head, tmp_path: Path
) -> None:
    spec = head.registered(double_model(tmp_path / "double.onnx"))
    head.answers.clear()
    fetching = asyncio.create_task(loading.load(spec))
    other = replace(echo_spec(), variant=VariantName("other"), memory_mib=60.0)
    await loading.load(other)
    await loading.unload("task", "other")
    assert not fetching.done()
    assert loading.reserved_mib == 0.0
    head.answers.set()
    assert (await fetching).state == "ready"


async def test_what_is_damaged_on_the_head_is_loaded_once_it_is_repaired(
    loading: Loading, head: Head, tmp_path: Path
) -> None:
    model = double_model(tmp_path / "double.onnx")
    spec = head.registered(model)
    place = head.store.place(spec.artifact)
    place.chmod(0o644)
    damage(place)
    with pytest.raises(ArtifactDamaged, match="task/v cannot be loaded: its artifact"):
        await loading.load(spec)
    await loading.retry_failed()
    assert [state for state, _ in states(loading).values()] == ["damaged"]

    head.store.put(model)
    await loading.retry_failed()
    assert states(loading) == {}
    assert (await loading.load(spec)).state == "ready"


async def test_a_head_that_is_away_fails_the_load_until_it_is_back(
    loading: Loading, head: Head, tmp_path: Path
) -> None:
    spec = head.registered(double_model(tmp_path / "double.onnx"))
    head.dead = True
    with pytest.raises(VariantNotLoadable, match="cannot be fetched: the cluster's head") as raised:
        await loading.load(spec)
    assert not isinstance(raised.value, ArtifactDamaged)
    assert [state for state, _ in states(loading).values()] == ["failed"]
    with pytest.raises(VariantNotLoadable):  # at once: it asks again when it is time
        await loading.load(spec)

    head.dead = False
    await loading.retry_failed()
    assert (await loading.load(spec)).state == "ready"
