"""What users import as ``modelless``: handing in models and asking for answers, without Ray."""

from controlplane.client.asking import Client, Reply, Unreachable
from controlplane.client.exported import Exported, ExportError
from controlplane.client.exporting import export
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
    Overloaded,
    PayloadTooLarge,
    RateLimited,
    ReplicaLost,
    SloInfeasible,
    StateUnavailable,
    TaskNotFound,
    Unauthenticated,
)

__all__ = [
    "Alternative",
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
    "export",
]
