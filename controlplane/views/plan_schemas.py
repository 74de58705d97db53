"""What the control API sends of the plan, and of what is wanted against what is running."""

from typing import Self

from pydantic import Field

from controlplane.views.answered_status import AnsweredLevel
from controlplane.views.fleet_status import CountSource, FleetStatus, Level, PlacedState
from controlplane.views.headroom import HeadroomSchema
from controlplane.views.machines.certificate_status import CertificateLevel
from controlplane.views.machines.core_shortage import CoreLevel
from controlplane.views.machines.keys_file import KeysLevel
from controlplane.views.machines.loop_silence import LoopLevel
from controlplane.views.schemas import Schema
from controlplane.views.storage_status import StorageLevel
from planner.layouts import SPLIT
from planner.zone_demand import ASKED_IN
from variants.types import Plan


class InventoryRow(Schema):
    """A device kind with the workers that are wanted and those that are there."""

    device_kind: str = Field(examples=["cpu-4"])
    wanted: int = Field(description="That should be running now.", examples=[2])
    running: int = Field(description="Connected, answering and not draining.", examples=[1])
    draining: int = Field(description="Finishing their work before they leave.", examples=[0])
    silent: int = Field(
        0, description="Connected, but silent for a while: stopped or hanging.", examples=[0]
    )
    missing: int = Field(description="Wanted and not there.", examples=[1])
    asked: int = Field(description="Asked for here, or else by the settings.", examples=[2])
    source: CountSource = Field(
        description="Of `wanted`: `stored` here, which wins over the `settings`; `plan` where "
        "plans decide, up to what was asked for."
    )
    settings: int | None = Field(
        description="What MODELLESS_WORKERS or MODELLESS_SLICES says; null for kinds of other "
        "machines.",
        examples=[1],
    )


class ScaledKind(InventoryRow):
    """The same after another number was asked for."""

    lack: str = Field(
        description="Why those that are missing cannot start on what there is; empty where they "
        "can, or where that is not known."
    )


class ReplicaCounts(Schema):
    """Variants on workers."""

    wanted: int = Field(description="That the plan places.")
    ready: int = Field(description="Of those.")
    loading: int = Field(description="Of those.")
    missing: int = Field(
        description="Of those: not there, or on a worker that is gone or does not answer."
    )
    unplanned: int = Field(description="Ready beside the plan, for queries.")
    instead: int = Field(
        description="Of `missing`, how many are ready on a worker that the plan does not name yet."
    )


class FleetStatusSchema(Schema):
    """What is wanted against what is running, now."""

    level: Level = Field(
        description="`down`: no worker is running; `differs`: not all is as it should be."
    )
    sentence: str
    kinds: list[InventoryRow]
    replicas: ReplicaCounts


class StorageStatusSchema(Schema):
    """Whether what has to be kept can be written, now."""

    level: StorageLevel = Field(
        description="`unwritable`: the catalog takes nothing; `live_state_lost`: Redis or Valkey "
        "does not answer, or takes nothing; `nearly_full`: the disk of the state "
        "directory, of artifacts or of their copies has less than 5 % and less than 1 GiB free; "
        "`slow`: the catalog, or the live state, takes 250 ms and more to give the control loop "
        "one row or key."
    )
    sentence: str = Field(description="What is wrong; empty where all is well.")


class CoreStatusSchema(Schema):
    """Whether what answers queries has the cores that it needs, now."""

    level: CoreLevel = Field(
        description="`cores_short`: on some machine something waited for a core half of the time "
        "or more while 90 % of the cores were busy; a quota held processes back in a tenth of the "
        "time or more; or a hypervisor gave a tenth of the cores to others."
    )
    sentence: str = Field(
        description="Of which machine, why, and what would help; empty where none is short of "
        "cores, or nothing tells."
    )


class CertificateStatusSchema(Schema):
    """Whether the certificate of the gateway that answers ends soon."""

    level: CertificateLevel = Field(
        description="`certificate_ends_soon`: within a week; `certificate_ended`: clients refuse "
        "it; `certificate_lasts`: neither, or there is none."
    )
    sentence: str = Field(
        description="When it ends, and what to do; empty where nothing is to be done."
    )


class LoopStatusSchema(Schema):
    """Whether the control loop turns, without which what runs stays as it is."""

    level: LoopLevel = Field(
        description="`loop_silent`: it has made no turn for 20 s; `loop_turns`: it has, or nothing "
        "is known of it."
    )
    sentence: str = Field(description="For how long, and what waits for it; empty where it turns.")


class AnsweredStatusSchema(Schema):
    """Whether each task could be answered, by what the gateway that answers knows."""

    level: AnsweredLevel = Field(
        description="`tasks_unanswered`: of some task with a live version nothing can answer now, "
        "however much time there is; `tasks_answered`: of none."
    )
    sentence: str = Field(description="Which, and why; empty where each could be answered.")
    tasks: dict[str, str] = Field(description="Why, by task.")


class KeysStatusSchema(Schema):
    """Whether the file of clients' keys can be read, by the gateway that answers."""

    level: KeysLevel = Field(
        description="`keys_wrong`: it is wrong or cannot be read; `keys_read`: neither."
    )
    sentence: str = Field(
        description="What is wrong, and what becomes of clients; empty where nothing is."
    )


class PlacementSchema(Schema):
    """A variant on a worker with a share of its time."""

    worker: str
    task: str
    variant: str
    share: float
    state: PlacedState = Field(description="Now; a plan is made before it is carried out.")


class RouteSchema(Schema):
    """A part of an SLO class of queries that the plan gives to a replica."""

    task: str
    latency_ms: float = Field(description="Of the class.")
    accuracy: float | None = Field(description="Floor of the class.")
    variant: str
    worker: str
    batch_size: int = Field(description="That the replica is expected to run at.")
    qps: float = Field(description="Rows per second.")
    pinned: bool = Field(
        description="Whether it is of queries that name the variant, or of texts that other models"
        " do not hold.",
    )


class PlanSchema(Schema):
    """The newest plan, with its explanation, and how it stands now."""

    version: int = Field(description="0: nothing was planned yet.")
    epoch: int
    placements: list[PlacementSchema]
    routes: list[RouteSchema] = Field(description="How the demand is divided.")
    workers: dict[str, int]
    explanation: list[str] = Field(description="Of the moment when the plan was made.")
    split: str = Field(
        "", description="How the plan splits the machine and why, where layouts may be chosen."
    )
    zones: list[str] = Field(
        default=[], description="What becomes of the demand of zones that is not served there."
    )
    rules: list[str] = Field(
        default=[],
        description="That the plan is frozen, and rules of operators that are not kept, now.",
    )
    created_at: str
    standing: FleetStatusSchema
    storage: StorageStatusSchema | None = None
    cores: CoreStatusSchema | None = None
    certificate: CertificateStatusSchema | None = None
    control_loop: LoopStatusSchema | None = None
    client_keys: KeysStatusSchema | None = None
    answered: AnsweredStatusSchema | None = None
    headroom: HeadroomSchema | None = Field(
        default=None,
        description="How much more than is asked now could be served, with 99 of 100 queries in "
        "time; null where nothing is asked, or zones divide the workers.",
    )

    @classmethod
    def of(cls, plan: Plan | None, now: FleetStatus, task: str | None = None) -> Self:
        """``task``: placements and routes of this one only; None for all."""
        fleet = FleetStatusSchema.model_validate(now)
        if plan is None:
            return cls(
                version=0,
                epoch=0,
                placements=[],
                routes=[],
                workers={},
                explanation=[],
                split="",
                created_at="",
                standing=fleet,
            )
        return cls(
            version=plan.version,
            epoch=plan.epoch,
            placements=[
                PlacementSchema(
                    worker=one.worker,
                    task=one.task,
                    variant=one.variant,
                    share=one.share,
                    state=now.placements[one.worker, one.task, one.variant],
                )
                for one in plan.placements
                if task in (None, one.task)
            ],
            routes=[
                RouteSchema.model_validate(one) for one in plan.routes if task in (None, one.task)
            ],
            workers={str(kind): count for kind, count in plan.workers.items()},
            explanation=list(plan.explanation),
            split=next((one for one in plan.explanation if one.startswith(SPLIT)), ""),
            zones=[one for one in plan.explanation if one.startswith(ASKED_IN)],
            created_at=plan.created_at,
            standing=fleet,
        )
