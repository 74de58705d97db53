"""A model for rows of several lengths: one request for each length, with a model and rows of it.

What comes of this is registered as any other model is, for tasks that share the name which clients
ask (``variants.buckets``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from controlplane.building.family import digest_of
from controlplane.building.types import RegistrationLimits, RegistrationRequest
from profiler.evaluation.rows_by_length import fit_rows
from profiler.sandbox.sandbox import Sandbox
from variants.buckets import BucketedTask, bucket_name, bucket_of
from variants.errors import Conflict, InvalidInput
from variants.metrics.metric import LABELS, TOP1, parse_metric
from variants.model_files import ModelFile
from variants.types import (
    FollowingAxis,
    LengthBucket,
    ModelVersion,
    OpenAxis,
    Stage,
    TaskName,
)

MOST_LENGTHS = 16


class Part(NamedTuple):
    """What is registered for rows of one length."""

    request: RegistrationRequest
    files: tuple[ModelFile, ...]
    """The files of the model, one for each version."""


def by_length(
    request: RegistrationRequest,
    files: Sequence[ModelFile],
    known: BucketedTask | None,
    versions: Sequence[ModelVersion],
    folder: Path,
    limits: RegistrationLimits,
) -> list[Part]:
    """A request and the file of its model for each length, the shortest first.

    Args:
        files: of the model; its one file is taken.
        known: the buckets that there are already.
        versions: all that are registered.
        folder: where models and rows of each length are written.

    Raises:
        InvalidArtifact: the model does not leave one axis open, or the rows are refused.
        InvalidInput: lengths or padding cannot be.
        Conflict: the buckets that there are have other padding, or lengths are added with another
            model than they have.
    """
    source = files[0]
    lengths = _lengths(request, known, _having(known, versions, source))
    if request.path.is_dir() or source.path.suffix != ".onnx":
        raise InvalidInput(
            f"a model for rows of several lengths is a single .onnx file, not {request.path.name}"
        )
    longest = max(lengths[-1], known.lengths[-1] if known is not None else 0)
    made: list[Part] = []
    with Sandbox(limits.trial) as sandbox:
        for length in lengths:
            own = folder / f"length-{length}"
            own.mkdir()
            file = replace(source, path=own / source.path.name)
            found = sandbox.call(
                "fix_axis",
                {
                    "path": str(source.path),
                    "size_mib": limits.model_mib,
                    "length": length,
                    "longest": longest,
                    "target": str(file.path),
                },
                subject=source.model,
            )
            made.append(Part(_at_length(length, request, found, known, file), (file,)))
    return made


def _at_length(
    length: int,
    request: RegistrationRequest,
    found: Mapping[str, Any],
    known: BucketedTask | None,
    file: ModelFile,
) -> RegistrationRequest:
    """The request for a bucket, with rows of its length beside the file of its model.

    Args:
        found: which axes of the model ``fix_axis`` of the sandbox has given that length.
    """
    axes = _axes(found["axes"], request.pads, known)
    if known is not None and axes != known.axes:
        raise Conflict(
            f"task {request.task!r} has other open axes, or other padding, which stay: leave --pad"
            " out, or register for another task"
        )
    outputs = _following([FollowingAxis(**one) for one in found["outputs"]], known)
    fills = dict(request.row_pads)
    of_rows = [replace(axis, pad=fills.get(axis.input, axis.pad)) for axis in axes]
    truth = _truth(request, found["first"], outputs, known)
    rows: dict[str, Any] = {
        part: _fitted(given, file.path.parent, of_rows, length, truth)
        for part, given in request.rows.items()
    }
    return replace(
        request,
        path=file.path,
        task=bucket_name(request.task, length),
        bucket=LengthBucket(of=TaskName(request.task), length=length, axes=axes, outputs=outputs),
        **rows,
    )


def _having(
    known: BucketedTask | None, versions: Sequence[ModelVersion], file: ModelFile
) -> tuple[int, ...]:
    """The lengths at which a model is there, whichever version."""
    have = {version.task for version in versions if version.model == file.model}
    buckets = known.buckets if known is not None else ()
    return tuple(bucket_of(one).length for one in buckets if one.name in have)


def _lengths(
    request: RegistrationRequest, known: BucketedTask | None, having: tuple[int, ...]
) -> tuple[int, ...]:
    """Those of a task that is new; else those at which the model is there already, and given ones.
    A model that is new to the task is there at all of its lengths, or at those of them that are
    given."""
    if request.lengths is None:
        assert known is not None
        return having or known.lengths
    lengths = tuple(sorted(set(request.lengths)))
    if not 1 <= len(lengths) <= MOST_LENGTHS or lengths[0] < 1:
        given = ",".join(map(str, request.lengths))
        raise InvalidInput(
            f"--lengths are 1 to {MOST_LENGTHS} lengths, each 1 or more, not {given[:40]!r}"
        )
    if known is None:
        return lengths
    if having or set(lengths) <= set(known.lengths):
        lengths = tuple(sorted({*lengths, *having}))
    together = tuple(sorted({*lengths, *known.lengths}))
    if len(together) > MOST_LENGTHS:
        raise InvalidInput(
            f"task {request.task!r} would have {len(together)} lengths, and {MOST_LENGTHS} are"
            " possible"
        )
    return lengths


def as_in_the_others(
    parts: Sequence[Part],
    known: BucketedTask | None,
    versions: Sequence[ModelVersion],
    limit_mib: float,
) -> list[Part]:
    """The same, where buckets that lack a model which others have get it as these have it: with its
    number, its stage, and what their tasks have.

    So a length is added to a task: by registering again what it has.

    Args:
        parts: what ``by_length`` has made.
        versions: all that are registered.
        limit_mib: of a model's file.

    Raises:
        Conflict: a length is added with a model that no bucket has or that is not live, or with
            other labels or another metric.
    """
    if known is None:
        return list(parts)
    there = {bucket.name for bucket in known.buckets}
    same = [_version_in(versions, request, files[0], limit_mib) for request, files in parts]
    found = [version for version in same if version is not None]
    added = [request for request, _ in parts if request.task not in there]
    if not found:
        there_before = {one.task for one in versions if one.model == parts[0].files[0].model}
        own = [request.task in there_before for request, _ in parts]
        if added or (any(own) and not all(own)):
            raise Conflict(
                f"a length is added with the file of a model that {known.name!r} has, and this one"
                " is none of them: register it without --lengths first"
            )
        return list(parts)
    _check_added(added, known, found)
    live = next((one for one in found if one.stage is Stage.LIVE), found[0])
    face = known.face
    if added and live.text != parts[0].request.own_text:
        raise Conflict(
            f"{live.label!r} has another tokenizer in the other buckets of {known.name!r}: leave"
            " --tokenizer out"
        )
    made = []
    for (request, files), version in zip(parts, same, strict=True):
        if version is not None:
            made.append(Part(request, files))
            continue
        new = request.task not in there
        as_others = replace(
            request,
            stage=live.stage,
            labels=face.labels or None if new else request.labels,
            metric=face.metric if new else request.metric,
            slo=(request.slo or face.slo) if new else request.slo,
            text=face.text,
        )
        made.append(Part(as_others, (replace(files[0], version=live.version),)))
    return made


def _version_in(
    versions: Sequence[ModelVersion],
    request: RegistrationRequest,
    file: ModelFile,
    limit_mib: float,
) -> ModelVersion | None:
    """The version that a file is in the bucket of a request."""
    own = [one for one in versions if (one.task, one.model) == (request.task, file.model)]
    digest = digest_of(file.path, limit_mib) if own else None
    return next((one for one in own if one.source == digest), None)


def _check_added(
    added: Sequence[RegistrationRequest], known: BucketedTask, found: Sequence[ModelVersion]
) -> None:
    for request in added:
        for what, given, has in (
            ("labels", request.labels, known.face.labels),
            ("metric", request.metric, known.face.metric),
        ):
            if given is not None and given != has:
                raise Conflict(f"the other buckets of {known.name!r} have other {what}")
    if added and all(one.stage is not Stage.LIVE for one in found):
        raise Conflict(
            f"{found[0].label!r} is {found[0].stage} in the other buckets of {known.name!r}: a"
            " length is added with a live version first, or no query of it would be answered"
        )


def _axes(
    found: Sequence[tuple[str, int]], pads: Sequence[tuple[str, float]], known: BucketedTask | None
) -> tuple[OpenAxis, ...]:
    """The open axes with what fills them up: as given, else as it is already, else 0."""
    given = dict(pads)
    names = [name for name, _ in found]
    if other := sorted(given.keys() - {"", *names}):
        raise InvalidInput(
            f"--pad names {other[0][:40]!r}, which is no input with an open axis; there are:"
            f" {', '.join(names)}"
        )
    before = {} if known is None else {axis.input: axis.pad for axis in known.axes}
    return tuple(
        OpenAxis(
            input=name,
            axis=axis,
            pad=given.get(name, given.get("", before.get(name, 0.0))),
        )
        for name, axis in found
    )


def _following(
    found: Sequence[FollowingAxis], known: BucketedTask | None
) -> tuple[FollowingAxis, ...]:
    """The outputs that are as long as the rows, or a part of that; of a task that is known those
    that it has."""
    names = None if known is None else {spec.name for spec in known.face.outputs}
    return tuple(one for one in found if names is None or one.output in names)


def _truth(
    request: RegistrationRequest,
    first: str,
    outputs: Sequence[FollowingAxis],
    known: BucketedTask | None,
) -> tuple[str, FollowingAxis] | None:
    """The array of a file of rows with what is right at each position, and how many positions a row
    has along which of its axes; None where a row is judged as a whole."""
    judged = first if known is None else known.face.outputs[0].name
    along = next((one for one in outputs if one.output == judged), None)
    if along is None:
        return None
    metric = parse_metric(request.metric or (str(TOP1) if known is None else known.face.metric))
    return (metric.truth, replace(along, axis=0) if metric.truth == LABELS else along)


def _fitted(
    given: Path,
    folder: Path,
    axes: Sequence[OpenAxis],
    length: int,
    truth: tuple[str, FollowingAxis] | None,
) -> Path:
    """The rows of a file that a bucket takes. Sentences name the file, so its name says which."""
    target = folder / f"{given.stem} up to {length}.npz"
    fit_rows(given, target, axes, length, truth)
    return target
