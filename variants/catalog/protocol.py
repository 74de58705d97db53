"""The catalog: what is registered, what was measured, what was planned.

``Catalog`` is the contract; ``variants.catalog.memory`` and ``variants.catalog.sql`` implement it
and ``tests/contracts/catalog`` runs over both. All methods are synchronous and safe to call
from any thread.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Protocol

from variants.catalog.removal import Freed, Removed
from variants.catalog.validity.canaries import RolledBack
from variants.types import (
    ALL_EVENTS,
    AcceptedAnswers,
    Canary,
    CatalogSnapshot,
    CatalogState,
    DeviceKind,
    DeviceKindName,
    Digest,
    Event,
    EventFilter,
    ModelName,
    ModelVersion,
    Peak,
    Plan,
    Profile,
    ProfilingRequest,
    QuarantineLift,
    Registration,
    Rule,
    Stage,
    Task,
    TaskName,
    TickRecord,
    Variant,
)

PLANS_KEPT = 1_000
PLAN_PARTS_KEPT = 500_000
"""Placements and routes, of some 200 bytes each, that plans may have together: of a large
installation fewer of them are kept. What plans by reads the newest alone."""
TICKS_KEPT = 1_000
TICK_BYTES_KEPT = 64 * 2**20
"""What records of turns may take together."""
LEAST_KEPT = 20
"""So many plans, and records of turns, are kept however large they are."""
EVENTS_KEPT = 10_000
RARE_EVENTS_KEPT = 50_000
"""The newest so many events, without those of ``FREQUENT`` that are not among ``EVENTS_KEPT``: each
worker that starts tells of all that it loads, and a few of them would push out all else."""
MOST_PEAKS = 1_000
"""Declared peaks that a catalog holds."""
MOST_RULES = 1_000
"""Rules of operators that a catalog holds."""
MOST_LEARNED_BYTES = 64 * 2**20
"""Of what is learned under one name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What tells a gateway whether there is something new in the catalog."""

    revision: int
    """0 when nothing was ever registered."""
    plan_version: int
    """Of the newest plan; 0 when nothing was ever planned."""
    inventory: dict[DeviceKindName, int]
    """As ``Catalog.inventory`` has it."""
    revision_mark: str = field(default="", compare=False)
    """As ``CatalogSnapshot.mark`` has it."""
    planned_at: str = field(default="", compare=False)
    """When the newest plan was made: another one may have the same number after a database was
    restored."""

    @property
    def state(self) -> CatalogState:
        """Which state of the catalog a snapshot of now has."""
        return self.revision, self.revision_mark


class Catalog(Protocol):
    """Where tasks, variants, profiles and plans are kept.

    Every method raises ``StateUnavailable`` when the store cannot be reached. Revisions, plan
    versions, epochs and event sequence numbers only grow, across restarts and across processes.
    """

    def register(self, *registrations: Registration, joins: bool = False) -> None:
        """Add a task (if new), one model version, its variants and their profiles, atomically; of
        several registrations all or none.

        The device kinds in it are added or replaced. Advances the revision.

        Args:
            joins: the task was there when the version was prepared for it, and is not made anew.

        Raises:
            Conflict: the version exists, its number was that of another model which was removed, a
                variant name is taken in the task, the task exists with another signature, other
                labels or another metric, or is not there to be joined, or the name is that of
                several buckets of lengths. Nothing was written then.
            InvalidInput: a name breaks ``NAME``, a profile names an unknown variant or device
                kind, or has no points or points out of order. Nothing was written then.
        """

    def snapshot(self) -> CatalogSnapshot:
        """Everything, at one revision: a consistent read."""

    def revision(self) -> int:
        """The current revision; 0 when nothing was ever registered. Cheap."""

    def marks(self) -> Marks:
        """The revision, the version of the newest plan and the inventory, read at once. Cheap:
        gateways poll them."""

    def next_version(self, task: TaskName, model: ModelName) -> int:
        """One above the highest version that the model ever had; 1 for a new model."""

    def set_stage(
        self,
        tasks: Collection[TaskName],
        model: ModelName,
        version: int,
        stage: Stage,
        *,
        decided_at: CatalogState | None = None,
    ) -> bool:
        """Move a version to another stage, in all of these tasks at once. Advances the revision.

        What is a canary no more has no share of the queries either.

        Args:
            tasks: one, or buckets of one.
            decided_at: the state by which the caller has decided; None: it does not matter.

        Returns:
            Whether it was moved: nothing was written where there is another revision by now.

        Raises:
            NotFound: one of the tasks has no such version. Nothing was written then.
        """

    def promote(
        self, tasks: Collection[TaskName], model: ModelName, version: int | None = None
    ) -> tuple[ModelVersion, ...]:
        """Make a version live in those of these tasks that have it, at once, by
        ``variants.catalog.validity.promoting`` (``to_promote``). Advances the revision where it
        was not live everywhere.

        Args:
            tasks: one, or all buckets of one.
            version: its number; None: the newest, where it is clear that this one is meant.

        Returns:
            The version of each task that has it, as it was before.

        Raises:
            SeveralMeant: no version is named, and another one than the newest may be meant.
            NotFound: no task has such a model or version. In each case nothing was written.
        """

    def set_canary(self, *canaries: Canary) -> tuple[Canary, ...]:
        """Give a version that share of its task's queries from now on, or one of each of several
        tasks, at once; return them with their number.

        A version that is a candidate or retired becomes a canary by it. What the task had before
        of this version is replaced, and so is what was ended. Advances the revision.

        Raises:
            Conflict: a version is live, or another one of its task has a share.
            InvalidInput: a share is not above 0 and at most 1, or ``after`` is below 1.
            NotFound: there is no such version. In each case nothing was written.
        """

    def end_canary(self, tasks: Collection[TaskName], model: ModelName) -> tuple[Canary, ...]:
        """Take their shares from a model's canaries, which stay canaries, in those of these tasks
        in which it has one, at once. Advances the revision.

        Raises:
            NotFound: no version of the model has a share in any. Nothing was written then.
        """

    def settle_canary(self, canary: Canary, *, promote: bool, why: str, epoch: int) -> bool:
        """End exactly this share, as the control loop has found; whether it was there still.

        Advances the revision where it was.

        Args:
            promote: the version becomes live, and nothing is kept of its share; else it stays a
                canary without one.
            why: what was found, in one sentence, which is kept unless it is promoted.

        Raises:
            StaleEpoch: ``epoch`` is not the newest one. Nothing was written then.
        """

    def roll_back(
        self, tasks: Collection[TaskName], model: ModelName, version: int | None = None
    ) -> tuple[RolledBack, ...]:
        """Take back what was done last for a model, as ``variants.catalog.validity.canaries``
        has it (``taken_back``), all of it at once. Advances the revision. What is taken back is not
        gone back to, until it is live again.

        Args:
            tasks: one, or all buckets of one.
            version: the one that is taken back; None: the newest, where that is clear.

        Returns:
            What was taken back of each task in which something was.

        Raises:
            SeveralMeant: no version is named, and another one than the live one may be meant.
            Conflict: there is no version to go back to in one of the tasks, or the one that is
                named cannot be taken back.
            NotFound: one of the tasks has no such model or version. In each case nothing was
                written.
        """

    def remove_task(self, *tasks: TaskName) -> Removed:
        """Take a task out with all its models, variants, profiles, rules and declared peaks,
        atomically, and note its artifacts as left over. Advances the revision.

        Args:
            tasks: names of tasks, or of buckets, or names that buckets share, which are all of them
                as they are by then.

        Raises:
            NotFound: there is no such task. Nothing was written then.
        """

    def remove_version(
        self, tasks: Collection[TaskName], model: ModelName, version: int
    ) -> Removed:
        """Take a retired version out of all of these tasks at once, with its variants, profiles and
        rules, as ``remove_task``.

        Args:
            tasks: one, or buckets of one.

        Raises:
            Conflict: its stage is another one in one of the tasks. Nothing was written then.
            NotFound: one of the tasks has no such version. Nothing was written then.
        """

    def removed_versions(self, task: TaskName, model: ModelName) -> dict[int, Digest]:
        """The sources of a model's versions that were removed, by their numbers."""

    def tokenizer(self, digest: Digest) -> bytes:
        """The ``tokenizer.json`` that tasks name so.

        Raises:
            NotFound: no task does.
        """

    def leftovers(self) -> frozenset[Digest]:
        """Artifacts of what was removed that were not freed yet."""

    def free(self, delete: Callable[[Digest], None], most: int | None = None) -> Freed:
        """Have left over artifacts deleted that nothing registered uses, and forget them: all, or
        the first ``most`` by their digests.

        Nothing can be registered meanwhile, and on SQLite nothing be written: what is deleted here
        is missing for a registration that has stored it and is written later, which has to look.

        Raises:
            Whatever ``delete`` raises; they are all left over then, deleted or not.
        """

    def discard(
        self, digests: Collection[Digest], delete: Callable[[Digest], None]
    ) -> tuple[Digest, ...]:
        """Have those of these artifacts deleted that nothing registered uses; they were stored, and
        never came to be registered. Returns what was deleted.

        Nothing can be registered meanwhile, as with ``free``.

        Raises:
            Whatever ``delete`` raises.
        """

    def change_tasks(
        self,
        tasks: Collection[TaskName],
        change: Callable[[Task], Task],
        tokenizer: bytes | None = None,
    ) -> tuple[tuple[Task, Task], ...]:
        """Change the default SLO, the names of the classes, how answers are shared, or how pictures
        and texts are read, in all of these tasks at once, by what holds now, which nobody else
        changes meanwhile. Nothing else of a task may change.

        Args:
            tasks: one, a bucket, or the name that buckets share, which is all of them as they are
                now: one that was registered a moment before is among them.
            tokenizer: the ``tokenizer.json`` that the tasks name from now on, where it may be new
                to the catalog.

        Returns:
            Of each what held, and what holds from now on. The revision advances where any differs.

        Raises:
            InvalidInput: no task can be as ``change`` has it.
            NotFound: one of the tasks is not there.
            Whatever ``change`` raises; nothing is changed then.
        """

    def add_variants(
        self,
        variants: tuple[Variant, ...],
        profiles: tuple[Profile, ...],
        device_kinds: tuple[DeviceKind, ...] = (),
    ) -> None:
        """Add variants of one registered version and their profiles, atomically.

        The device kinds are added or replaced with them. Advances the revision, unless there are
        no variants; then nothing is written.

        Raises:
            Conflict: a name is taken in the task. Nothing was written then.
            InvalidInput: a variant or a profile contradicts itself or the others, or a profile's
                device kind is unknown. Nothing was written then.
            NotFound: there is no such version. Nothing was written then.
        """

    def put_judged(self, judged: tuple[Variant, ...]) -> None:
        """Write what the answers of variants are worth by other rows: their accuracy, on how many
        rows, agreement, note and which classes they are of, atomically. Nothing else of them
        changes. Advances the revision, unless there are none; then nothing is written.

        Raises:
            InvalidInput: an accuracy or an agreement is not in [0, 1]. Nothing was written then.
            NotFound: a variant is not there, or has another artifact. Nothing was written then.
        """

    def put_profiles(
        self, profiles: tuple[Profile, ...], device_kinds: tuple[DeviceKind, ...] = ()
    ) -> None:
        """Add profiles, each replacing one of the same variant and device kind.

        The device kinds are added or replaced with them, but for an idle draw that is not known
        now and was before; they may come alone. Advances the revision, unless there is neither;
        then nothing is written.

        Raises:
            InvalidInput: one has no points or points out of order. Nothing was written then.
            NotFound: a variant or a device kind is unknown. Nothing was written then.
        """

    def request_profiling(
        self, requests: tuple[ProfilingRequest, ...], *, anew: bool = False
    ) -> None:
        """Ask for profiles to be measured again. A request that stands is kept as it is, and with
        ``anew`` is replaced.

        Does not advance the revision. Putting a profile removes the request for it.

        Raises:
            InvalidInput: a name or a text cannot be kept.
            NotFound: a variant is unknown. Nothing was written then.
        """

    def profiling_requests(self) -> tuple[ProfilingRequest, ...]:
        """What is asked for, by task, variant and device kind."""

    def inventory(self) -> dict[DeviceKindName, int]:
        """How many workers of each device kind were asked for; kinds that were never set are
        missing."""

    def set_inventory(self, device_kind: DeviceKindName, count: int) -> None:
        """Ask for ``count`` workers of a kind from now on. Does not advance the revision.

        Raises:
            InvalidInput: the count is negative or above 10,000, or the kind cannot be a name.
        """

    def add_peak(self, peak: Peak) -> Peak:
        """Declare a peak of demand; return it with its new id. Does not advance the revision.

        Raises:
            InvalidInput: a time, a size or the note of it is not possible.
            Conflict: there are 1,000 already.
        """

    def peaks(self) -> tuple[Peak, ...]:
        """All declared peaks by start, then id, those that are over as well."""

    def remove_peak(self, id: int) -> None:
        """Take a declared peak back.

        Raises:
            NotFound: there is none with this id.
        """

    def lift_quarantine(self, lift: QuarantineLift) -> None:
        """End the quarantines of a variant that began by then, at all workers. Only the latest
        lift of a variant is kept. Does not advance the revision.

        Raises:
            InvalidInput: the time is not possible.
            NotFound: the variant is unknown.
        """

    def quarantine_lifts(self) -> tuple[QuarantineLift, ...]:
        """The latest lift of each variant that has one, by task and variant."""

    def accept_answers(self, accepted: AcceptedAnswers) -> None:
        """Keep that a change of a variant's answers is as it should be, in place of an earlier word
        on this variant. Does not advance the revision.

        Raises:
            InvalidInput: the time, the reason or the name of the operator is not possible.
            NotFound: the variant is unknown.
        """

    def accepted_answers(self) -> tuple[AcceptedAnswers, ...]:
        """What was said of each variant last, by task and variant."""

    def put_rule(self, rule: Rule) -> Rule:
        """Have a rule hold from now on; return it with its id. One about the same
        (``Rule.subject``) is replaced, and its id stays. Advances the revision.

        Raises:
            InvalidInput: it says something that is not possible.
            NotFound: the variant is unknown. Nothing was written then.
            Conflict: there are 1,000 already. Nothing was written then.
        """

    def rules(self) -> tuple[Rule, ...]:
        """All rules by id, a freeze that is over as well; ``snapshot`` has them, too."""

    def remove_rule(self, id: int) -> Rule:
        """Take a rule back; return what it was. Advances the revision.

        Raises:
            NotFound: there is none with this id.
        """

    def put_learned(self, name: str, at_s: float, body: bytes, *, epoch: int) -> None:
        """Keep what was learned until ``at_s``, in Unix time, in place of what is there.

        Raises:
            StaleEpoch: ``epoch`` is not the newest one. Nothing was written then.
            InvalidInput: the name breaks ``NAME``, or there are more than 64 MiB.
        """

    def learned(self, name: str) -> tuple[float, bytes] | None:
        """When it was kept, and what; None where nothing is kept under the name."""

    def acquire_leadership(self, owner: str) -> int:
        """Become leader: return a new epoch, above every earlier one; the first is 1."""

    def leader(self) -> str:
        """The owner of the newest epoch; empty while nobody has led."""

    def put_plan(self, plan: Plan) -> Plan:
        """Store a plan under a new version and return it with that version filled in.

        Only the newest 1,000 are kept.

        Raises:
            StaleEpoch: ``plan.epoch`` is not the newest one.
            InvalidInput: a share is not in [0, 1] or a number of workers is negative.
        """

    def latest_plan(self) -> Plan | None:
        """The plan with the highest version."""

    def add_tick(self, record: TickRecord) -> None:
        """Keep a tick's record; only the newest 1,000 are kept.

        Raises:
            InvalidInput: its body is not made of plain JSON values.
        """

    def ticks(self, limit: int, *, changes: bool = False) -> tuple[TickRecord, ...]:
        """The newest ticks, newest first.

        Args:
            changes: only those whose plan differs from the one before by more than its rates, or
                with actions, and the oldest that is kept.
        """

    def add_event(self, *events: Event) -> None:
        """Keep events under the next sequence numbers, in this order and all at once; only the
        newest 10,000 are kept.

        Raises:
            InvalidInput: a text of one cannot be stored. Nothing was written then.
        """

    def events(self, limit: int, asked: EventFilter = ALL_EVENTS) -> tuple[Event, ...]:
        """The newest events that are asked for, newest first."""

    def close(self) -> None:
        """Release connections. Calling it twice is allowed."""


def plans_kept(parts: int) -> int:
    """How many plans are kept where the newest has so many placements and routes."""
    return min(PLANS_KEPT, max(LEAST_KEPT, PLAN_PARTS_KEPT // max(1, parts)))


def ticks_kept(size: int) -> int:
    """How many records of turns are kept where the newest has so many bytes."""
    return min(TICKS_KEPT, max(LEAST_KEPT, TICK_BYTES_KEPT // size))


name_key = attrgetter("name")
"""By which tasks and device kinds stand in order, as versions, variants and profiles by theirs."""
version_key = attrgetter("task", "model", "version")
variant_key = attrgetter("task", "name")
profile_key = attrgetter("task", "variant", "device_kind")


def ordered(snapshot: CatalogSnapshot) -> CatalogSnapshot:
    """The same snapshot with every tuple in the order of its names, character by character."""
    return replace(
        snapshot,
        tasks=tuple(sorted(snapshot.tasks, key=name_key)),
        versions=tuple(sorted(snapshot.versions, key=version_key)),
        variants=tuple(sorted(snapshot.variants, key=variant_key)),
        profiles=tuple(sorted(snapshot.profiles, key=profile_key)),
        device_kinds=tuple(sorted(snapshot.device_kinds, key=name_key)),
    )
