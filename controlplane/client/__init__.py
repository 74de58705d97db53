"""What users import as ``modelless``: handing in models and asking for answers, without Ray.

In: a trained model of the user's process, or a query. Out: a file to register, or a typed reply.

Read ``asking`` (``Client``) and ``asking_async`` (``AsyncClient``), over ``exchange`` (JSON),
``binary`` (arrays) and ``pictures``; ``registering`` hands a model in, and the folder ``exporting``
makes a file of it (``export``). ``testing`` stands in for a gateway in tests of applications.

Imports ``variants``, and of ``controlplane`` TLS and HTTP errors; torch and skl2onnx when used.
"""

from controlplane.client.asking import Client
from controlplane.client.asking_async import AsyncClient
from controlplane.client.exchange import Reply, Unreachable
from controlplane.client.exporting.export import export
from controlplane.client.exporting.exported import Exported, ExportError
from variants.errors import (
    Alternative,
    Cold,
    Conflict,
    DeadlineExceeded,
    Forbidden,
    Internal,
    InvalidArtifact,
    InvalidInput,
    ModellessError,
    NotFound,
    NoWorkers,
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    ReplicaLost,
    SloInfeasible,
    StateUnavailable,
    TaskNotFound,
    Unauthenticated,
    VariantNotLoadable,
)

__all__ = [
    "Alternative",
    "AsyncClient",
    "Client",
    "Cold",
    "Conflict",
    "DeadlineExceeded",
    "ExportError",
    "Exported",
    "Forbidden",
    "Internal",
    "InvalidArtifact",
    "InvalidInput",
    "ModellessError",
    "NoWorkers",
    "NotFound",
    "Overloaded",
    "PayloadTooLarge",
    "RateLimited",
    "ReplicaLost",
    "Reply",
    "SloInfeasible",
    "StateUnavailable",
    "TaskNotFound",
    "Unauthenticated",
    "Unreachable",
    "VariantNotLoadable",
    "export",
]
