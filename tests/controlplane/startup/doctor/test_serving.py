"""What the doctor says of the tasks of what runs."""

import os
from collections.abc import Mapping

from controlplane.api.context import ApiContext
from controlplane.api.routes import build_api
from controlplane.settings import Settings
from controlplane.startup.checks import serving
from controlplane.startup.checks.finding import Finding, fine, warning
from planner.types import Refusal, RefusalCode
from tests.controlplane.api.served_api import ServedApi
from tests.controlplane.builders import DictLive, digits_catalog
from tests.controlplane.startup.doctor.looked_at import found, up
from tests.ports import free_port
from variants.artifacts.store import FileArtifactStore
from variants.types import TaskName

NONE = Refusal(code=RefusalCode.NO_WORKERS, message="no worker is running")


def ran(settings: Settings, refused: Mapping[TaskName, Refusal]) -> list[Finding]:
    """What is found while a gateway refuses all queries of these tasks."""
    api = build_api(
        ApiContext(
            catalog=digits_catalog(),
            store=FileArtifactStore(settings.artifacts_dir),
            settings=settings,
            live=DictLive(),
            unanswered=lambda: refused,
        )
    )
    with ServedApi(api) as served:
        return asked(settings.model_copy(update={"port": served.port}))


def asked(settings: Settings) -> list[Finding]:
    with up(settings):
        (settings.run_dir / "ready").write_text(str(os.getpid()))
        return found(serving.tasks, settings)


def test_tasks_that_nothing_can_answer_are_warned_of(settings: Settings) -> None:
    (finding,) = ran(settings, {TaskName("digits"): NONE})
    assert finding == warning(
        "tasks",
        "digits cannot be answered now: no worker is running",
        "`modelless explain digits` says it of each variant",
    )


def test_tasks_that_can_be_answered_are_fine(settings: Settings) -> None:
    assert ran(settings, {}) == [fine("tasks", "each that has a live version can be answered")]


def test_where_nothing_serves_nothing_is_said_of_tasks(settings: Settings) -> None:
    nothing = [fine("tasks", "nothing serves on this state directory")]
    assert found(serving.tasks, settings) == nothing
    with up(settings):  # it starts
        assert found(serving.tasks, settings) == nothing


def test_a_gateway_that_does_not_answer_is_warned_of(settings: Settings) -> None:
    settings = settings.model_copy(update={"port": free_port()})
    (finding,) = asked(settings)
    url = f"http://127.0.0.1:{settings.port}"
    said = f"the gateway at {url} does not say which it answers: "
    assert finding == warning("tasks", finding.message, "its log says why")
    assert finding.message.startswith(said)
