"""A check of what runs: the tasks that nothing can answer now."""

from collections.abc import Iterator
from http.client import HTTPException
from typing import Any

from controlplane.settings import Settings
from controlplane.startup.checks.finding import Finding, fine, warning
from controlplane.startup.checks.state import running_here


def tasks(settings: Settings) -> Iterator[Finding]:
    """The tasks that nothing can answer, by the gateway of what runs on this state directory.

    No problem of the machine: everything can run here.
    """
    from controlplane.startup.presence import is_serving

    state = running_here(settings)
    if state is None or not is_serving(settings, state):
        yield fine("tasks", "nothing serves on this state directory")
        return
    try:
        unanswered = _unanswered(settings, str(state["url"]))
    except (OSError, HTTPException, ValueError) as error:
        yield warning(
            "tasks",
            f"the gateway at {state['url']} does not say which it answers: {error}",
            "its log says why",
        )
        return
    for task, why in sorted(unanswered.items()):
        yield warning(
            "tasks",
            f"{task} cannot be answered now: {why.rstrip('.')}",
            f"`modelless explain {task}` says it of each variant",
        )
    if not unanswered:
        yield fine("tasks", "each that has a live version can be answered")


def _unanswered(settings: Settings, url: str) -> dict[str, str]:
    """Why, by task.

    Raises:
        OSError, HTTPException or ValueError: the gateway does not say it.
    """
    from controlplane.startup.readiness import asked

    plan: Any = asked(settings, f"{url}/v1/plan")
    told = plan.get("answered") if isinstance(plan, dict) else None
    if not isinstance(told, dict) or not isinstance(told.get("tasks"), dict):
        raise ValueError("its answer is of another release")
    return {str(task): str(why) for task, why in told["tasks"].items()}
