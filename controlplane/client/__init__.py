"""What users import as ``modelless``: handing in models and asking for answers, without Ray.

In: a trained model of the user's process, or a query. Out: a file to register, or a typed reply.

Read ``asking`` (``Client``) and ``asking_async`` (``AsyncClient``), over ``exchange`` (JSON),
``binary`` (arrays) and ``pictures``, then ``exporting`` (``export``), which leads to
``sklearn_onnx`` and ``sklearn_values`` for scikit-learn and to ``torch_archive`` for PyTorch, over
``example_inputs``, ``tracing``, ``functional`` and ``onnx_file``. ``agreement`` checks that the
file answers as the model does.

Imports ``variants``, and of ``controlplane`` TLS and HTTP errors; torch and skl2onnx when used.
"""

from controlplane.client.asking import Client
from controlplane.client.asking_async import AsyncClient
from controlplane.client.exchange import Reply, Unreachable
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
