"""What commands print of a registration: as plain JSON values, and as a table for people."""

from collections.abc import Mapping, Sequence, Set, Sized
from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING, Any

import typer

from controlplane.cli import render
from variants.buckets import asked_name
from variants.catalog.validity.spaces import is_own_space
from variants.figures import accuracy_text, counted, figure, percent
from variants.metrics.metric import TOP1
from variants.texts.tables import PAIR, TABLES
from variants.types import Stage

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.building.build_cache import BuildCache
    from controlplane.building.types import RegistrationResult
    from variants.types import Variant


FEW_ROWS = 30
"""Of fewer, a share of them has a 95 % interval of 11 points or more, even where all are right."""
LEFT_OUT = ": left out"
"""How the note of a variant ends of which larger batches took too much memory or time."""


def result_body(result: "RegistrationResult", seconds: float) -> dict[str, Any]:
    """What was registered, as plain JSON values."""
    from controlplane.views.catalog.frontier import dominated

    beaten = {
        (task, *one)
        for task, variants in _by_task(result.variants).items()
        for one in dominated(variants, [p for p in result.profiles if p.task == task])
    }
    return {
        "task": asked_name(result.task),
        "metric": result.task.metric,
        "versions": [
            {
                "task": v.task,
                "model": v.model,
                "version": v.version,
                "stage": v.stage.value,
                "source": v.source,
            }
            for v in result.versions
        ],
        "variants": [_variant_body(variant, result, beaten) for variant in result.variants],
        "skipped": [{"name": s.name, "reason": s.reason} for s in result.skipped],
        "unchanged": list(result.unchanged),
        "doubts": list(result.doubts),
        "notes": list(result.said),
        "repaired": list(result.repaired),
        "reused": {
            "built": list(result.reused.built),
            "measured": list(result.reused.measured),
        },
        "seconds": round(seconds, 3),
    }


def _variant_body(
    variant: "Variant", result: "RegistrationResult", beaten: "Set[tuple[str, str, str]]"
) -> dict[str, Any]:
    """One variant with its profiles.

    Args:
        beaten: what another one beats: task, device kind and variant.
    """
    from variants.working_memory import counted_mib

    kinds = {kind.name: kind for kind in result.device_kinds}
    return {
        "task": variant.task,
        "name": variant.name,
        "model": variant.model,
        "version": variant.version,
        "runtime": variant.runtime,
        "precision": variant.precision.value,
        "accuracy": variant.accuracy,
        "accuracy_rows": variant.accuracy_rows,
        "note": variant.note,
        "size_bytes": variant.size_bytes,
        "artifact": variant.artifact,
        "profiles": [
            {
                "device_kind": p.device_kind,
                "memory_mib": counted_mib(p, kinds.get(p.device_kind)),
                "load_s": p.load_s,
                "dominated": (p.task, p.device_kind, p.variant) in beaten,
                "points": [asdict(point) for point in p.points],
            }
            for p in result.profiles
            if (p.task, p.variant) == variant.key
        ],
    }


def what_it_answers(task: str, model: str, version: int, stage: str, *, apart: bool = False) -> str:
    """Which queries a version may answer from now on, and how to change that.

    Args:
        apart: whether its vectors cannot be compared with those of other versions.
    """
    label, named = f"{model}-v{version}", f"{task} {model} {version}"
    match stage:
        case Stage.LIVE:
            return (
                f"{label} may answer any query of {task} from now on;"
                f" `modelless retire {named}` ends that, and `register --stage canary` would have"
                " let it answer only queries that name one of its variants"
            )
        case Stage.CANARY:
            only = f"{label} answers only queries that name it or one of its variants, until"
            if apart:
                return (
                    f"{only} `modelless promote {named}` makes it live, and what is live now a"
                    " canary: vectors of two versions cannot be compared"
                )
            return (
                f"{only} `modelless canary {named} --share 5%` gives it a share of the others or"
                f" `modelless promote {named}` makes it live"
            )
        case _:
            return f"{label} answers nothing until `modelless promote {named}`"


def result_table(
    result: "RegistrationResult",
    seconds: float,
    *,
    on_cluster: bool,
    new: bool = True,
    quick: bool = False,
    rows: "Path | None" = None,
) -> None:
    """Print it, as ``body_table`` does; on a cluster with a word on what is measured elsewhere."""
    body_table(result_body(result, seconds), new=new, quick=quick, rows=rows)
    if on_cluster and result.variants:
        typer.echo(
            "measured on this machine; where workers run on others, the control loop has it"
            " measured there: `modelless events list`"
        )


def body_table(
    body: Mapping[str, Any],
    *,
    new: bool = True,
    quick: bool = False,
    there: str = "",
    rows: "Path | None" = None,
) -> None:
    """Print what was registered, from its plain JSON values.

    Args:
        new: whether its versions are, and not only some of their variants.
        quick: whether few rows judged it, and little was measured.
        there: the URL of the gateway that did it; empty: it was done here.
        rows: a file with rows that can be asked with.
    """
    name, variants = body["task"], body["variants"]
    render.table(
        (
            "",
            "VARIANT",
            "DEVICE",
            ">ACCURACY",
            ">P95 MS",
            ">ROWS/S",
            ">MIB",
            ">LOAD MS",
            ">FILE MIB",
        ),
        [_row(name, variant, profile) for variant in variants for profile in variant["profiles"]],
        empty="Nothing was registered.",
        alike=("DEVICE",),
        spare=(">FILE MIB", ">LOAD MS", ">MIB"),
    )
    _say_what_else(body)
    if not body["versions"]:
        return
    # Of a task of several lengths each length has a version, which is one for its clients.
    versions = dict.fromkeys((v["model"], v["version"], v["stage"]) for v in body["versions"])
    stages = ", ".join(f"{model}-v{version} ({stage})" for model, version, stage in versions)
    _say(f"task {name}: {stages} in {body['seconds']:,.1f} s{_judged_by(variants)}")
    metric = body.get("metric", str(TOP1))  # an older gateway does not say
    if few := few_rows(variants, metric):
        _say(few)
    if quick:
        for task in dict.fromkeys(variant["task"] for variant in variants):
            _say(_rest_of(task, there))
    live = any(stage == Stage.LIVE for _, _, stage in versions)
    if rows is not None and live and (asking := asked_like(rows)):
        _say(f"ask it: `modelless query {name} {asking}`")
    apart = is_own_space(metric)
    for version in versions if new else ():
        _say(what_it_answers(name, *version, apart=apart))


def _say_what_else(body: Mapping[str, Any]) -> None:
    """What was left out, doubted, reused, found the same or repaired, a line for each; of what was
    left out for each reason."""
    left_out: dict[str, list[str]] = {}
    for skipped in body["skipped"]:
        left_out.setdefault(skipped["reason"], []).append(skipped["name"])
    for reason, names in left_out.items():
        _say(f"left out: {', '.join(names)}: {reason}")
    for variant in body["variants"]:
        if (note := variant.get("note", "")).endswith(LEFT_OUT):
            _say(f"{variant['name']}: {note.split('; ')[-1]}")
    for sentence in body["doubts"]:
        _say(f"doubtful: {sentence}")
    for sentence in body.get("notes", ()):
        _say(sentence)
    _say_reused(body.get("reused") or {})
    for label in body["unchanged"]:
        _say(f"unchanged: {label}")
    for sentence in body.get("repaired", ()):
        _say(f"damaged in the store: {sentence}")


def _judged_by(variants: Sequence[Mapping[str, Any]]) -> str:
    """``; accuracy on 1,437 rows, those for calibration left out``; nothing without variants."""
    if not variants:
        return ""
    judged = sorted({variant["accuracy_rows"] for variant in variants})
    span = " to ".join(f"{one:,}" for one in dict.fromkeys((judged[0], judged[-1])))
    return f"; accuracy on {span} rows, those for calibration left out"


def few_rows(variants: Sequence[Mapping[str, Any]], metric: str) -> str:
    """A sentence where the best variant was judged by so few rows that chance decides; else
    empty."""
    from profiler.evaluation.accuracy import interval_of
    from variants.metrics.metric import parse_metric
    from variants.metrics.scoring import is_of_rare_classes

    best = max(variants, key=lambda variant: variant["accuracy"], default=None)
    if best is None:
        return ""
    rare = filter(is_of_rare_classes, best.get("note", "").split("; "))
    if (of_classes := next(rare, None)) is not None:
        return (
            f"few rows of a class: of those that judged {best['name']}, {of_classes}, and what its"
            " accuracy is may be chance"
        )
    if not 0 < best["accuracy_rows"] < FEW_ROWS:
        return ""
    judged = f"few rows: {counted(best['accuracy_rows'], 'row')} judged {best['name']}"
    if not parse_metric(metric).counts_rows:
        return f"{judged}, and what its accuracy is may be chance"
    least, most = interval_of(best["accuracy"], best["accuracy_rows"])
    return (
        f"{judged}: it is right in {accuracy_text(best['accuracy'])} of them, and may be in"
        f" {percent(least)} to {percent(most)} % of others (95 % interval)"
    )


def asked_like(rows: "Path") -> str:
    """The options of a query like the rows of a file; of texts, which are tables, not one of them:
    it may be long."""
    if rows.suffix == ".npz":
        return f"--input {quote(str(rows))} --row 0"
    if rows.suffix not in TABLES:
        return ""
    with rows.open(encoding="utf-8-sig", errors="replace") as file:
        pairs = PAIR in file.readline()
    return "--text 'a text'" + (" --text-pair 'another one'" if pairs else "")


def _row(name: str, variant: Mapping[str, Any], profile: Mapping[str, Any]) -> tuple[str, ...]:
    """What is said of a variant on a device kind; ``name`` is what clients ask."""
    points = profile["points"]
    fastest = max(point["batch_size"] / point["p50_ms"] for point in points)
    bucketed = variant["task"] != name
    return (
        "" if profile.get("dominated") else "*",
        f"{variant['task']}/{variant['name']}" if bucketed else variant["name"],
        profile["device_kind"],
        render.percent(variant["accuracy"]),
        render.ms(points[0]["p95_ms"]),
        render.rate(1000 * fastest),
        render.mib(profile["memory_mib"]),
        f"{1000 * profile['load_s']:.1f}",
        figure(variant["size_bytes"] / 2**20),
    )


def _say(text: str) -> None:
    typer.echo(render.printable(text))


def _by_task(variants: "Sequence[Variant]") -> "dict[str, list[Variant]]":
    found: dict[str, list[Variant]] = {}
    for variant in variants:
        found.setdefault(variant.task, []).append(variant)
    return found


def _say_reused(reused: Mapping[str, Sized]) -> None:
    """How much was taken from the build cache, and how to do without."""
    built, measured = len(reused.get("built", ())), len(reused.get("measured", ()))
    if built or measured:
        typer.echo(
            f"from the build cache: {counted(built, 'variant')} built before, {measured} measured"
            " before; --fresh does all of it anew"
        )


def _rest_of(task: str, there: str) -> str:
    """What a quick registration has not done, and how to have it done."""
    where = f", both on the machine of {there}" if there else ""
    return (
        f"quick: `modelless variants judge {task} --eval FILE` judges by all rows, and"
        f" `modelless profile {task}` measures what was predicted{where}"
    )


def left_behind(absent: str, cache: "BuildCache | None", *, quick: bool) -> str:
    """What an interrupt leaves: nothing in the catalog, as ``absent`` says, and what is kept."""
    hint = "" if quick else "; --quick judges by fewer rows and measures less"
    if cache is None or not cache.has_kept:
        return f"{absent}{hint}"
    return (
        f"{absent}; what was built and measured is kept in {cache.root}, and the same command goes"
        f" on from there{hint}"
    )
