"""The values that decisions take and return.

Read ``candidates`` (what is chosen from), ``queries`` (a query, and what comes of it) and
``ticks`` (the control loop). Who uses them imports them from here.
"""

from planner.types.candidates import (
    RETURN_MS,
    TRANSPORT_MS,
    Candidate,
    FrontierBranch,
    FrontierLeaf,
    ProfileKey,
    Snapshot,
    TaskView,
    WorkerView,
)
from planner.types.queries import (
    ANYBODY,
    DEFAULT_PRIORITY,
    Choice,
    Client,
    PlacedReason,
    Query,
    Reason,
    Refusal,
    RefusalCode,
)
from planner.types.ticks import (
    Action,
    Decision,
    Demand,
    DemandClass,
    Load,
    Objective,
    Observation,
    ReplicaKey,
    ReplicaReport,
    ReplicaTarget,
    Scale,
    Unload,
    WorkerReport,
    class_of,
)

__all__ = [
    "ANYBODY",
    "DEFAULT_PRIORITY",
    "RETURN_MS",
    "TRANSPORT_MS",
    "Action",
    "Candidate",
    "Choice",
    "Client",
    "Decision",
    "Demand",
    "DemandClass",
    "FrontierBranch",
    "FrontierLeaf",
    "Load",
    "Objective",
    "Observation",
    "PlacedReason",
    "ProfileKey",
    "Query",
    "Reason",
    "Refusal",
    "RefusalCode",
    "ReplicaKey",
    "ReplicaReport",
    "ReplicaTarget",
    "Scale",
    "Snapshot",
    "TaskView",
    "Unload",
    "WorkerReport",
    "WorkerView",
    "class_of",
]
