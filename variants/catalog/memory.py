"""A catalog in the memory of one process: for tests, simulations and trying things out."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from threading import Lock

from variants.catalog.protocol import EVENTS_KEPT, TICKS_KEPT, Marks, ordered
from variants.catalog.removal import (
    Freed,
    Removed,
    check_number,
    check_retired,
    discarded,
    freed,
)
from variants.catalog.validity.buckets import check_names
from variants.catalog.validity.canaries import (
    RolledBack,
    VersionKey,
    check_canary,
    check_may_share,
    key_of,
    none_to_end,
    standing,
    taken_back,
)
from variants.catalog.validity.peaks import check_learned, check_lift, check_peak, check_room
from variants.catalog.validity.registrations import (
    check_addition,
    check_conflicts,
    check_device_kind,
    check_event,
    check_inventory,
    check_judged,
    check_plan,
    check_profile,
    check_profiling_request,
    check_registration,
    check_task,
    not_judged,
    plain_body,
    version_of,
)
from variants.catalog.validity.rules import check_rule, check_rule_room, no_rule
from variants.catalog.validity.texts import check_named, check_tokenizer, tokenizers_of
from variants.errors import NotFound, StaleEpoch
from variants.texts.inputs import digest_of_text
from variants.types import (
    ALL_EVENTS,
    Canary,
    CatalogSnapshot,
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
    VariantName,
)


def _changes_something(record: TickRecord, earlier: int) -> bool:
    """Whether its plan differs by more than its rates from that of this version, or something was
    begun."""
    changes = record.body.get("changes")
    # Of the first plan, and in records of old, nothing says what differs.
    planned = record.plan_version != earlier and (changes is None or earlier <= 0)
    return bool(record.body.get("actions") or changes or planned)


class MemoryCatalog:
    """A ``Catalog`` that lives and dies with its process.

    The state is one immutable snapshot that writers replace: a reader always sees a whole revision
    and takes no lock, and a write that fails has changed nothing.
    """

    def __init__(self) -> None:
        self._writing = Lock()
        self._snapshot = CatalogSnapshot(revision=0)
        self._inventory: dict[DeviceKindName, int] = {}
        self._requests: dict[tuple[TaskName, VariantName, DeviceKindName], ProfilingRequest] = {}
        self._lifts: dict[tuple[TaskName, VariantName], QuarantineLift] = {}
        self._removed: dict[tuple[TaskName, ModelName, int], Digest] = {}
        self._leftovers: dict[Digest, str] = {}
        self._lived: set[VersionKey] = set()
        self._peaks: dict[int, Peak] = {}
        self._peak_id = self._rule_id = 0
        self._learned: dict[str, tuple[float, bytes]] = {}
        self._tokenizers: dict[Digest, bytes] = {}
        self._epoch = 0
        self._leader = ""
        self._plan: Plan | None = None
        self._ticks: deque[TickRecord] = deque(maxlen=TICKS_KEPT)
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._event_seq = 0

    def register(self, *registrations: Registration, joins: bool = False) -> None:
        with self._writing:
            now = self._snapshot
            for one in registrations:
                now = self._with(now, one, joins=joins)
            if registrations:
                self._snapshot = replace(now, revision=self._snapshot.revision + 1)
                self._note_live()

    def _with(
        self, old: CatalogSnapshot, registration: Registration, *, joins: bool
    ) -> CatalogSnapshot:
        """A snapshot with one registration more."""
        check_registration(registration, {kind.name for kind in old.device_kinds})
        version = registration.version
        check_number(version, self.removed_versions(version.task, version.model))
        tasks = {task.name: task for task in old.tasks}
        name, model = registration.task.name, registration.version.model
        check_conflicts(
            registration,
            task=tasks.get(name),
            versions={v.version for v in old.versions if (v.task, v.model) == (name, model)},
            variants={v.name for v in old.variants if v.task == name},
            joins=joins,
        )
        if name not in tasks:
            stored = tuple(tasks.values())
            check_names(registration.task, tasks, (one for one in stored if one.bucket is not None))
        self._keep_tokenizer(registration, new=name not in tasks)
        tasks.setdefault(name, registration.task)
        kinds = _with_kinds(old, registration.device_kinds)
        variants = (replace(v, options=dict(v.options)) for v in registration.variants)
        return ordered(
            replace(
                old,
                tasks=tuple(tasks.values()),
                versions=(*old.versions, registration.version),
                variants=(*old.variants, *variants),
                profiles=(*old.profiles, *registration.profiles),
                device_kinds=tuple(kinds.values()),
                canaries=old.canaries,
            )
        )

    def _keep_tokenizer(self, registration: Registration, *, new: bool) -> None:
        given = registration.tokenizer
        check_tokenizer(registration, new=new, known=self._tokenizers)
        if given is not None:
            self._tokenizers = self._tokenizers | {digest_of_text(given): given}

    def tokenizer(self, digest: Digest) -> bytes:
        if digest not in tokenizers_of(self._snapshot.tasks, self._snapshot.versions):
            raise NotFound(f"there is no tokenizer {digest[:12]}")
        return self._tokenizers[digest]

    def snapshot(self) -> CatalogSnapshot:
        return self._snapshot

    def revision(self) -> int:
        return self._snapshot.revision

    def marks(self) -> Marks:
        version = self._plan.version if self._plan else 0
        return Marks(
            revision=self._snapshot.revision, plan_version=version, inventory=self.inventory()
        )

    def next_version(self, task: TaskName, model: ModelName) -> int:
        wanted = (task, model)
        used = (v.version for v in self._snapshot.versions if (v.task, v.model) == wanted)
        return 1 + max((*used, *self.removed_versions(task, model)), default=0)

    def set_stage(
        self, tasks: Collection[TaskName], model: ModelName, version: int, stage: Stage
    ) -> None:
        with self._writing:
            old = self._snapshot
            known = {key_of(v) for v in old.versions}
            for task in tasks:
                if (task, model, version) not in known:
                    raise NotFound(f"task {task!r} has no version {model}-v{version}")
            self._move({(task, model, version): stage for task in tasks}, old.canaries)

    def _move(self, stages: Mapping[VersionKey, Stage], canaries: Iterable[Canary]) -> None:
        """Write stages of versions, and the canaries that there are then."""
        old = self._snapshot
        versions = tuple(
            replace(v, stage=stages.get((v.task, v.model, v.version), v.stage))
            for v in old.versions
        )
        kept = standing(canaries, versions)
        self._snapshot = replace(old, revision=old.revision + 1, versions=versions, canaries=kept)
        self._note_live()

    def _note_live(self) -> None:
        live = (v for v in self._snapshot.versions if v.stage is Stage.LIVE)
        self._lived = self._lived | {(v.task, v.model, v.version) for v in live}

    def set_canary(self, *canaries: Canary) -> tuple[Canary, ...]:
        for canary in canaries:
            check_canary(canary)
        with self._writing:
            old = self._snapshot
            versions = {key_of(v): v for v in old.versions}
            known = {one.task: one for one in old.canaries}
            stages: dict[VersionKey, Stage] = {}
            for canary in canaries:
                key = (canary.task, canary.model, canary.version)
                check_may_share(canary, versions.get(key), known.get(canary.task))
                stages[key] = Stage.CANARY
            given = tuple(replace(one, number=old.revision + 1, ended="") for one in canaries)
            new = {one.task: one for one in given}
            self._move(stages, (known | new).values())
            return given

    def end_canary(self, tasks: Collection[TaskName], model: ModelName) -> tuple[Canary, ...]:
        with self._writing:
            sharing = (self._canary_of(task, model) for task in tasks)
            ended = tuple(one for one in sharing if one is not None)
            if not ended:
                raise none_to_end(tasks, model)
            self._move({}, (one for one in self._snapshot.canaries if one not in ended))
            return ended

    def _canary_of(self, task: TaskName, model: ModelName) -> Canary | None:
        of = (one for one in self._snapshot.canaries if (one.task, one.model) == (task, model))
        return next((one for one in of if one.share), None)

    def settle_canary(self, canary: Canary, *, promote: bool, why: str, epoch: int) -> bool:
        with self._writing:
            if epoch != self._epoch or not self._epoch:
                raise StaleEpoch(f"epoch {epoch} judged a canary; the leader's is {self._epoch}")
            known = self._canary_of(canary.task, canary.model)
            if known is None or known.number != canary.number:
                return False
            others = tuple(one for one in self._snapshot.canaries if one is not known)
            if promote:
                key = (known.task, known.model, known.version)
                self._move({key: Stage.LIVE}, others)
            else:
                self._move({}, (*others, replace(known, share=0.0, ended=why)))
            return True

    def roll_back(
        self, tasks: Collection[TaskName], model: ModelName, version: int | None = None
    ) -> tuple[RolledBack, ...]:
        with self._writing:
            old = self._snapshot
            done = taken_back(tasks, model, version, old.versions, old.canaries, self._lived)
            ended = [one.canary for one in done]
            stages = {key_of(moved): stage for one in done for moved, stage in one.moves}
            self._move(stages, (one for one in old.canaries if one not in ended))
            self._lived = self._lived - {key_of(one.retired) for one in done if one.retired}
            return done

    def remove_task(self, task: TaskName) -> Removed:
        with self._writing:
            old = self._snapshot
            if not any(one.name == task for one in old.tasks):
                raise NotFound(f"there is no task {task!r}")
            gone = tuple(peak for peak in self.peaks() if peak.task == task)
            of_task = tuple(v for v in old.versions if v.task == task)
            removed = self._remove(str(task), of_task, gone)
            tasks = tuple(one for one in old.tasks if one.name != task)
            self._snapshot = replace(self._snapshot, tasks=tasks)
            self._peaks = {id: peak for id, peak in self._peaks.items() if peak not in gone}
            return removed

    def remove_version(self, task: TaskName, model: ModelName, version: int) -> Removed:
        with self._writing:
            wanted = (task, model, version)
            of_it = (v for v in self._snapshot.versions if (v.task, v.model, v.version) == wanted)
            found = next(of_it, None)
            if found is None:
                raise NotFound(f"task {task!r} has no version {model}-v{version}")
            check_retired(found)
            return self._remove(f"{task}/{found.label}", (found,), ())

    def _remove(
        self, subject: str, versions: tuple[ModelVersion, ...], peaks: tuple[Peak, ...]
    ) -> Removed:
        old = self._snapshot
        numbers = {(v.task, v.model, v.version): v.source for v in versions}
        variants = tuple(v for v in old.variants if (v.task, v.model, v.version) in numbers)
        gone = {variant.key for variant in variants}
        removed = Removed(versions=versions, variants=variants, peaks=peaks)
        self._removed = self._removed | numbers
        self._leftovers = dict.fromkeys(removed.artifacts, subject) | self._leftovers
        self._requests = {k: r for k, r in self._requests.items() if k[:2] not in gone}
        self._lifts = {key: lift for key, lift in self._lifts.items() if key not in gone}
        self._lived = self._lived - numbers.keys()
        left = tuple(v for v in old.versions if v not in versions)
        self._snapshot = replace(
            old,
            revision=old.revision + 1,
            versions=left,
            canaries=standing(old.canaries, left),
            variants=tuple(v for v in old.variants if v.key not in gone),
            profiles=tuple(p for p in old.profiles if (p.task, p.variant) not in gone),
            rules=tuple(rule for rule in old.rules if rule.key not in gone),
        )
        return removed

    def removed_versions(self, task: TaskName, model: ModelName) -> dict[int, Digest]:
        return {
            number: source
            for (of, one, number), source in sorted(self._removed.items())
            if (of, one) == (task, model)
        }

    def leftovers(self) -> frozenset[Digest]:
        return frozenset(self._leftovers)

    def free(self, delete: Callable[[Digest], None], most: int | None = None) -> Freed:
        with self._writing:
            left, old = dict(sorted(self._leftovers.items())[:most]), self._snapshot
            used = {v.source for v in old.versions} | {v.artifact for v in old.variants}
            found = freed(left, used)
            for digest in found.deleted:
                delete(digest)
            self._leftovers = {d: of for d, of in self._leftovers.items() if d not in left}
            return found

    def discard(
        self, digests: Collection[Digest], delete: Callable[[Digest], None]
    ) -> tuple[Digest, ...]:
        with self._writing:
            old = self._snapshot
            used = {v.source for v in old.versions} | {v.artifact for v in old.variants}
            return discarded(digests, used, delete)

    def change_task(
        self, task: TaskName, change: Callable[[Task], Task], tokenizer: bytes | None = None
    ) -> tuple[Task, Task]:
        with self._writing:
            old = self._snapshot
            before = next((one for one in old.tasks if one.name == task), None)
            if before is None:
                raise NotFound(f"there is no task {task!r}")
            after = change(before)
            check_task(after)
            check_named(after, tokenizer, known=self._tokenizers)
            if after != before:
                if tokenizer is not None:
                    self._tokenizers = self._tokenizers | {digest_of_text(tokenizer): tokenizer}
                tasks = tuple(after if one is before else one for one in old.tasks)
                self._snapshot = replace(old, revision=old.revision + 1, tasks=tasks)
            return before, after

    def add_variants(
        self,
        variants: tuple[Variant, ...],
        profiles: tuple[Profile, ...],
        device_kinds: tuple[DeviceKind, ...] = (),
    ) -> None:
        if not variants:
            return
        with self._writing:
            old = self._snapshot
            version = version_of(variants[0], old.versions)
            taken = {v.name for v in old.variants if v.task == version.task}
            kinds = _with_kinds(old, device_kinds)
            check_addition(version, variants, profiles, taken=taken, device_kinds=set(kinds))
            for kind in device_kinds:
                check_device_kind(kind)
            self._snapshot = ordered(
                replace(
                    old,
                    revision=old.revision + 1,
                    variants=(
                        *old.variants,
                        *(replace(v, options=dict(v.options)) for v in variants),
                    ),
                    profiles=(*old.profiles, *profiles),
                    device_kinds=tuple(kinds.values()),
                )
            )

    def put_judged(self, judged: tuple[Variant, ...]) -> None:
        if not judged:
            return
        for one in judged:
            check_judged(one)
        with self._writing:
            old = self._snapshot
            found = {variant.key: variant for variant in old.variants}
            for one in judged:
                known = found.get(one.key)
                if known is None or known.artifact != one.artifact:
                    raise not_judged(one)
                found[one.key] = replace(
                    known, accuracy=one.accuracy, accuracy_rows=one.accuracy_rows,
                    agreement=one.agreement, note=one.note,
                )  # fmt: skip
            self._snapshot = replace(old, revision=old.revision + 1, variants=tuple(found.values()))

    def put_profiles(
        self, profiles: tuple[Profile, ...], device_kinds: tuple[DeviceKind, ...] = ()
    ) -> None:
        if not profiles and not device_kinds:
            return
        for profile in profiles:
            check_profile(profile)
        for kind in device_kinds:
            check_device_kind(kind)
        with self._writing:
            old = self._snapshot
            variants = {variant.key for variant in old.variants}
            kinds = _with_kinds(old, device_kinds)
            for profile in profiles:
                if (profile.task, profile.variant) not in variants:
                    raise NotFound(f"task {profile.task!r} has no variant {profile.variant!r}")
                if profile.device_kind not in kinds:
                    raise NotFound(f"there is no device kind {profile.device_kind!r}")
            merged = {(p.task, p.variant, p.device_kind): p for p in (*old.profiles, *profiles)}
            done = {(p.task, p.variant, p.device_kind) for p in profiles}
            self._requests = {k: r for k, r in self._requests.items() if k not in done}
            self._snapshot = ordered(
                replace(
                    old,
                    revision=old.revision + 1,
                    profiles=tuple(merged.values()),
                    device_kinds=tuple(kinds.values()),
                )
            )

    def request_profiling(
        self, requests: tuple[ProfilingRequest, ...], *, anew: bool = False
    ) -> None:
        for request in requests:
            check_profiling_request(request)
        with self._writing:
            variants = {variant.key for variant in self._snapshot.variants}
            for request in requests:
                if (request.task, request.variant) not in variants:
                    raise NotFound(f"task {request.task!r} has no variant {request.variant!r}")
            asked = {(r.task, r.variant, r.device_kind): r for r in requests}
            merged = self._requests | asked if anew else asked | self._requests
            self._requests = dict(sorted(merged.items()))

    def profiling_requests(self) -> tuple[ProfilingRequest, ...]:
        return tuple(self._requests.values())

    def inventory(self) -> dict[DeviceKindName, int]:
        return dict(self._inventory)

    def set_inventory(self, device_kind: DeviceKindName, count: int) -> None:
        check_inventory(device_kind, count)
        with self._writing:
            self._inventory = dict(sorted({**self._inventory, device_kind: count}.items()))

    def add_peak(self, peak: Peak) -> Peak:
        check_peak(peak)
        with self._writing:
            check_room(len(self._peaks))
            self._peak_id += 1
            stored = replace(peak, id=self._peak_id)
            self._peaks = {**self._peaks, stored.id: stored}
            return stored

    def peaks(self) -> tuple[Peak, ...]:
        return tuple(sorted(self._peaks.values(), key=lambda peak: (peak.start_s, peak.id)))

    def remove_peak(self, id: int) -> None:
        with self._writing:
            if id not in self._peaks:
                raise NotFound(f"there is no declared peak {id}")
            self._peaks = {known: peak for known, peak in self._peaks.items() if known != id}

    def lift_quarantine(self, lift: QuarantineLift) -> None:
        check_lift(lift)
        with self._writing:
            key = (lift.task, lift.variant)
            if key not in {variant.key for variant in self._snapshot.variants}:
                raise NotFound(f"task {lift.task!r} has no variant {lift.variant!r}")
            known = self._lifts.get(key)
            newest = known if known is not None and known.at_s > lift.at_s else lift
            self._lifts = dict(sorted({**self._lifts, key: newest}.items()))

    def quarantine_lifts(self) -> tuple[QuarantineLift, ...]:
        return tuple(self._lifts.values())

    def put_rule(self, rule: Rule) -> Rule:
        check_rule(rule)
        with self._writing:
            old = self._snapshot
            if rule.task and rule.key not in {variant.key for variant in old.variants}:
                raise NotFound(f"task {rule.task!r} has no variant {rule.variant!r}")
            known = {each.subject: each for each in old.rules}
            if (same := known.get(rule.subject)) is None:
                check_rule_room(len(known))
                self._rule_id += 1
            stored = replace(rule, id=self._rule_id if same is None else same.id)
            rules = sorted((known | {rule.subject: stored}).values(), key=lambda each: each.id)
            self._snapshot = replace(old, revision=old.revision + 1, rules=tuple(rules))
            return stored

    def rules(self) -> tuple[Rule, ...]:
        return self._snapshot.rules

    def remove_rule(self, id: int) -> Rule:
        with self._writing:
            old = self._snapshot
            found = next((rule for rule in old.rules if rule.id == id), None)
            if found is None:
                raise no_rule(id, old.rules)
            rules = tuple(rule for rule in old.rules if rule is not found)
            self._snapshot = replace(old, revision=old.revision + 1, rules=rules)
            return found

    def put_learned(self, name: str, at_s: float, body: bytes, *, epoch: int) -> None:
        check_learned(name, body)
        with self._writing:
            if epoch != self._epoch or not self._epoch:
                raise StaleEpoch(f"what epoch {epoch} learned came; the leader's is {self._epoch}")
            self._learned = {**self._learned, name: (at_s, body)}

    def learned(self, name: str) -> tuple[float, bytes] | None:
        return self._learned.get(name)

    def acquire_leadership(self, owner: str) -> int:
        with self._writing:
            self._epoch += 1
            self._leader = owner
            return self._epoch

    def leader(self) -> str:
        return self._leader

    def put_plan(self, plan: Plan) -> Plan:
        check_plan(plan)
        with self._writing:
            if plan.epoch != self._epoch or not self._epoch:
                raise StaleEpoch(
                    f"a plan of epoch {plan.epoch} came; the leader's is {self._epoch}"
                )
            version = 1 + (self._plan.version if self._plan else 0)
            self._plan = replace(plan, version=version, workers=dict(plan.workers))
            return self._plan

    def latest_plan(self) -> Plan | None:
        return self._plan

    def add_tick(self, record: TickRecord) -> None:
        kept = replace(record, body=plain_body(record))
        with self._writing:
            self._ticks.append(kept)

    def ticks(self, limit: int, *, changes: bool = False) -> tuple[TickRecord, ...]:
        with self._writing:
            kept = tuple(self._ticks)
        earlier = (-1, *(record.plan_version for record in kept))
        asked = [
            record
            for record, before in zip(kept, earlier, strict=False)
            if not changes or _changes_something(record, before)
        ]
        return tuple(reversed(asked))[: max(0, limit)]

    def add_event(self, *events: Event) -> None:
        for event in events:
            check_event(event)
        with self._writing:
            for event in events:
                self._event_seq += 1
                self._events.append(replace(event, seq=self._event_seq))

    def events(self, limit: int, asked: EventFilter = ALL_EVENTS) -> tuple[Event, ...]:
        with self._writing:
            newest_first = tuple(reversed(self._events))
        return tuple(event for event in newest_first if asked.fits(event))[: max(0, limit)]

    def close(self) -> None:
        """There is nothing to release."""


def _with_kinds(
    old: CatalogSnapshot, device_kinds: tuple[DeviceKind, ...]
) -> dict[DeviceKindName, DeviceKind]:
    """All kinds by name, once these are added or replaced."""
    kinds = {kind.name: kind for kind in old.device_kinds}
    for kind in device_kinds:
        known = kinds.get(kind.name)
        forgotten = known is not None and kind.idle_w is None
        kinds[kind.name] = replace(kind, idle_w=known.idle_w) if known and forgotten else kind
    return kinds
