"""What could not be loaded on this worker, and when it is worth another try.

A damaged artifact is worth another try once its file looks different, because only rebuilding or
restoring it helps. What a back end refused is tried again after a while, because memory may have
run out or a device been busy, and also when its file changes. A file that another machine keeps is
looked at by ``due`` alone, which may wait for the answer.
"""

from dataclasses import dataclass
from math import inf

from variants.artifacts.integrity import Seen
from variants.errors import ArtifactDamaged, ModellessError, VariantNotLoadable, readable
from workers.execution.artifacts import Artifacts, SeenArtifacts
from workers.types import LoadSpec, variant_id

FIRST_S = 5.0
"""Wait after the first failure of a sound artifact; then twice as long each time."""
LONGEST_S = 300.0


@dataclass(frozen=True, slots=True)
class _Failure:
    spec: LoadSpec
    error: VariantNotLoadable
    file: Seen | None
    """How the artifact looked before the load."""
    retry_s: float
    """When to try again, should the file stay as it is."""
    count: int


class Failures:
    """The last failed load of each variant, until one succeeds."""

    def __init__(self, artifacts: Artifacts | None = None) -> None:
        self._artifacts = artifacts or SeenArtifacts()
        self._failures: dict[int, _Failure] = {}

    def note(
        self, spec: LoadSpec, error: VariantNotLoadable, file: Seen | None, now_s: float
    ) -> None:
        """A load failed; ``file`` is how the artifact looked before."""
        variant = variant_id(spec.task, spec.variant)
        before = self._failures.get(variant)
        count = 1 + (before.count if before else 0)
        wait_s = min(FIRST_S * 2.0 ** min(count - 1, 30), LONGEST_S)
        retry_s = inf if isinstance(error, ArtifactDamaged) else now_s + wait_s
        self._failures[variant] = _Failure(spec, error, file, retry_s, count)

    def standing(self, spec: LoadSpec, now_s: float) -> VariantNotLoadable | None:
        """Why loading this would fail again; None when that is not known."""
        failure = self._failures.get(variant_id(spec.task, spec.variant))
        if failure is None or _made_of(failure.spec) != _made_of(spec):
            return None
        is_due = self._is_overdue if self._artifacts.fetches else self._is_due
        return None if is_due(failure, now_s) else failure.error

    def due(self, now_s: float) -> list[int]:
        """Variants that are worth another try. Looks at their files."""
        return [
            variant for variant, one in list(self._failures.items()) if self._is_due(one, now_s)
        ]

    def succeeded(self, variant: int) -> None:
        """Forget the failures of a variant, which was loaded."""
        self._failures.pop(variant, None)

    def _is_overdue(self, failure: _Failure, now_s: float) -> bool:
        return now_s >= failure.retry_s

    def _is_due(self, failure: _Failure, now_s: float) -> bool:
        if self._is_overdue(failure, now_s):
            return True
        spec = failure.spec
        return bool(spec.path) and self._artifacts.look(spec) != failure.file


def not_loadable(spec: LoadSpec, error: ModellessError) -> VariantNotLoadable:
    """The same failure as a sentence for the caller: which variant cannot be loaded, and why.

    What a back end says may name the artifact's path, which is not the client's business.
    """
    name = f"{spec.task}/{spec.variant}"
    why = error.message.removeprefix(f"{name} cannot be loaded: ")
    if why.startswith(f"{name} "):
        why = f"it {why.removeprefix(f'{name} ')}"
    if spec.path:
        why = why.replace(spec.path, "its artifact")
    kind = ArtifactDamaged if isinstance(error, ArtifactDamaged) else VariantNotLoadable
    return kind(f"{name} cannot be loaded: {readable(why)}")


def why_of(spec: LoadSpec, error: VariantNotLoadable) -> str:
    """The clause that such a sentence ends with."""
    return error.message.removeprefix(f"{spec.task}/{spec.variant} cannot be loaded: ")


def _made_of(spec: LoadSpec) -> tuple[object, ...]:
    return (spec.artifact, spec.path, spec.runtime, spec.options)
