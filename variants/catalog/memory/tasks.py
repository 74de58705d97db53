"""What is changed of tasks and what leaves, in the memory of one process."""

from collections.abc import Callable, Collection
from dataclasses import replace

from variants.buckets import bucketed_named
from variants.catalog.memory.canaries import MemoryCanaries
from variants.catalog.removal import Freed, Removed, check_retired, discarded, freed, together
from variants.catalog.validity.absent import no_task, no_tokenizer, no_version
from variants.catalog.validity.canaries import key_of, standing
from variants.catalog.validity.tasks import check_task
from variants.catalog.validity.texts import check_named, check_tokenizer, tokenizers_of
from variants.texts.inputs import digest_of_text
from variants.types import Digest, ModelName, ModelVersion, Peak, Registration, Task, TaskName


class MemoryTasks(MemoryCanaries):
    """The part of ``variants.catalog.protocol.Catalog`` that changes what is registered."""

    def __init__(self) -> None:
        super().__init__()
        self._removed: dict[tuple[TaskName, ModelName, int], Digest] = {}
        self._leftovers: dict[Digest, str] = {}
        self._tokenizers: dict[Digest, bytes] = {}

    def change_tasks(
        self,
        tasks: Collection[TaskName],
        change: Callable[[Task], Task],
        tokenizer: bytes | None = None,
    ) -> tuple[tuple[Task, Task], ...]:
        with self._writing:
            old = self._snapshot
            done = []
            for before in self._shared(tasks):
                after = change(before)
                check_task(after)
                check_named(after, tokenizer, known=self._tokenizers)
                done.append((before, after))
            changed = {before.name: after for before, after in done if after != before}
            if changed:
                if tokenizer is not None:
                    self._tokenizers = self._tokenizers | {digest_of_text(tokenizer): tokenizer}
                new = tuple(changed.get(one.name, one) for one in old.tasks)
                self._snapshot = replace(old, revision=old.revision + 1, tasks=new)
            return tuple(done)

    def _shared(self, names: Collection[TaskName]) -> list[Task]:
        """The tasks of these names, or the buckets that share them, ascending by length.

        Raises:
            NotFound: there is neither of one of them.
        """
        found: list[Task] = []
        for name in names:
            of_lengths = bucketed_named(self._snapshot.tasks, name)
            found += self._named([name]) if of_lengths is None else of_lengths.buckets
        return found

    def _named(self, names: Collection[TaskName]) -> list[Task]:
        """The tasks of these names.

        Raises:
            NotFound: one of them is not there.
        """
        known = {one.name: one for one in self._snapshot.tasks}
        for name in names:
            if name not in known:
                raise no_task(name)
        return [known[name] for name in names]

    def tokenizer(self, digest: Digest) -> bytes:
        if digest not in tokenizers_of(self._snapshot.tasks, self._snapshot.versions):
            raise no_tokenizer(digest)
        return self._tokenizers[digest]

    def _keep_tokenizer(self, registration: Registration, *, new: bool) -> None:
        given = registration.tokenizer
        check_tokenizer(registration, new=new, known=self._tokenizers)
        if given is not None:
            self._tokenizers = self._tokenizers | {digest_of_text(given): given}

    def remove_task(self, *tasks: TaskName) -> Removed:
        with self._writing:
            old = self._snapshot
            named = self._shared(tasks)
            gone = []
            for task in (one.name for one in named):
                peaks = tuple(peak for peak in self.peaks() if peak.task == task)
                of_task = tuple(v for v in old.versions if v.task == task)
                found = self._remove(old.revision, str(task), of_task, peaks)
                gone.append(replace(found, tasks=(task,)))
                self._peaks = {id: peak for id, peak in self._peaks.items() if peak not in peaks}
            left = tuple(one for one in old.tasks if one not in named)
            self._snapshot = replace(self._snapshot, tasks=left)
            return together(gone)

    def remove_version(
        self, tasks: Collection[TaskName], model: ModelName, version: int
    ) -> Removed:
        with self._writing:
            old = self._snapshot
            known = {key_of(v): v for v in old.versions}
            found = []
            for task in tasks:
                if (task, model, version) not in known:
                    raise no_version(task, f"{model}-v{version}")
                found.append(known[task, model, version])
                check_retired(found[-1])
            gone = [
                self._remove(old.revision, f"{one.task}/{one.label}", (one,), ()) for one in found
            ]
            return together(gone)

    def _remove(
        self,
        revision: int,
        subject: str,
        versions: tuple[ModelVersion, ...],
        peaks: tuple[Peak, ...],
    ) -> Removed:
        """Take versions out.

        Args:
            revision: of the catalog before; the next one is without them.
        """
        old = self._snapshot
        numbers = {key_of(v): v.source for v in versions}
        variants = tuple(v for v in old.variants if (v.task, v.model, v.version) in numbers)
        gone = {variant.key for variant in variants}
        removed = Removed(versions=versions, variants=variants, peaks=peaks)
        self._removed = self._removed | numbers
        self._leftovers = dict.fromkeys(removed.artifacts, subject) | self._leftovers
        self._requests = {k: r for k, r in self._requests.items() if k[:2] not in gone}
        self._lifts = {key: lift for key, lift in self._lifts.items() if key not in gone}
        self._accepted = {key: one for key, one in self._accepted.items() if key not in gone}
        self._lived = self._lived - numbers.keys()
        left = tuple(v for v in old.versions if v not in versions)
        self._snapshot = replace(
            old,
            revision=revision + 1,
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
            left = dict(sorted(self._leftovers.items())[:most])
            found = freed(left, self._used())
            for digest in found.deleted:
                delete(digest)
            self._leftovers = {d: of for d, of in self._leftovers.items() if d not in left}
            return found

    def discard(
        self, digests: Collection[Digest], delete: Callable[[Digest], None]
    ) -> tuple[Digest, ...]:
        with self._writing:
            return discarded(digests, self._used(), delete)

    def _used(self) -> set[Digest]:
        """Every artifact that something registered uses."""
        now = self._snapshot
        return {v.source for v in now.versions} | {v.artifact for v in now.variants}
