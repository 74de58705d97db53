"""Which versions of a task may answer a query: the one that it names, or those that hold its texts.

A text may have too many tokens by one tokenizer and not by another. It is answered by who holds it:
selection then sees the other versions as ones that cannot answer, with the reason. So it does where
a query names a version.
"""

from collections.abc import Callable

from controlplane.gateway.texts.asked import NOT_YET
from planner.canary.some_versions import for_version, version_not_found, without_versions
from planner.types import Query, Refusal, Snapshot
from variants.buckets import OwnTexts
from variants.errors import InvalidInput, Overloaded
from variants.types import Task, TaskName

MOST_KNOWN = 64
"""Parts of a snapshot that are remembered."""


class HoldingVersions:
    """Looks versions up by their names and tokenizers. Of a query that every version may answer
    nothing is asked here (``Query.of_some_versions``)."""

    def __init__(self) -> None:
        self._own: OwnTexts = {}
        self._known: dict[tuple[int, TaskName, object], tuple[Snapshot, Snapshot]] = {}
        """By the id of a snapshot, which is kept beside its part so that the id stays its own."""

    def follow(self, own: OwnTexts) -> None:
        """Go by these tokenizers of versions from now on."""
        self._own = own
        self._known.clear()

    def way_of(self, task: TaskName, version: str) -> str | None:
        """The way in which a version, by its label, reads texts, where that is its own."""
        own = self._own.get((task, version))
        return None if own is None else own.way

    def same_numbers(self, task: Task, version: str) -> bool:
        """Whether numbers of tokens mean to a version what they do to its task."""
        own = self._own.get((task.name, version))
        return own is None or task.text is None or own.tokenizer == task.text.tokenizer

    def among(self, query: Query) -> Callable[[Snapshot], Snapshot]:
        """What makes of a snapshot the part of versions that may answer a query."""

        def part(snapshot: Snapshot) -> Snapshot:
            key = (id(snapshot), query.task, (query.version, query.unread))
            found = self._known.get(key)
            if found is None:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                found = self._known[key] = (snapshot, self._part(snapshot, query))
            return found[1]

        return part

    def none_named(self, snapshot: Snapshot, query: Query) -> Refusal | None:
        """The refusal of a query that names a version which is not there; None of others."""
        if query.version is None:
            return None
        return version_not_found(snapshot, query.task, query.version)

    def check(self, snapshot: Snapshot, query: Query) -> None:
        """Refuse a query that no variant that may answer it holds: who names none is refused what
        is too long for all live versions, as he would be without a canary that holds it.

        Raises:
            InvalidInput: its texts are too long.
            Overloaded: a tokenizer that may hold them is being loaded.
        """
        view = snapshot.tasks.get(query.task)
        if view is None:
            return
        if query.version is not None:
            asked = [one for one in view.by_cost if one.model_version == query.version]
        elif query.variant is None:
            asked = [one for one in view.by_cost if not one.canary]
        else:
            asked = list(view.by_variant.get(query.variant, ()))
        whys = {one.variant: self.why_not(query, one.model_version) for one in asked}
        if not whys or not all(whys.values()):
            return
        if loading := next((one for one, why in whys.items() if why == NOT_YET), None):
            raise Overloaded(f"variant {loading!r} {NOT_YET}; ask again")
        variant, why = next(iter(whys.items()))
        what = "this one" if query.rows == 1 else "these"
        if query.variant is not None:
            raise InvalidInput(
                f"variant {variant!r} {why}; 'truncate' cuts texts off, and other variants hold"
                f" {what}"
            )
        whom = f"variant {variant!r}" if len(whys) == 1 else f"all variants, such as {variant!r}"
        raise InvalidInput(f"too long for {whom}, which {why}; 'truncate' cuts texts off")

    def why_not(self, query: Query, version: str) -> str:
        """Why a version does not hold the texts of a query; empty where it does."""
        way = self.way_of(query.task, version)
        return next((why for other, why in query.unread if other == way), "")

    def _part(self, snapshot: Snapshot, query: Query) -> Snapshot:
        if query.version is not None:
            snapshot = for_version(snapshot, query.task, query.version)
            if not query.unread:
                return snapshot
        view = snapshot.tasks.get(query.task)
        versions = set() if view is None else {one.model_version for one in view.by_cost}
        why = {one: why for one in versions if (why := self.why_not(query, one))}
        return without_versions(snapshot, query.task, why)
