"""What can be asked for: tasks, what they take and give, and what a query needs."""

from dataclasses import dataclass
from enum import StrEnum

from variants.types.names import Digest, TaskName

DEFAULT_LATENCY_MS = 1_000.0


class Prefer(StrEnum):
    """What is optimised when several variants satisfy the SLO."""

    COST = "cost"
    ACCURACY = "accuracy"
    LATENCY = "latency"
    ENERGY = "energy"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSpec:
    """One input or output of a task; ``shape`` is of one row, the batch axis left out."""

    name: str
    dtype: str
    """A numpy name: ``float32``, ``float64``, ``int64``, ``int32``, ``uint8`` or ``bool``."""
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What a query needs. ``None`` asks for nothing."""

    latency_ms: float = DEFAULT_LATENCY_MS
    """Deadline, end to end, from the first byte received to the reply handed to the socket."""
    accuracy: float | None = None
    """Floor in [0, 1] on a variant's measured accuracy."""
    cost: float | None = None
    """Ceiling on the reservation price, USD per 1,000 queries."""
    prefer: Prefer = Prefer.COST


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How equal queries of a task share answers, where an operator has allowed that."""

    ttl_s: float
    """How long an answer is given again; 0: only queries in flight share."""
    memory_mib: float
    """What each gateway keeps of the task's answers at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageScale:
    """How the pixels of a picture become the values of a task's input of floats:
    ``(value / 255 - mean) / std``, with one number of each for all channels or one for each."""

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)


TYPE_UNIT = 2**24
"""What the type of a token counts, where it stands beside the number of the token in one number. No
vocabulary is as large, and an INT32 holds types up to 127."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextInput:
    """How a text becomes a row of a task's inputs: numbers of tokens, by its tokenizer."""

    tokenizer: Digest
    """Of the bytes of its ``tokenizer.json``, which the catalog keeps."""
    ids: str
    """The input that takes the numbers of tokens."""
    mask: str | None = None
    """The input that has 1 for each token, and 0 behind the end of a row."""
    types: str | None = None
    """The input that has 0 for each token of a text, and 1 for those of a second one beside it."""
    pad: int = 0
    """The number of a token that fills ``ids`` up."""
    pairs: bool | None = None
    """Whether rows are pairs of texts, as those are by which its first model was judged; None where
    that is not known."""
    packed_types: bool = False
    """Whether the types of tokens go into ``ids``, for a version that takes them of a task that
    lacks them: ``TYPE_UNIT`` for each beside the number of the token."""

    @property
    def way(self) -> str:
        """What texts become rows by, as one word: equal ones give equal rows."""
        return f"{self.tokenizer} with types" if self.packed_types else self.tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAxis:
    """The axis of an input along which rows differ in length, and what fills short ones up."""

    input: str
    axis: int
    """Of one row, the batch axis left out."""
    pad: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingAxis:
    """The axis of an output that is as long as the rows, or a fixed part of that: a label or a
    vector for each position, or for each few of them."""

    output: str
    axis: int
    """Of one row, the batch axis left out."""
    step: int = 1
    """How many positions of a row make one position of the output."""
    offset: int = 0
    """What counts beside a row's length, as an operator without padding or one that rounds up
    has it."""

    def size(self, length: int) -> int:
        """How long the output is for a row of a length."""
        return max(0, (length + self.offset) // self.step)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBucket:
    """What makes a task the one for rows of up to a length, of several such tasks.

    Clients ask the name that all of them share. A query goes to the shortest bucket that holds its
    rows, filled up to the bucket's length.
    """

    of: TaskName
    """The name that clients ask; no task has it."""
    length: int
    axes: tuple[OpenAxis, ...]
    """One for each input that has such an axis, in the order of the inputs."""
    outputs: tuple[FollowingAxis, ...] = ()
    """One for each output that is as long as the rows, or a part of that, in the order of the
    outputs. What answers a row is cut back to the row's own length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What can be asked for: a name, a signature, a metric and default needs."""

    name: TaskName
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    labels: tuple[str, ...] = ()
    """Names of the classes of the first output, in its order; empty when it has none."""
    metric: str = "top1"
    """What accuracy is: ``str`` of a ``variants.metrics.metric.Metric``."""
    slo: Slo = Slo()
    sharing: Sharing | None = None
    """None: every query is run."""
    image: ImageScale | None = None
    """Where somebody has said how its model wants pictures; None: as ``ImageScale()``, if it takes
    any."""
    bucket: LengthBucket | None = None
    """Where it is one of several tasks for rows of several lengths."""
    text: TextInput | None = None
    """Where its rows may be asked as texts."""
