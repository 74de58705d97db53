"""Fixtures that several folders of tests share."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

from tests.contracts.places import Emptied
from tests.profiler.forked import children_are_forked
from tests.scheduling import processes, yielding
from tests.scheduling.order import Scheduling, ordered
from tests.services import drop_database, fresh_database, postgres_server, redis_server
from variants.catalog.sql import migrate
from workers.process.sparing_log import SparingLog

# How long an example takes says more of what else runs on the machine than of the code. A property
# that says no number of its own has half of what is usual: `make campaign` tries twenty times that.
settings.register_profile("modelless", deadline=None, max_examples=50)
settings.load_profile("modelless")

# A shell that starts the tests in the background has them ignore Ctrl-C, and every process that a
# test starts and interrupts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Settings of whoever runs the tests are no part of them.
for name in [name for name in os.environ if name.startswith("MODELLESS_")]:
    if not name.startswith(("MODELLESS_TEST_", "MODELLESS_BENCH_")):
        del os.environ[name]

EXAMPLES = float(os.environ.get("MODELLESS_TEST_EXAMPLES", "1"))
"""Times as many examples of each property: ``make campaign`` tries 20 times as many, ``make quick``
a quarter."""
MANY = 50_000
"""Objects that the garbage collector may look through again and again: as many as it does in
milliseconds."""
_GIVEN = "_hypothesis_internal_use_settings"
"""Where Hypothesis keeps what ``@settings`` says of a test; it has no other way to scale it."""


@pytest.fixture(autouse=True)
def failures_are_logged_in_full() -> None:
    """What one test has had logged keeps no line of another one back."""
    for one in SparingLog.all:
        one.forget()


@pytest.fixture(autouse=True)
def ctrl_c_interrupts() -> None:
    """Each test finds Ctrl-C as a program does, whatever handler one before it has left."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests, and give properties their number of examples."""
    items[:] = ordered(items)
    tests = {item.function for item in items if isinstance(item, pytest.Function)}
    for test in tests if EXAMPLES != 1 else ():
        known: dict[str, Any] = test.__dict__
        if _GIVEN in known:
            count = max(1, round(known[_GIVEN].max_examples * EXAMPLES))
            known[_GIVEN] = settings(known[_GIVEN], max_examples=count)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import libraries and tests without the garbage collector: a third less processor time.

    They leave hardly any garbage, and it would look through all of them again and again.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the garbage collector away from libraries and tests, half a million objects.

    Gateways and simulations begin with a collection, which takes a second with them in each.
    """
    gc.collect()
    gc.freeze()
    session.config.stash[processes.STARTED] = processes.other_threads()


def pytest_runtest_logstart(nodeid: str) -> None:
    """Beside others, tests without an installation let those go first that have one."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        yielding.take_turn(nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """The same for libraries that tests of a file have imported: torch has as many parts again."""
    result = yield
    _forget_applications()
    ends = nextitem is None or nextitem.path != item.path
    if ends and len(gc.get_objects(generation=2)) > MANY:
        gc.collect()
        gc.freeze()
    return result


def _forget_applications() -> None:
    """FastAPI would keep those of all tests, ten thousand objects each, by what it remembers of
    their handlers."""
    handlers = sys.modules.get("fastapi.dependencies.models")
    for remembered in () if handlers is None else tuple(vars(handlers).values()):
        if hasattr(remembered, "cache_clear"):
            remembered.cache_clear()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """Test processes take whole files, or folders that share a deployment."""
    config.option.loadscopereorder = False  # as ordered above, not by the number of tests
    return Scheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[Any]) -> None:
    """Tests are collected once, by a process that becomes all test processes."""
    processes.use(config, specs)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_getremotemodule() -> ModuleType:
    """What runs in a test process instead of what would collect the tests."""
    return processes


@pytest.fixture(scope="session")
def postgres_server_url() -> Iterator[str]:
    """A PostgreSQL server, started once."""
    with postgres_server() as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server_url: str) -> Iterator[str]:
    """A database of its own for each test."""
    url = fresh_database(postgres_server_url)
    yield url
    drop_database(postgres_server_url, url)


@pytest.fixture(scope="session")
def migrated_postgres(postgres_server_url: str) -> Iterator[Emptied]:
    """A database with the catalog's tables, emptied for each test: making one takes a hundred times
    as long."""
    url = fresh_database(postgres_server_url)
    migrate(url)
    yield Emptied(url)
    drop_database(postgres_server_url, url)


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the catalog's tables, to copy for tests."""
    file = tmp_path_factory.mktemp("migrated") / "catalog.db"
    migrate(f"sqlite:///{file}")
    return file


@pytest.fixture(scope="module")
def forked_sandboxes() -> Iterator[None]:
    """Models are tried in processes that are forked, which saves nearly all of their time."""
    with children_are_forked():
        yield


@pytest.fixture(scope="session")
def redis_server_url() -> Iterator[str]:
    """A ``redis-server``, started once; a test that needs it empty has to flush it."""
    with redis_server() as url:
        yield url
