"""Checks of what modelless talks to: its port, the live state, the database and the artifacts."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from controlplane.controller.events.answer_pace import SLOW_MS
from controlplane.settings import Settings
from controlplane.startup.checks.finding import Finding, Say, fine, problem, warning
from controlplane.startup.checks.installation import import_fault, version_of
from controlplane.startup.checks.machine import gateway_runs
from controlplane.startup.checks.state import running_here
from controlplane.startup.valkey import SOCKET
from controlplane.views.storage_status import LIVE_STATE_SLOW
from variants.buckets import asked_name
from variants.errors import ModellessError
from variants.figures import counted, some_of

if TYPE_CHECKING:
    from redis import Redis

    from variants.types import Task

SHOWN = 4
"""Variants that are named of those that share a damaged artifact."""


CONNECT_S = 2.0

REMEDIES = {
    "connection slots are reserved": "end some of its connections, or raise its `max_connections`",
    "too many clients": "end some of its connections, or raise its `max_connections`",
    "too many connections": "end some of its connections, or raise their limit",
    "authentication failed": "correct user and password in MODELLESS_DATABASE_URL",
    "no password supplied": "correct user and password in MODELLESS_DATABASE_URL",
    "the database system is": "wait until it has started",
}
"""By what PostgreSQL says: it answers, so that nobody needs to start it."""


def port(settings: Settings) -> Iterator[Finding]:
    """The ports of HTTP and, where there is one, of gRPC."""
    yield _port(settings, "port", settings.port, "--port or MODELLESS_PORT")
    if settings.grpc_port:
        remedy = "MODELLESS_GRPC_PORT, or 0 for no gRPC"
        yield _port(settings, "gRPC port", settings.grpc_port, remedy)


def _port(settings: Settings, name: str, number: int, remedy: str) -> Finding:
    from controlplane.gateway.listening import Kept, bind, keep, other_place
    from controlplane.startup.presence import base_url, is_serving

    where = f"{settings.host}:{number}"
    ours = running_here(settings)
    if ours is not None and (
        ours.get("port") == settings.port or ours["url"] == base_url(settings)
    ):
        verb = "is served by" if is_serving(settings, ours) else "is kept for the starting"
        return fine(name, f"{where} {verb} process {ours['pid']}")
    try:
        bind(settings, alone=True, port=number).close()
    except OSError as error:
        if settings.ray_address and gateway_runs():
            return fine(name, f"{where} is served by a gateway of the cluster")
        why = f"{where} cannot be used: {error.strerror}"
        return problem(name, why, other_place(error, remedy))
    if not settings.ray_address:
        try:
            keep(settings.host, number).close()
        except Kept as error:
            return problem(name, str(error), f"choose another port with {remedy}")
    return fine(name, f"{where} is free")


def ray(settings: Settings) -> Iterator[Finding]:
    """The Ray cluster that is named by its address, which is not joined for that."""
    from controlplane.cluster.processes.named_cluster import (
        answers_in_time,
        head_address,
        refuses_token,
    )

    if not settings.ray_address:
        yield fine("ray", "one machine: `modelless up` starts its own")
        return
    where = settings.ray_address
    if head_address(settings) is None:
        yield fine("ray", f"{where}: it is found when it is joined")
        return
    if not answers_in_time(settings, patience_s=0.0):
        remedy = "start it with `ray start --head`, or correct MODELLESS_RAY_ADDRESS"
        yield problem("ray", f"nothing listens at {where}", remedy)
    elif refuses_token(settings):
        remedy = "name the file with the cluster's own in RAY_AUTH_TOKEN_PATH"
        yield problem("ray", f"{where} refuses this installation's token", remedy)
    else:
        yield fine("ray", f"{where} answers")


def live_state(settings: Settings) -> Iterator[Finding]:
    """The Redis that was named, or else the embedded Valkey: the one that runs, or its program."""
    if not settings.redis_url:
        yield _hanging_valkey(settings.run_dir / SOCKET) or _valkey()
        return
    from redis import Redis
    from redis.exceptions import RedisError

    parts = urlsplit(settings.redis_url)
    where = f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    where += parts.path  # without its user and password
    try:
        with Redis.from_url(
            settings.redis_url, socket_connect_timeout=CONNECT_S, socket_timeout=CONNECT_S
        ) as client:
            began_s = time.monotonic()
            client.ping()
            took_ms = 1_000 * (time.monotonic() - began_s)
            refusal = _takes_nothing(client)
    except (RedisError, OSError, ValueError) as error:
        yield problem(
            "live state",
            f"{where} does not answer: {str(error).rstrip('.')}",
            "start it, correct MODELLESS_REDIS_URL, or leave it empty for the embedded Valkey",
        )
    else:
        if refusal is None and took_ms >= SLOW_MS:
            yield warning(
                "live state",
                f"{where} takes {took_ms:,.0f} ms to answer: {LIVE_STATE_SLOW}",
                "look at its load and at the way to it",
            )
        elif refusal is None:
            yield fine("live state", f"{where} answers")
        else:
            yield problem("live state", f"{where} answers, and {refusal[0]}", refusal[1])


def _takes_nothing(client: "Redis") -> tuple[str, str] | None:
    """Why a server takes nothing that is written, and what to do; None where it does, as far as it
    tells."""
    from redis.exceptions import ResponseError

    try:
        said: Mapping[str, Any] = client.info()
    except ResponseError:  # this user may not ask
        return None
    if said.get("role") == "slave":
        master = f"{said.get('master_host')}:{said.get('master_port')}"
        return f"is a replica of {master}", "name that one in MODELLESS_REDIS_URL"
    most, used = int(said.get("maxmemory", 0)), int(said.get("used_memory", 0))
    if 0 < most < used and said.get("maxmemory_policy") == "noeviction":
        taken = f"{used / 2**20:,.1f} of its {most / 2**20:,.1f} MiB are taken"
        return f"takes nothing more: {taken}", "raise its `maxmemory`, or remove other keys"
    return None


def _hanging_valkey(path: Path) -> Finding | None:
    """What is wrong with an embedded Valkey that takes connections and does not answer; None where
    there is none, or it does."""
    from redis import Redis
    from redis.exceptions import RedisError
    from redis.exceptions import TimeoutError as TooLate

    try:
        with Redis(unix_socket_path=str(path), socket_timeout=CONNECT_S) as client:
            client.ping()
    except TooLate:
        remedy = f"end its process, which `fuser {path}` names: `modelless up` starts another one"
        silent = f"the embedded Valkey gives no reply within {CONNECT_S:g} s"
        return problem("live state", silent, remedy)
    except (RedisError, OSError):  # none runs, or it has just ended
        pass
    return None


def _valkey() -> Finding:
    from controlplane.startup.valkey import find_binary

    remedy = "install modelless again, or set MODELLESS_REDIS_URL"
    try:
        binary = find_binary()
        ran = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=10, check=True
        )
    except ModellessError as error:
        return problem("live state", error.message.partition(":")[0], remedy)
    except (OSError, subprocess.SubprocessError) as error:
        return problem("live state", f"the embedded Valkey cannot be run: {error}", remedy)
    words = dict(word.split("=", 1) for word in ran.stdout.split() if "=" in word)
    return fine("live state", f"embedded Valkey {words.get('v', '')}".rstrip())


def database(settings: Settings) -> Iterator[Finding]:
    from variants.catalog.database import is_newest, is_read_only, kind_of, why_full, why_locked
    from variants.catalog.migrations import schema_versions

    kind = kind_of(settings.catalog_url)
    try:
        present, newest = schema_versions(settings.catalog_url)
    except ModellessError as error:
        yield problem("database", error.message, remedy_of(kind, error.message))
        return
    if present is not None and is_read_only(settings.catalog_url):
        yield problem(
            "database",
            f"{kind} can be read and not written: it is a standby, or set to be read only",
            "make it writable, or name the one that is in MODELLESS_DATABASE_URL",
        )
    elif why := why_full(settings.catalog_url):
        yield problem(
            "database",
            f"{kind} can be read and not written: {why}",
            "free some space on its disk",
        )
    elif why := why_locked(settings.catalog_url, CONNECT_S):
        file = settings.catalog_url.partition(":///")[2]
        yield problem(
            "database",
            f"{kind} can be read and not written: {why}",
            f"end what keeps it for itself, which `fuser -v {file}` names",
        )
    elif present is None:
        yield fine("database", f"{kind}, without tables; `modelless up` makes them")
    elif present == newest:
        yield _planned_by_another(settings) or fine("database", f"{kind}, tables at {present}")
    elif is_newest(settings.catalog_url):
        yield fine(
            "database", f"{kind}, tables at {present}, which those that know {newest} go on beside"
        )
    elif present < newest:  # their names begin with ascending numbers
        yield fine(
            "database", f"{kind}, tables at {present}; `modelless up` brings them to {newest}"
        )
    else:
        yield problem(
            "database",
            f"{kind}, tables at {present}, made by a newer modelless; this one knows {newest}",
            "upgrade modelless, or set MODELLESS_DATABASE_URL to another database",
        )


def texts(settings: Settings) -> Iterator[Finding]:
    """Whether texts can be read, where a task takes any."""
    from variants.catalog.migrations import schema_versions
    from variants.catalog.sql import open_catalog

    try:
        present, newest = schema_versions(settings.catalog_url)
        tasks: tuple[Task, ...] = ()
        if present == newest:
            with closing(open_catalog(settings.catalog_url)) as catalog:
                tasks = catalog.snapshot().tasks
    except ModellessError:  # `database` tells of that
        return
    names = {asked_name(task) for task in tasks if task.text}
    if not names:
        yield fine("texts", "no task takes any")
    elif fault := import_fault("tokenizers"):
        shown = counted(len(names), "task")
        takes = "takes" if len(names) == 1 else "take"
        yield problem(
            "texts",
            f"{shown} {takes} texts, and the library tokenizers cannot be imported: {fault}",
            "pip install 'modelless[text]'",
        )
    else:
        yield fine("texts", f"read by tokenizers {version_of('tokenizers')}")


def remedy_of(kind: str, why: str) -> str:
    """What to do about a database that cannot be read, by what it has said."""
    if kind == "SQLite":
        return "make the file readable and its folder writable, or correct MODELLESS_DATABASE_URL"
    for said, remedy in REMEDIES.items():
        if said in why:
            return remedy
    return "start it, or correct MODELLESS_DATABASE_URL"


def _planned_by_another(settings: Settings) -> Finding | None:
    """What is wrong where another installation plans by this catalog; else nothing."""
    from controlplane.controller.other_installations import other_installation, owner_of
    from variants.catalog.sql import open_catalog

    path = settings.secret_path
    if settings.ray_address and not path.exists():
        return None  # a machine of the cluster whose head has the secret, and may plan by it
    try:
        secret = path.read_bytes() if path.exists() else b""
        with closing(open_catalog(settings.catalog_url)) as catalog:
            other = other_installation(owner_of(secret, "doctor"), catalog, time.time())
    except (OSError, ModellessError):  # other checks say so
        return None
    what, _, remedy = (other or "").partition("; ")
    return problem("database", what, remedy) if other else None


def artifacts(settings: Settings, say: Say = lambda _: None) -> Iterator[Finding]:
    """Whether every artifact that the catalog names is what was registered: reads them all."""
    from controlplane.cluster.head import sees_artifacts
    from controlplane.registry.damage import artifacts_of, damages
    from variants.artifacts.integrity import check
    from variants.artifacts.store import place_of
    from variants.catalog.database import is_newest
    from variants.catalog.sql import open_catalog

    if not sees_artifacts(settings):
        where = (
            f"at {settings.artifacts_url}" if settings.artifacts_url else "on the cluster's head"
        )
        yield fine("artifacts", f"they are kept {where}; `modelless repair` reads them")
        return
    try:
        if not is_newest(settings.catalog_url):
            return  # no catalog that this version could read; said above
        with closing(open_catalog(settings.catalog_url)) as catalog:
            listed = artifacts_of(catalog.snapshot())
    except ModellessError:
        return  # as above
    found = 0
    root = settings.artifacts_dir
    for damage in damages(
        listed, lambda digest: check(place_of(root, digest), digest), lambda one: say(one.message)
    ):
        found += 1
        whose = damage.stored.subjects
        yield problem("artifacts", f"{some_of(whose, SHOWN)}: {damage.why}", damage.remedy)
    if not found:
        mib = sum(one.size_bytes for one in listed) / 2**20
        said = f"all {len(listed)} are what was registered ({mib:,.0f} MiB)"
        yield fine("artifacts", said if listed else "none is registered")
