"""A catalog in the memory of one process."""

from dataclasses import replace

from variants.catalog.memory.tasks import MemoryTasks
from variants.catalog.protocol import Marks, ordered
from variants.catalog.removal import check_number
from variants.catalog.validity.absent import no_device_kind, no_variant
from variants.catalog.validity.buckets import check_names
from variants.catalog.validity.profiles import check_device_kind, check_profile
from variants.catalog.validity.registrations import (
    check_addition,
    check_conflicts,
    check_judged,
    check_registration,
    not_judged,
    version_of,
)
from variants.types import (
    CatalogSnapshot,
    DeviceKind,
    DeviceKindName,
    ModelName,
    Profile,
    Registration,
    TaskName,
    Variant,
)


class MemoryCatalog(MemoryTasks):
    """A ``Catalog`` that lives and dies with its process.

    The state is one immutable snapshot that writers replace: a reader always sees a whole revision
    and takes no lock, and a write that fails has changed nothing.
    """

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
            )
        )

    def snapshot(self) -> CatalogSnapshot:
        return self._snapshot

    def revision(self) -> int:
        return self._snapshot.revision

    def marks(self) -> Marks:
        plan = self._plan
        return Marks(
            revision=self._snapshot.revision,
            plan_version=plan.version if plan else 0,
            inventory=self.inventory(),
            planned_at=plan.created_at if plan else "",
        )

    def next_version(self, task: TaskName, model: ModelName) -> int:
        wanted = (task, model)
        used = (v.version for v in self._snapshot.versions if (v.task, v.model) == wanted)
        return 1 + max((*used, *self.removed_versions(task, model)), default=0)

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
                    agreement=one.agreement, note=one.note, answered=one.answered, found=one.found,
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
                    raise no_variant(profile.task, profile.variant)
                if profile.device_kind not in kinds:
                    raise no_device_kind(profile.device_kind)
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
