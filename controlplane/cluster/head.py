"""The head of a cluster, as its other machines see it: it has the secrets and keeps the artifacts.

A machine that sees the installation's state directory, as the head does, and all do where they
share it, reads both there. Another one asks the replica of the control loop, which runs on the
head, over Ray's own channel: whoever reaches that has Ray's token, and could run code on the head.
"""

import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from controlplane.access.client_keys import KeysOfHead
from controlplane.cluster.serve_applications import CONTROLLER_APP, last_line
from controlplane.settings import Settings
from variants.artifacts.cache import CachedArtifactStore
from variants.artifacts.protocol import ArtifactOrigin, ArtifactStore
from variants.artifacts.s3 import S3Artifacts
from variants.artifacts.served import ServedArtifacts
from variants.artifacts.store import FileArtifactStore
from variants.artifacts.storing_notes import StoringNotes
from variants.errors import ClusterUnavailable, StateUnavailable
from workers.channel.secret import checked_secret, secret_here
from workers.execution.artifacts import Artifacts, CopiedArtifacts, SeenArtifacts

ANSWER_S = 60.0
"""How long the head may take for one answer: it reads all of an artifact before it gives any."""
LOOK_S = 3.0
"""How long it may take to say how an artifact looks, which loads of copies wait for."""
START_S = 300.0
"""How long a replica waits for the control loop, which starts at the same time."""
AGAIN_S = 0.5
_CONNECTING = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSecrets:
    """What the head tells the replicas of other machines."""

    channel: bytes = field(repr=False)
    """The secret of the tensor channel."""
    settings: Mapping[str, str] = field(repr=False)
    """Every setting that is a secret, by name."""
    token_changed: bool = False
    """Whether the operator's token may be another one than the application was started with."""


def is_home(settings: Settings) -> bool:
    """Whether this machine sees the state directory in which artifacts and secrets are."""
    return not settings.ray_address or settings.secret_path.exists()


def knows_keys_from_head(settings: Settings) -> bool:
    """Whether a gateway here goes by the head's file of clients' keys: where it sees that file, or
    a setting names one that each machine has, it reads that."""
    return not settings.client_keys and not is_home(settings)


def store_of(settings: Settings) -> ArtifactStore:
    """The artifacts of the installation, from wherever this process runs.

    Raises:
        StateUnavailable: the folder for them, or for copies of them, cannot be used.
    """
    if sees_artifacts(settings):
        return FileArtifactStore(settings.artifacts_dir)
    origin = origin_of(settings.artifacts_url, settings.ray_address)
    return copies(settings.copies_dir, settings.artifact_cache_mib, origin)


def sees_artifacts(settings: Settings) -> bool:
    """Whether the artifacts are files that this machine sees."""
    return not settings.artifacts_url and is_home(settings)


def notes_of(settings: Settings) -> StoringNotes | None:
    """Notes of what is being stored, where the artifacts are files that this machine sees. What
    else uses a bucket is not known, so nothing there is deleted by notes."""
    if not sees_artifacts(settings):
        return None
    return StoringNotes(
        settings.artifacts_dir, url=settings.database_url, name=settings.state_dir / "catalog.id"
    )


def origin_of(url: str, ray_address: str = "auto") -> ArtifactOrigin:
    """The bucket at the URL; without one the head.

    Raises:
        InvalidInput: the client for buckets is not installed.
    """
    if url:
        return S3Artifacts(url)

    def ask(question: str, *arguments: Any) -> Any:
        patience_s = LOOK_S if question == "look" else ANSWER_S
        return asked(
            "artifacts", question, *arguments, ray_address=ray_address, patience_s=patience_s
        )

    return ServedArtifacts(ask)


def copies(root: Path, limit_mib: float, origin: ArtifactOrigin) -> CachedArtifactStore:
    """Copies on this machine, in this folder."""
    return CachedArtifactStore(root, origin, round(limit_mib * 2**20))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSupplies:
    """The secret and the artifacts of a worker's replica, wherever they are kept."""

    secret_path: str
    secret_digest: str
    """The digest that the secret has to have; empty: whatever the head has."""
    artifacts_url: str
    artifacts_dir: str
    """Where artifacts are if their files are seen."""
    copies_dir: str
    limit_mib: float

    def __call__(self, node: str) -> tuple[bytes, Artifacts]:
        """The secret of the channel, and artifacts by their digests, on a machine that is named."""
        secret = secret_here(self.secret_path, self.secret_digest, node)
        if secret is not None and not self.artifacts_url:
            return secret, SeenArtifacts(Path(self.artifacts_dir))
        if secret is None:
            told = ask_secrets().channel
            secret = checked_secret(told, self.secret_digest, "that the head told", node)
        store = copies(Path(self.copies_dir), self.limit_mib, origin_of(self.artifacts_url))
        return secret, CopiedArtifacts(store)


def ask_secrets() -> HeadSecrets:
    """The secrets, as soon as the control loop's replica is there to tell them.

    Raises:
        ClusterUnavailable: it is not there in time.
    """
    deadline = time.monotonic() + START_S
    while True:
        try:
            with ThreadPoolExecutor(1) as pool:  # this thread may be that of an event loop
                told: HeadSecrets = pool.submit(asked, "secrets").result()
        except StateUnavailable as error:
            if time.monotonic() > deadline:
                raise ClusterUnavailable(f"the secrets are not known here: {error}") from error
            time.sleep(AGAIN_S)
        else:
            return told


def ask_client_keys() -> KeysOfHead:
    """The keys of clients as the head has them now.

    Raises:
        StateUnavailable: it does not answer.
    """
    told: KeysOfHead = asked("client_keys", patience_s=LOOK_S)
    return told


def asked(
    method: str, *arguments: Any, ray_address: str = "auto", patience_s: float = ANSWER_S
) -> Any:
    """What the replica of the control loop answers. Not for the thread of an event loop.

    Raises:
        StateUnavailable: it does not answer, or is not there in time.
    """
    from ray.exceptions import RayError
    from ray.serve.exceptions import RayServeException

    try:
        response = getattr(_handle(ray_address), method).remote(*arguments)
        return response.result(timeout_s=patience_s)
    except (
        RayError, RayServeException, TimeoutError, ConnectionError, RuntimeError, ValueError,
    ) as error:  # fmt: skip
        raise StateUnavailable(f"the cluster's head does not answer: {last_line(error)}") from error


def _handle(ray_address: str) -> Any:
    """The handle of the control loop's replica, which may start later.

    Neither connecting nor making a handle may be done by two threads at once.
    """
    import ray
    from ray import serve

    with _CONNECTING:
        if not ray.is_initialized():  # a command, and no replica
            logging.getLogger("ray.serve").setLevel(logging.ERROR)
            ray.init(
                address=ray_address, namespace="modelless", log_to_driver=False, logging_level=40
            )
        # Asking whether it exists would wait without a limit, and fail while it does not.
        handle = serve.get_deployment_handle("controller", CONTROLLER_APP, _check_exists=False)
        # Actor calls: the replicas' own gRPC servers are on loopback.
        return handle.options(_by_reference=True)
