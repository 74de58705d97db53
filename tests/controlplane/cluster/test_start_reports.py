"""What Ray Serve says of applications that start, as one sentence."""

from dataclasses import replace

from controlplane.cluster.start_reports import (
    Starting,
    complaints,
    failure,
    is_up,
    lacks_room,
    last_words,
)

UP = Starting(name="modelless-gateway", status="RUNNING", message="", running=1)
COMING = replace(UP, name="modelless-worker-cpu-4", status="DEPLOYING", running=0)
REFUSES = replace(
    COMING,
    message="""A replica failed to start with exception. Retrying 2 more time(s). Error:
ray::ServeReplica:modelless-gateway:gateway.initialize_and_get_metadata() (pid=641)
  File "/x/controlplane/app.py", line 102, in __init__
    settings, secret = _replica_settings(sent)
variants.errors.Conflict: node n1 sees other settings: MODELLESS_REDIS_URL
""",
)
NO_ROOM = replace(
    COMING,
    message="Deployment 'worker' in application 'modelless-worker-cpu-4' has 1 replicas that have"
    " taken more than 30s to be scheduled. Use `ray status` for more details.",
)
BROKEN = replace(COMING, message="Error:\nRuntimeError: the disk is gone")


def test_a_refusal_is_told_at_once_and_without_its_traceback() -> None:
    assert failure([UP, REFUSES]) == (
        "modelless-worker-cpu-4 does not start: node n1 sees other settings: MODELLESS_REDIS_URL"
    )


def test_another_error_is_told_when_serve_gives_up() -> None:
    assert failure([UP, BROKEN]) is None
    given_up = replace(BROKEN, status="DEPLOY_FAILED")
    assert failure([given_up]) == "modelless-worker-cpu-4 does not start: the disk is gone"


def test_complaints_are_of_what_does_not_run() -> None:
    assert complaints([UP, BROKEN]) == ["modelless-worker-cpu-4: the disk is gone"]
    assert complaints([UP, COMING]) == []


def test_a_start_waits_for_all_replicas_but_not_for_machines_that_are_missing() -> None:
    assert is_up([UP])
    assert not is_up([UP, COMING])
    assert not is_up([UP, NO_ROOM])
    assert is_up([UP, replace(NO_ROOM, running=1)])
    assert lacks_room([UP, COMING, NO_ROOM]) == ["modelless-worker-cpu-4"]


def test_a_sentence_with_a_colon_of_its_own_stays_whole() -> None:
    assert last_words("x\nInvalidInput: setting MODELLESS_PORT: it must") == (
        "setting MODELLESS_PORT: it must"
    )
    assert last_words("setting MODELLESS_PORT: it must") == "setting MODELLESS_PORT: it must"
    assert last_words("") == "Ray Serve does not say why"
