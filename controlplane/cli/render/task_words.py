"""A task in words: its defaults, its classes, and what becomes of pictures, texts and queries.

A task is as ``/v1/tasks`` has it.
"""

from collections.abc import Mapping
from typing import Any

from controlplane.cli.render.words import percent, usd_per_million
from planner.sentences import defaults_refuse
from variants.buckets import OPEN
from variants.figures import accuracy_floor, figure, some_of

MOST_NAMES = 10
"""Of classes or variants, in a sentence."""


def slo_words(slo: Mapping[str, Any]) -> str:
    """Defaults in one line: ``unless asked otherwise within 50 ms, accuracy any, ...``."""
    return (
        f"unless asked otherwise within {figure(slo['latency_ms'], 3)} ms, "
        f"accuracy {floor_words(slo['accuracy'])}, "
        f"cost {ceiling_words(slo['cost'])}, preferred is {slo['prefer']}"
    )


def floor_words(accuracy: float | None) -> str:
    return "any" if accuracy is None else f"at least {accuracy_floor(accuracy)}"


def ceiling_words(usd_per_1k: float | None) -> str:
    if usd_per_1k is None:
        return "any"
    return f"at most {usd_per_million(usd_per_1k)} USD per million queries"


def unanswered(task: Mapping[str, Any]) -> str:
    """Why queries that name neither a variant nor an accuracy are refused; else empty."""
    if "live_variants" not in task:  # the database is away
        return ""
    floor = (task.get("slo") or {}).get("accuracy")
    return defaults_refuse(task["live_variants"], task.get("best_accuracy"), floor)


def contradicted_words(row: Mapping[str, Any]) -> str:
    """Of which variants clients find something else than was measured; else empty."""
    names = row.get("contradicted", ())
    if not names:
        return ""
    return (
        f"clients say something else than was measured of {some_of(names, MOST_NAMES)}:"
        f" `modelless variants list {row['name']}`"
    )


def variants_words(row: Mapping[str, Any]) -> str:
    """How many there are, and how accurate an answer can be."""
    live, all_ = row["live_variants"], row["variants"]
    if not live:
        return f"{all_}, none of a live version"
    of_them = "" if live == all_ else f"{live} of them live, "
    return f"{all_}, {of_them}the best {percent(row['best_accuracy'])}"


def label_words(labels: list[str]) -> str:
    if not labels:
        return "its classes have no names"
    return (
        f"its only class is called {labels[0]}"
        if len(labels) == 1
        else f"its {len(labels):,} classes are called {some_of(labels, MOST_NAMES)}"
    )


def sharing_words(sharing: Mapping[str, float] | None) -> str:
    """What becomes of equal queries: ``share a run; answers are kept for 60 s, at most 64 MiB``."""
    if sharing is None:
        return "every query is run"
    if not sharing["ttl_s"]:
        return "share a run; no answer is kept"
    kept = f"{sharing['ttl_s']:,g} s, at most {sharing['memory_mib']:,g} MiB"
    return f"share a run; answers are kept for {kept}"


def image_words(image: Mapping[str, Any] | None) -> str:
    """What becomes of pictures: ``8 x 8, grey, (value / 255 - 0) / 0.0625``, or of those that keep
    their form ``any width x 48, grey, ...``."""
    if image is None:
        return "not taken"
    colours = "grey" if image["channels"] == 1 else "red, green and blue"
    width = "any width" if image["width"] == OPEN else image["width"]
    size = f"{width} x {image['height']}, {colours}"
    if image["mean"] is None:
        return f"{size}, values from 0 to 255"
    mean, std = (_numbers(image[name]) for name in ("mean", "std"))
    return f"{size}, (value / 255 - {mean}) / {std}"


def _numbers(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:g}"
    return f"[{', '.join(f'{value:g}' for value in values)}]"


def text_words(text: Mapping[str, Any] | None) -> str:
    """What becomes of texts: ``up to 256 tokens, as input_ids and attention_mask``."""
    if text is None:
        return "not taken"
    names = [text[role] for role in ("ids", "mask", "types") if text[role]]
    shown = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    others = text.get("others", ())
    tokenizers = ", ".join(one[:12] for one in (text["tokenizer"], *others))
    named = f"tokenizer{'s' if others else ''} {tokenizers}"
    what = "pairs of up" if text.get("pairs") else "up"
    return f"{what} to {text['tokens']} tokens, as {shown}; {named}"


def length_words(row: Mapping[str, Any]) -> str:
    """Which lengths rows may have, and which tasks answer."""
    bucket = row.get("bucket")
    if bucket:
        return f"rows of up to {bucket['length']} of {bucket['of']}"
    lengths = row["lengths"]
    pads = ", ".join(f"{one['input']} with {one['pad']:g}" for one in lengths["axes"])
    said = f"{pads} up to the shortest of {', '.join(lengths['buckets'].values())}"
    outputs = lengths.get("outputs", ())
    if following := [one["output"] for one in outputs if one.get("step", 1) == 1]:
        said += f"; as long as each row: {', '.join(following)}"
    for one in outputs:
        if one.get("step", 1) > 1:
            said += f"; one for each {one['step']} of a row: {one['output']}"
    return said
