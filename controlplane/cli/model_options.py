"""The options of commands that build variants of models, the same for each of them."""

from dataclasses import dataclass, fields, replace
from math import isfinite, nan
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.building.types import RegistrationRequest, Thoroughness
from variants.checks.edges import Edges
from variants.errors import InvalidInput
from variants.figures import read_number
from variants.images import number_in, numbers_in
from variants.types import DEFAULT_LATENCY_MS, ImageScale, Prefer, Slo, Stage

MAX_LABELS_BYTES = 1 << 24

EvaluationOption = Annotated[
    Path,
    typer.Option(
        "--eval",
        "--evaluation",
        metavar="FILE",
        help="Rows (.npz) that nothing was trained or calibrated on: an array for each input, by "
        "its name, and the right classes as 'labels', counted from 0 or by the names of --labels, "
        "or the right numbers as 'targets', as the metric wants them.",
    ),
]
TextInputsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help="Which input takes what of a text, where names do not tell:"
        " 'ids=tokens,mask=valid,types=segments'.",
    ),
]
ImageMeanOption = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBERS",
        help="How pictures become numbers, (value / 255 - mean) / std: '0.5', or one for each"
        " channel, '0.485,0.456,0.406'; else 0.",
    ),
]
ImageStdOption = Annotated[
    str | None, typer.Option(metavar="NUMBERS", help="The same, of std; else 1.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """Which variants are built, by which rows, and how much of them is measured."""

    evaluation: EvaluationOption
    calibration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Rows to quantise with (.npz); else some of the evaluation rows."
        ),
    ] = None
    training: Annotated[
        Path | None,
        typer.Option(
            "--training",
            "--train",
            metavar="FILE",
            help="The rows (.npz) that the model was trained on: for pruning and distillation.",
        ),
    ] = None
    kinds: Annotated[
        str | None,
        typer.Option(
            "--variants",
            metavar="KINDS",
            help="Kinds to build: 'onnx-int8,openvino-bf16'; else all that can be built here.",
        ),
    ] = None
    measure: Annotated[
        Thoroughness,
        typer.Option(
            help="full: measure every batch size of every variant; sampled: measure a fifth and "
            "predict the rest; auto: sample what would take longer than a minute."
        ),
    ] = Thoroughness.AUTO
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Judge by 100 of the rows, and measure few batch sizes and predict the others: to"
            " see whether all works. `variants judge` and `profile` do the rest later.",
        ),
    ] = False
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Build and measure all anew, whatever the build cache has of it."
        ),
    ] = False

    def request(self, path: Path, task: str) -> RegistrationRequest:
        """What is to be registered of the file or folder, as far as these options say it.

        Raises:
            InvalidInput: a kind of variant has no name.
        """
        return RegistrationRequest(
            path=path, task=task, evaluation=self.evaluation, calibration=self.calibration,
            training=self.training, kinds=parse_kinds(self.kinds), measure=self.measure,
            quick=self.quick,
        )  # fmt: skip

    def sent(self) -> dict[str, Any]:
        """The same for ``Client.register``, whose gateway reads the texts."""
        return {
            "calibration": self.calibration, "training": self.training, "variants": self.kinds,
            "measure": None if self.measure is Thoroughness.AUTO else self.measure,
            "quick": self.quick, "fresh": self.fresh,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """What a new version is, and its task where that is new."""

    labels: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Names of the classes: 'cat,dog', or @FILE with one on each line."
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "--name",
            metavar="NAME",
            help="Name of the model; else the file's or folder's, in small letters.",
        ),
    ] = None
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How accuracy is counted: top1 or top5 of a classifier, balanced or f1 where its"
            " classes are of different frequency; within:0.5, within:5% or r2 of numbers; cosine or"
            " nearest of vectors; else top1.",
        ),
    ] = None
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="The model leaves one axis open beside the batch, as models of texts do: serve it"
            " at these sizes, '16,64,256'. A query is filled up to the shortest that holds its"
            " rows.",
        ),
    ] = None
    pad: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS",
            help="What fills them up: a number for all inputs, or 'ids=1,mask=0'; else 0.",
        ),
    ] = None
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The model's tokenizer.json, as transformers saves it: a new task takes texts"
            " then, and so do files of rows (.csv, .tsv, .jsonl with 'text' and 'label'). Else"
            " that of the version before, or the task's.",
        ),
    ] = None
    text_inputs: TextInputsOption = None
    latency_ms: Annotated[
        float | None, typer.Option(metavar="MS", help="A new task's default deadline.", min=0.001)
    ] = None
    accuracy: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="A new task's default floor, from 0 to 1.", min=0, max=1
        ),
    ] = None
    cost: Annotated[
        float | None,
        typer.Option(metavar="USD", help="A new task's default ceiling per 1,000 queries.", min=0),
    ] = None
    prefer: Annotated[Prefer | None, typer.Option(help="What a new task optimises by default.")] = (
        None
    )
    input_names: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="What the inputs of an ONNX file are called from now on: 'pixels,age', in its"
            " order.",
        ),
    ] = None
    output_names: Annotated[
        str | None, typer.Option(metavar="NAMES", help="The same, of its outputs.")
    ] = None
    keep_outputs: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="The outputs of an ONNX file that stay, by its own names, that which is judged"
            " first: 'sentence_embedding'. What only the others need goes with them.",
        ),
    ] = None
    axis_sizes: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Sizes for axes that an ONNX file leaves open, by its names for them:"
            " 'height=640,width=640', or by input and place: 'images:2=640'.",
        ),
    ] = None
    fix_inputs: Annotated[
        str | None,
        typer.Option(
            metavar="VALUES",
            help="Inputs of an ONNX file that always have one value, and are none any more:"
            " 'sr=16000'. All elements of one get it.",
        ),
    ] = None
    batch_axes: Annotated[
        str | None,
        typer.Option(
            metavar="AXES",
            help="Inputs and outputs of an ONNX file whose rows are along another axis than the"
            " first, counted from 0: 'state=1,new_state=1'.",
        ),
    ] = None
    free_batch: Annotated[
        bool,
        typer.Option(
            "--free-batch",
            help="Let an ONNX file with a fixed batch take any number of rows, if it answers each"
            " as it does alone.",
        ),
    ] = False
    cast_float16: Annotated[
        bool,
        typer.Option(
            "--cast-float16",
            help="Let inputs and outputs of float16 be float32, cast at the edges.",
        ),
    ] = False
    image_mean: ImageMeanOption = None
    image_std: ImageStdOption = None
    stage: Annotated[
        Stage | None,
        typer.Option(
            help="Stage of the version: a live one may answer any query, a canary only those that"
            " name one of its variants; else live for a model's first one, canary for later ones."
        ),
    ] = None

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes; None where nothing was given.

        Raises:
            InvalidInput: one is empty, or their file cannot be read.
        """
        return None if self.labels is None else parse_labels(self.labels)

    def added_to(self, request: RegistrationRequest) -> RegistrationRequest:
        """The request with what these options say.

        Raises:
            InvalidInput: one cannot be read.
        """
        return replace(
            request,
            labels=self.classes,
            model=self.model,
            metric=self.metric,
            lengths=parse_lengths(self.lengths),
            pads=parse_pads(self.pad),
            tokenizer=self.tokenizer,
            text_inputs=parse_text_inputs(self.text_inputs),
            slo=self.default_slo(),
            edges=self.edges(),
            image=image_scale(self.image_mean, self.image_std),
            stage=self.stage,
        )

    def sent(self) -> dict[str, Any]:
        """The same for ``Client.register``, whose gateway reads the texts.

        Raises:
            InvalidInput: the labels cannot be read, which are in a file here.
        """
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        name = given.pop("model")
        return {**given, "name": name, "labels": self.classes}

    def default_slo(self) -> Slo | None:
        """A task's defaults; None where none was given."""
        given = (self.latency_ms, self.accuracy, self.cost, self.prefer)
        if all(one is None for one in given):
            return None
        return Slo(
            latency_ms=DEFAULT_LATENCY_MS if self.latency_ms is None else self.latency_ms,
            accuracy=self.accuracy,
            cost=self.cost,
            prefer=self.prefer or Prefer.COST,
        )

    def edges(self) -> Edges:
        """What of an ONNX file's inputs and outputs is to be another way.

        Raises:
            InvalidInput: a name is empty, or a size, a value or an axis is no such number.
        """
        return Edges(
            input_names=_names("--input-names", self.input_names),
            output_names=_names("--output-names", self.output_names),
            keep_outputs=_names("--keep-outputs", self.keep_outputs),
            axis_sizes=_whole_numbers("--axis-sizes", self.axis_sizes, "'height=640,width=640'"),
            fix_inputs=_values(self.fix_inputs),
            batch_axes=_whole_numbers("--batch-axes", self.batch_axes, "'state=1,new_state=1'"),
            free_batch=self.free_batch,
            cast_float16=self.cast_float16,
        )


def parse_kinds(text: str | None) -> tuple[str, ...] | None:
    """``onnx-int8,openvino-bf16`` as its parts; None where nothing was given.

    Whether there are such kinds is checked by the registration.

    Raises:
        InvalidInput: one is empty.
    """
    if text is None:
        return None
    kinds = tuple(kind.strip() for kind in text.split(","))
    if not all(kinds):
        raise InvalidInput("a kind of variant is empty; give them as 'onnx-int8,openvino-bf16'")
    return kinds


def parse_text_inputs(text: str | None) -> tuple[tuple[str, str], ...]:
    """``ids=tokens,mask=valid`` as pairs.

    Raises:
        InvalidInput: one is no pair.
    """
    pairs = [] if text is None else [part.partition("=")[::2] for part in text.split(",")]
    if not all(role.strip() and name.strip() for role, name in pairs):
        raise InvalidInput(
            f"--text-inputs are names such as 'ids=tokens,mask=valid', not {str(text)[:40]!r}"
        )
    return tuple((role.strip(), name.strip()) for role, name in pairs)


def _names(option: str, text: str | None) -> tuple[str, ...]:
    """``pixels,age`` as its names.

    Raises:
        InvalidInput: one is empty.
    """
    names = () if text is None else tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise InvalidInput(f"a name is empty; give them as {option} a,b")
    return names


def _whole_numbers(option: str, text: str | None, example: str) -> tuple[tuple[str, int], ...]:
    """``height=640,width=640`` as pairs.

    Raises:
        InvalidInput: one is no name and a whole number.
    """
    pairs = [] if text is None else [part.rpartition("=")[::2] for part in text.split(",")]
    for name, size in pairs:
        if not name.strip() or not size.strip().isascii() or not size.strip().isdigit():
            raise InvalidInput(
                f"{option} are names and whole numbers, such as {example}, not {str(text)[:40]!r}"
            )
    return tuple((name.strip(), int(size[:10])) for name, size in pairs)


def _values(text: str | None) -> tuple[tuple[str, float], ...]:
    """``sr=16000,threshold=0.5`` as pairs.

    Raises:
        InvalidInput: one is no name and a number.
    """
    pairs = [] if text is None else [part.rpartition("=")[::2] for part in text.split(",")]
    found = []
    for name, value in pairs:
        try:
            number = read_number(value)
        except ValueError:
            number = nan
        if not name.strip() or not isfinite(number):
            raise InvalidInput(
                "--fix-inputs are names and numbers, such as 'sr=16000,threshold=0.5', not"
                f" {str(text)[:40]!r}"
            )
        found.append((name.strip(), number))
    return tuple(found)


def parse_labels(text: str) -> tuple[str, ...]:
    """``a,b,c``, or ``@FILE`` with one label on each line.

    Raises:
        InvalidInput: a label is empty, or the file cannot be read.
    """
    if text.startswith("@"):
        path = Path(text[1:])
        try:
            if path.stat().st_size > MAX_LABELS_BYTES:
                raise InvalidInput(f"{path.name} is too large for a list of labels")
            # Editors of Windows begin a file with a mark, which would be part of the first name.
            found = path.read_text(encoding="utf-8-sig").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InvalidInput(f"{path.name}: the labels cannot be read: {reason}") from error
    else:
        found = text.split(",")
    labels = tuple(label.strip() for label in found)
    if not labels or not all(labels):
        raise InvalidInput("a label is empty; give them as 'cat,dog' or @FILE")
    return labels


def image_scale(mean: str | None, std: str | None) -> ImageScale | None:
    """How a new task's pictures become numbers; None where nothing was given.

    Raises:
        InvalidInput: a text is no number.
    """
    given = {
        name: numbers_in(text, f"--image-{name}")
        for name, text in (("mean", mean), ("std", std))
        if text is not None
    }
    return ImageScale(**given) if given else None


def parse_lengths(text: str | None) -> tuple[int, ...] | None:
    """``16,64,256`` as its numbers; None where nothing was given.

    Raises:
        InvalidInput: one is no whole number.
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise InvalidInput(f"--lengths are whole numbers, such as '16,64,256', not {text[:40]!r}")
    return tuple(map(int, parts))


def parse_pads(text: str | None) -> tuple[tuple[str, float], ...]:
    """``0``, or ``ids=1,mask=0``, by the names of inputs; a number for all has an empty name.

    Raises:
        InvalidInput: one is no number.
    """
    if text is None:
        return ()
    pairs = [part.rpartition("=")[::2] for part in text.split(",")]
    return tuple((name.strip(), number_in(value, "--pad")) for name, value in pairs)
