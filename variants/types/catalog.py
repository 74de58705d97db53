"""The whole catalog as one value, and what one registration adds to it."""

from dataclasses import dataclass, field

from variants.types.devices import DeviceKind
from variants.types.models import ModelVersion, Variant
from variants.types.operators import Canary, Rule
from variants.types.profiles import Profile
from variants.types.tasks import Task

CatalogState = tuple[int, str]
"""What no two states of a catalog have in common: the revision, and its mark. A database that was
restored, or whose replica took over without the newest writes, gives the same numbers again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """Everything that one registration adds; the catalog takes it whole or not at all."""

    task: Task
    version: ModelVersion
    variants: tuple[Variant, ...]
    profiles: tuple[Profile, ...]
    device_kinds: tuple[DeviceKind, ...] = ()
    tokenizer: bytes | None = None
    """The ``tokenizer.json`` that the version names, or else the task, where it may be new to the
    catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSnapshot:
    """The whole catalog at one revision. Tuples are ordered by name."""

    revision: int
    tasks: tuple[Task, ...] = ()
    versions: tuple[ModelVersion, ...] = ()
    variants: tuple[Variant, ...] = ()
    profiles: tuple[Profile, ...] = ()
    device_kinds: tuple[DeviceKind, ...] = ()
    rules: tuple[Rule, ...] = ()
    """What operators said of what is loaded, by id."""
    canaries: tuple[Canary, ...] = ()
    """One for each task that has one, and the last one where the control loop has ended it."""
    mark: str = field(default="", compare=False)
    """Of the revision, drawn by whoever made it; empty where nobody has noted it."""

    @property
    def state(self) -> CatalogState:
        """Which state of the catalog this is."""
        return self.revision, self.mark
