"""The nouns, each written once with its unit.

All types are frozen, slotted, keyword-only values. A number's name ends in its unit:
``_ms``, ``_s``, ``_mib``, ``_qps``, ``_usd_per_h``. Rates and shares have none.

Read ``names`` and ``tasks`` (what is asked for), ``models`` (what was trained for it, and the
variants), ``devices`` and ``profiles`` (what these take where), ``catalog`` (all of that together),
``operators`` (what they say), ``plans`` (what is loaded where) and ``events``. Everybody else
imports from here.
"""

from variants.types.catalog import CatalogSnapshot, CatalogState, Registration
from variants.types.devices import DeviceKind
from variants.types.events import ALL_EVENTS, FREQUENT, Event, EventFilter
from variants.types.models import ModelVersion, Precision, Stage, Variant
from variants.types.names import (
    NAME,
    DeviceKindName,
    Digest,
    ModelName,
    TaskName,
    VariantKey,
    VariantName,
    WorkerId,
)
from variants.types.operators import (
    AcceptedAnswers,
    Canary,
    Peak,
    QuarantineLift,
    Rule,
    RuleKind,
)
from variants.types.plans import Placement, Plan, ReplicaState, Route, TickRecord
from variants.types.profiles import (
    PROFILE_BATCH_SIZES,
    LatencyPoint,
    Profile,
    ProfileSource,
    ProfilingRequest,
)
from variants.types.tasks import (
    DEFAULT_LATENCY_MS,
    TYPE_UNIT,
    FollowingAxis,
    ImageScale,
    LengthBucket,
    OpenAxis,
    Prefer,
    Sharing,
    Slo,
    Task,
    TensorSpec,
    TextInput,
)

__all__ = [
    "ALL_EVENTS",
    "DEFAULT_LATENCY_MS",
    "FREQUENT",
    "NAME",
    "PROFILE_BATCH_SIZES",
    "TYPE_UNIT",
    "AcceptedAnswers",
    "Canary",
    "CatalogSnapshot",
    "CatalogState",
    "DeviceKind",
    "DeviceKindName",
    "Digest",
    "Event",
    "EventFilter",
    "FollowingAxis",
    "ImageScale",
    "LatencyPoint",
    "LengthBucket",
    "ModelName",
    "ModelVersion",
    "OpenAxis",
    "Peak",
    "Placement",
    "Plan",
    "Precision",
    "Prefer",
    "Profile",
    "ProfileSource",
    "ProfilingRequest",
    "QuarantineLift",
    "Registration",
    "ReplicaState",
    "Route",
    "Rule",
    "RuleKind",
    "Sharing",
    "Slo",
    "Stage",
    "Task",
    "TaskName",
    "TensorSpec",
    "TextInput",
    "TickRecord",
    "Variant",
    "VariantKey",
    "VariantName",
    "WorkerId",
]
