"""The options of commands that build variants of models, the same for each of them."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from controlplane.building.types import RegistrationRequest, Thoroughness
from controlplane.cli.model_options.texts import (
    image_scale,
    parse_kinds,
    parse_labels,
    parse_lengths,
    parse_names,
    parse_pads,
    parse_text_inputs,
    parse_values,
    parse_whole_numbers,
)
from variants.checks.edges import Edges
from variants.types import DEFAULT_LATENCY_MS, Prefer, Slo, Stage

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
            input_names=parse_names("--input-names", self.input_names),
            output_names=parse_names("--output-names", self.output_names),
            keep_outputs=parse_names("--keep-outputs", self.keep_outputs),
            axis_sizes=parse_whole_numbers(
                "--axis-sizes", self.axis_sizes, "'height=640,width=640'"
            ),
            fix_inputs=parse_values(self.fix_inputs),
            batch_axes=parse_whole_numbers(
                "--batch-axes", self.batch_axes, "'state=1,new_state=1'"
            ),
            free_batch=self.free_batch,
            cast_float16=self.cast_float16,
        )
