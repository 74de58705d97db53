"""What operators say: rules, canaries, expected peaks, that a quarantine ends, and that answers are
as they should be."""

from dataclasses import dataclass
from enum import StrEnum

from variants.types.names import DeviceKindName, ModelName, TaskName, VariantKey, VariantName


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineLift:
    """The word of an operator that a variant is in order: quarantines that began by then end."""

    task: TaskName
    variant: VariantName
    at_s: float
    """Unix time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedAnswers:
    """The word of an operator that the answers of a variant are divided among its classes as they
    should be although they have changed: what is normal is learned anew."""

    task: TaskName
    variant: VariantName
    since_s: float
    """When the change was found, in Unix time by the control loop's clock, which says which change
    is meant: one that is found later is another one."""
    at_s: float
    """Unix time when it was said."""
    by: str = ""
    """Who said it, by their own account."""
    why: str = ""


class RuleKind(StrEnum):
    """What an operator may say of what is loaded, beside the stages of versions."""

    PIN = "pin"
    """So many workers hold the variant, whatever else is asked for."""
    FORBID = "forbid"
    """The variant answers nothing and is loaded nowhere."""
    FREEZE = "freeze"
    """The plan stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A word of an operator that holds until it is taken back. There is one of each kind for a
    variant and a device kind, and one freeze."""

    kind: RuleKind
    task: TaskName = TaskName("")
    """Empty, as ``variant`` is, for a freeze."""
    variant: VariantName = VariantName("")
    device_kind: DeviceKindName = DeviceKindName("")
    """Only on workers of this kind; empty: on any."""
    replicas: int = 1
    """Of a pin: how many workers hold the variant at least."""
    at_s: float = 0.0
    """Unix time since when it holds, or was changed."""
    until_s: float | None = None
    """Of a freeze: Unix time when it ends by itself; None: never."""
    by: str = ""
    """Who said it, by their own account."""
    why: str = ""
    id: int = 0
    """Given by the catalog; ascending."""

    @property
    def key(self) -> VariantKey:
        return (self.task, self.variant)

    @property
    def subject(self) -> tuple[RuleKind, TaskName, VariantName, DeviceKindName]:
        """What there is only one rule about."""
        return (self.kind, self.task, self.variant, self.device_kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """The share of a task's queries by which a canary version proves itself. A task has one."""

    task: TaskName
    model: ModelName
    version: int
    share: float
    """Of the queries that name no variant, in [0, 1]; 0: it was ended, and ``ended`` says why."""
    after: int = 1_000
    """Queries that it has to have been given before it can be found good."""
    promote: bool = False
    """Whether it becomes live by itself once it was found good."""
    number: int = 0
    """Given by the catalog: the revision that set it, and those of other tasks with it."""
    set_at: str = ""
    """ISO 8601, UTC."""
    ended: str = ""
    """Why the control loop has ended it, in one sentence; empty while it goes on."""

    @property
    def label(self) -> str:
        """How its version is named: ``cnn-small-v2``."""
        return f"{self.model}-v{self.version}"

    @property
    def share_id(self) -> str:
        """Under which it stands what is counted of it. Shares that are set together have one
        number, and a database that went back gives a number again."""
        return f"{self.number} {self.task} {self.set_at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """A known time of more demand than usual, as an operator declares it.

    Times are Unix time in seconds; in a simulation, seconds from its beginning.
    """

    start_s: float
    end_s: float
    task: TaskName | None = None
    """None: all tasks."""
    factor: float | None = None
    """So many times the demand that is expected when the peak comes; or else ``qps``."""
    qps: float | None = None
    """So many rows per second of the task."""
    every_s: float = 0.0
    """It comes again after so many seconds, without an end; 0: it comes once."""
    note: str = ""
    id: int = 0
    """Given by the catalog; ascending."""
