"""Every bad artefact is refused with one sentence and leaves nothing behind.

Each is really registered, in a real catalog and store, with processes and their limits.
"""

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from controlplane.building.types import (
    Progress,
    RegistrationLimits,
    RegistrationRequest,
    RegistrationResult,
)
from controlplane.registry.registration import register
from profiler.sandbox.limits import MeasureLimits, SandboxLimits
from tests.corpus import pt2
from tests.corpus.case import Case, Step, sound_model, sound_rows
from tests.corpus.cases import CASES
from tests.profiler.forked import servers
from tests.variants import catalog_builders as builders
from variants.artifacts.store import FileArtifactStore
from variants.catalog.sql import SqlCatalog, open_catalog
from variants.errors import InvalidArtifact, InvalidInput, ModellessError
from variants.types import DeviceKind, DeviceKindName, TensorSpec

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]

ROOT = Path(__file__).parent.parent.parent
CPU = DeviceKind(name=DeviceKindName("cpu-1"), cores=1, memory_mib=1_000.0, usd_per_hour=0.04)
KINDS = ("onnx-fp32",)
"""The model itself: what is bad about it shows there, or not at all."""
MODEL_MIB = 40
QUICK = MeasureLimits(batch_sizes=(1, 2), point_s=0.004, min_runs=4)


class House:
    """A catalog, a store, and one way to register."""

    def __init__(self, folder: Path, database: Path) -> None:
        self.given, self.scratch = folder / "given", folder / "scratch"
        self.given.mkdir(parents=True)
        self.scratch.mkdir()
        self.catalog = SqlCatalog(f"sqlite:///{shutil.copy(database, folder / 'catalog.db')}")
        self.store = FileArtifactStore(folder / "store")
        self.told: list[Progress] = []

    def register(
        self, *, path: Path | None = None, evaluation: Path | None = None, trial_s: float = 60.0
    ) -> RegistrationResult:
        request = RegistrationRequest(
            path=path or sound_model(self.given),
            task="shapes",
            evaluation=evaluation or sound_rows(self.given),
            kinds=KINDS,
        )
        return register(
            request,
            self.catalog,
            self.store,
            (CPU,),
            self.told.append,
            limits=RegistrationLimits(
                model_mib=MODEL_MIB,
                trial=SandboxLimits(memory_mib=700, time_s=trial_s),
                measure=QUICK,
            ),
            scratch=self.scratch,
        )

    def know_the_task(self) -> None:
        """As if a sound model had been registered."""
        pixels = TensorSpec(name="pixels", dtype="float32", shape=(4,))
        shapes = builders.task("shapes", inputs=(pixels,))
        digest = self.store.put(sound_model(self.given))
        variant = builders.variant("other", of="shapes", artifact=digest)
        version = replace(builders.version("other", of="shapes"), source=digest)
        self.catalog.register(
            builders.registration(
                "other", of="shapes", task=shapes, version=version, variants=(variant,)
            )
        )

    @property
    def state(self) -> tuple[object, ...]:
        """All that a registration may leave behind, but for processes."""
        stored, scratch = sorted(self.store.digests()), sorted(self.scratch.iterdir())
        incoming = sorted((self.store.root / "incoming").iterdir())
        return self.catalog.revision(), self.catalog.snapshot(), stored, incoming, scratch

    @property
    def step(self) -> str:
        """Where the registration ended; reading rows is told as a part of the check."""
        return self.told[-1].step if self.told else Step.FIND


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of registering a case."""

    error: Exception | None
    step: str
    before: tuple[object, ...]
    after: tuple[object, ...]


def registered(case: Case, folder: Path, database: Path) -> Outcome:
    house = House(folder, database)
    if case.known:
        house.know_the_task()
    given = case.given(house.given)
    before = house.state
    error: Exception | None = None
    try:
        house.register(path=given.path, evaluation=given.evaluation, trial_s=case.trial_s)
    except Exception as raised:  # which it is, the test asks
        error = raised
    outcome = Outcome(error=error, step=house.step, before=before, after=house.state)
    house.catalog.close()
    return outcome


@pytest.fixture(scope="module")
def empty_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with tables and no rows, to be copied: making one takes longer than a case."""
    path = tmp_path_factory.mktemp("catalog") / "catalog.db"
    open_catalog(f"sqlite:///{path}").close()
    return path


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, empty_catalog: Path
) -> Iterator[dict[str, Future[Outcome]]]:
    """Of the cases that are asked for, two at a time: mostly, each waits for its process to start.

    In the end none of their processes is left.
    """
    here = [item for item in request.session.items if item.path == request.path]
    chosen = [getattr(item, "callspec", None) for item in here]
    cases = [spec.params["case"] for spec in chosen if spec and "case" in spec.params]
    others = children()
    folder = tmp_path_factory.mktemp("houses")
    with ThreadPoolExecutor(max_workers=2) as pool:
        yield {
            case.name: pool.submit(registered, case, folder / case.name, empty_catalog)
            for case in cases
        }
    assert children() == others


def children() -> set[psutil.Process]:
    here = psutil.Process().children(recursive=True)
    return {process for process in here if process.pid not in servers()}


def tried(cases: Sequence[Case]) -> list[Any]:
    """All cases; most of those of which a process is started are left to ``make campaign``.

    It takes most of the time. Of the others, which run nothing of the model, every fifth of a file
    is tried here: what is said of each is tested in ``tests/variants/checks`` and
    ``tests/profiler/evaluation``.
    """
    counts: Counter[str] = Counter()
    found = []
    for case in cases:
        alike = case.make.__module__
        counts[alike] += case.step in (Step.CHECK, Step.ROWS)
        left_out = case.step in (Step.CHECK, Step.ROWS) and counts[alike] % 5 != 1
        found.append(
            pytest.param(case, id=case.name, marks=[pytest.mark.campaign] if left_out else [])
        )
    return found


@pytest.mark.parametrize("case", tried(CASES))
def test_a_bad_artefact_gets_one_sentence_and_leaves_nothing(
    outcomes: dict[str, Future[Outcome]], case: Case
) -> None:
    outcome = outcomes[case.name].result()
    error = outcome.error
    assert type(error) in (InvalidArtifact, InvalidInput), error
    assert isinstance(error, ModellessError)
    assert re.match(case.says, error.message), error.message
    assert error.message.isprintable()
    assert len(error.message) < 400
    assert outcome.step == (Step.CHECK if case.step is Step.ROWS else case.step)
    assert outcome.after == outcome.before


def test_what_is_sound_is_registered(tmp_path: Path, empty_catalog: Path) -> None:
    """Else every refusal would look right."""
    house = House(tmp_path / "house", empty_catalog)
    house.register()
    house.register(path=pt2.sound(house.given / "net.pt2"))
    models = [version.model for version in house.catalog.snapshot().versions]
    house.catalog.close()
    assert sorted(models) == ["net", "sound"]


@pytest.mark.campaign
def test_the_corpus_can_be_written_to_a_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.corpus.make", str(tmp_path / "corpus")],
        check=True, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == len(CASES) + 1
    assert {folder.name for folder in (tmp_path / "corpus").iterdir()} == {c.name for c in CASES}
