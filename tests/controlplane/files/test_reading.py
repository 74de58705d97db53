"""What planning files mean, as the values that planners take."""

import re
from array import array
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlplane.files.catalog import catalog_snapshot, read_catalog, read_devices
from controlplane.files.demand import read_demand, read_rates, read_trace
from controlplane.files.fields import CEILING, FLOOR, SHARE, Number, Wrong
from controlplane.files.table import BLOCK_BYTES, BadFile
from planner.energy import EnergyCurve
from planner.latency_curve import Curve
from planner.selection.snapshot import build_snapshot
from planner.simulation.trace import Trace
from planner.solver.problem import AvailableKind, Offer
from planner.types import Demand
from tests.controlplane.files.builders import CATALOG, DEMAND, QUERIES, RATES, write_all
from variants.types import DeviceKindName, ModelName, TaskName, VariantName

KINDS = (
    AvailableKind(name=DeviceKindName("cpu-4"), count=4, memory_mib=1_000.0, usd_per_hour=0.1),
    AvailableKind(name=DeviceKindName("gpu"), count=2, memory_mib=inf, usd_per_hour=0.5),
)
DIGITS = TaskName("digits")


def offer(model: str, variant: str, accuracy: float, kind: str, **other: float) -> Offer:
    return Offer(
        task=DIGITS,
        model=ModelName(model),
        variant=VariantName(variant),
        accuracy=accuracy,
        device_kind=DeviceKindName(kind),
        curve=Curve([(1, 1.0)]),
        memory_mib=other.get("memory_mib", 0.0),
        load_s=other.get("load_s", 0.0),
    )


OFFERS = [
    (offer("cnn", "cnn-fp32", 0.98, "cpu-4", memory_mib=100.0, load_s=0.5), ((1, 10.0), (8, 40.0))),
    (offer("mlp", "mlp-int8", 0.9, "cpu-4"), ((1, 2.0),)),
    (offer("mlp", "mlp-int8", 0.9, "gpu"), ((1, 1.0), (16, 4.0))),
]


def offers_as_seen(offers: tuple[Offer, ...]) -> list[tuple[object, ...]]:
    """Curves are compared by their points."""
    return [(*seen(o), o.curve.points) for o in offers]


def seen(o: Offer) -> tuple[object, ...]:
    return (o.task, o.model, o.variant, o.accuracy, o.device_kind, o.memory_mib, o.load_s)


def test_devices_with_blank_memory_have_no_limit(tmp_path: Path) -> None:
    assert read_devices(write_all(tmp_path)["devices"]) == KINDS


def test_a_catalog_is_one_offer_for_each_variant_and_kind(tmp_path: Path) -> None:
    found = read_catalog(write_all(tmp_path)["catalog"], KINDS)

    assert offers_as_seen(found) == [(*seen(offer), points) for offer, points in OFFERS]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: text.rstrip(b"\n"),
        lambda text: text.replace(b"\n", b"\n\n") + b"\n",
        lambda text: b"\n\n" + text,
        lambda text: text.replace(b",", b", "),
        lambda text: text.replace(b"digits", b'"digits"'),
        lambda text: text.replace(b"\r\n", b"\n").replace(b",8,", b",8.0,"),
        lambda text: b"\n".join(b",".join(line.split(b",")[::-1]) for line in text.splitlines()),
    ],
    ids=[
        "byte order mark", "CRLF", "no line feed at the end", "blank lines", "blank lines above",
        "blanks behind commas", "quotes", "8.0 rows", "columns the other way round",
    ],
)  # fmt: skip
def test_what_programs_write_differently_is_the_same_catalog(
    change: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    paths = write_all(tmp_path)
    expected = offers_as_seen(read_catalog(paths["catalog"], KINDS))
    paths["catalog"].write_bytes(change(CATALOG.encode()))

    assert offers_as_seen(read_catalog(paths["catalog"], KINDS)) == expected


def test_devices_may_say_how_much_variants_slow_one_another_down(tmp_path: Path) -> None:
    rows = ["cpu-4,0.1,4,1000,0.25", "gpu,0.5,2,,"]
    text = "\n".join(["device_kind,usd_per_hour,count,memory_mib,interference", *rows])

    found = read_devices(write_all(tmp_path, devices=text)["devices"])

    assert found == (replace(KINDS[0], interference=0.25), KINDS[1])


def test_devices_may_say_what_they_draw_and_what_that_emits(tmp_path: Path) -> None:
    day = " ".join(str(hour) for hour in range(24))
    rows = [f"cpu-4,4,1000,0.1,12.5,{day}", "gpu,2,,0.5,,300"]
    header = "device_kind,count,memory_mib,usd_per_hour,idle_w,carbon_g_per_kwh"

    found = read_devices(write_all(tmp_path, devices="\n".join([header, *rows]))["devices"])

    assert found == (
        replace(KINDS[0], idle_w=12.5, carbon_g_per_kwh=tuple(map(float, range(24)))),
        replace(KINDS[1], carbon_g_per_kwh=(300.0,)),
    )


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        ("-1,", "column idle_w: '-1' is not at least 0"),
        (",1 2", "column carbon_g_per_kwh: '1 2' holds 2 numbers, not 1 or 24"),
        (",x", "column carbon_g_per_kwh: 'x' is not a number"),
    ],
)
def test_a_draw_that_cannot_be_is_named(cells: str, what: str, tmp_path: Path) -> None:
    header = "device_kind,count,memory_mib,usd_per_hour,idle_w,carbon_g_per_kwh"
    path = write_all(tmp_path, devices=f"{header}\ncpu-4,4,,0.1,{cells}\n")["devices"]
    with pytest.raises(BadFile, match=re.escape(what)):
        read_devices(path)


def test_joules_that_are_blank_are_not_known(tmp_path: Path) -> None:
    """They are linear between two that were measured, and unknown where an end was not."""
    joules = ("energy_j", "2", "8", "1", "", "4")
    lines = zip(CATALOG.splitlines(), joules, strict=True)
    text = "".join(f"{line},{each}\n" for line, each in lines)

    offers = read_catalog(write_all(tmp_path, catalog=text)["catalog"], KINDS)

    assert [offer.energy for offer in offers] == [
        EnergyCurve([(1, 2.0), (8, 8.0)]),
        EnergyCurve([(1, 1.0)]),
        None,
    ]
    [task] = build_snapshot(catalog_snapshot(offers, KINDS), ()).tasks.values()
    by_energy = [(c.variant, c.device_kind, c.footprint) for c in task.by_energy]
    assert by_energy == [
        ("mlp-int8", "cpu-4", 1.0),
        ("cnn-fp32", "cpu-4", 2.0),
        ("mlp-int8", "gpu", inf),
    ]


def test_names_of_other_catalogs_are_taken(tmp_path: Path) -> None:
    text = CATALOG.replace("cnn-fp32", "vit_base.augreg/in21k@384").replace("digits", "Image:Net+1")
    offers = read_catalog(write_all(tmp_path, catalog=text)["catalog"], KINDS)

    assert (offers[0].task, offers[0].variant) == ("Image:Net+1", "vit_base.augreg/in21k@384")


def test_a_blank_floor_is_none(tmp_path: Path) -> None:
    assert read_demand(write_all(tmp_path)["demand"], ["digits"]) == (
        Demand(task=DIGITS, latency_ms=100.0, accuracy=None, qps=100.0),
        Demand(task=DIGITS, latency_ms=200.0, accuracy=0.95, qps=20.0),
    )


def test_a_trace_of_queries_is_its_columns(tmp_path: Path) -> None:
    trace = read_trace(write_all(tmp_path)["trace"], ["letters", "digits"], seed=0)

    assert trace.tasks == ("digits", "letters")
    assert trace.arrival_s == array("d", [0.5, 1.25])
    assert trace.task == array("i", [0, 0])
    assert trace.latency_ms == array("d", [100, 200])
    assert trace.min_accuracy == array("d", [-inf, 0.95])
    assert trace.max_cost == array("d", [inf, 0.01])


def test_queries_are_sorted_by_arrival_and_keep_their_order_within_a_moment(
    tmp_path: Path,
) -> None:
    header = QUERIES.split("\n", maxsplit=1)[0]
    rows = ["3,digits,30,,", "1,digits,10,,", "3,digits,31,,", "2,digits,20,,"]
    path = write_all(tmp_path, trace="\n".join([header, *rows]))["trace"]

    trace = read_trace(path, ["digits"], seed=0)

    assert trace.arrival_s == array("d", [1, 2, 3, 3])
    assert trace.latency_ms == array("d", [10, 20, 30, 31])


def test_rates_may_be_kept_as_rates_however_many_they_are(tmp_path: Path) -> None:
    text = RATES + "0,digits,3000000,200,\n"
    path = write_all(tmp_path, trace=text)["trace"]
    rates = read_rates(path, ["letters", "digits"])

    assert rates.tasks == ("digits", "letters")
    assert rates.second.tolist() == [0, 0, 1]
    assert rates.requests.tolist() == [100.0, 3e6, 50.0]
    assert rates.latency_ms.tolist() == [100.0, 200.0, 100.0]
    assert rates.min_accuracy.tolist() == [-inf, -inf, 0.9]
    assert rates.duration_s == 2


def test_rates_are_drawn_as_poisson_counts_within_their_seconds(tmp_path: Path) -> None:
    header = RATES.split("\n", maxsplit=1)[0]
    rows = [f"{second},digits,{100 if second % 2 else 10},100," for second in range(1_000)]
    path = write_all(tmp_path, trace="\n".join([header, *rows]))["trace"]

    arrival = np.array(read_trace(path, ["digits"], seed=1).arrival_s)

    counts = np.bincount(arrival.astype(int), minlength=1_000)
    for part, rate in ((counts[::2], 10), (counts[1::2], 100)):
        # Five standard deviations of a mean and of a variance over 500 seconds; the seed is fixed.
        assert abs(part.mean() - rate) < 5 * (rate / 500) ** 0.5
        assert abs(part.var() - rate) < 5 * rate * (2 / 500) ** 0.5
    assert abs((arrival % 1).mean() - 0.5) < 5 * (1 / 12 / len(arrival)) ** 0.5
    assert (np.diff(arrival) >= 0).all()


def test_the_same_seed_draws_the_same_queries_and_another_one_others(tmp_path: Path) -> None:
    path = write_all(tmp_path, trace=RATES)["trace"]

    first, again, other = (read_trace(path, ["digits"], seed=seed) for seed in (7, 7, 8))

    assert first == again
    assert first != other


def test_fractions_of_a_request_count(tmp_path: Path) -> None:
    header = RATES.split("\n", maxsplit=1)[0]
    rows = [f"{second},digits,0.25,100," for second in range(10_000)]
    path = write_all(tmp_path, trace="\n".join([header, *rows]))["trace"]

    assert abs(len(read_trace(path, ["digits"], seed=0)) - 2_500) < 5 * 2_500**0.5


def test_a_file_longer_than_a_block_loses_no_line(tmp_path: Path) -> None:
    header = DEMAND.split("\n", maxsplit=1)[0]
    count = BLOCK_BYTES // 12
    rows = "".join(f"digits,{i},9,\n" for i in range(count))
    path = write_all(tmp_path, demand=f"{header}\n{rows}")["demand"]

    assert path.stat().st_size > BLOCK_BYTES
    assert [one.qps for one in read_demand(path, ["digits"])] == list(range(count))


def test_an_error_knows_where_it_is(tmp_path: Path) -> None:
    path = write_all(tmp_path, demand=DEMAND + "digits,x,1,\n")["demand"]

    with pytest.raises(BadFile) as caught:
        read_demand(path, ["digits"])

    error = caught.value
    assert (error.file, error.line, error.column) == (str(path), 4, "qps")


# -- production's nouns -------------------------------------------------------------------------


def test_the_snapshot_is_what_selection_reads(tmp_path: Path) -> None:
    offers = read_catalog(write_all(tmp_path)["catalog"], KINDS)

    view = build_snapshot(catalog_snapshot(offers, KINDS), ()).tasks[DIGITS]

    # Ascending by reservation price; latencies are exact, without the margin of a measured one.
    assert [
        (c.variant, c.device_kind, c.accuracy, c.table.ms[1], c.memory_mib, c.load_ms)
        for c in view.by_cost
    ] == [
        ("mlp-int8", "cpu-4", 0.9, 2.0, 0.0, 0.0),
        ("mlp-int8", "gpu", 0.9, 1.0, 0.0, 0.0),
        ("cnn-fp32", "cpu-4", 0.98, 10.0, 100.0, 500.0),
    ]
    assert not view.excluded


# -- fields -------------------------------------------------------------------------------------

TEXTS = st.one_of(
    st.sampled_from(["", "0", "1", "-0", "0.5", "1e0", "inf", "-inf", "nan", "1e999", "1_0", "x"]),
    st.floats().map(str),
    st.text(max_size=4),
)
FIELDS = (SHARE, FLOOR, CEILING, Number(least=1, most=8, whole=True), Number(most=9, blank=0.0))


@given(st.sampled_from(FIELDS), st.lists(TEXTS, min_size=1, max_size=5))
def test_a_column_is_right_when_each_of_its_texts_is(field: Number, texts: list[str]) -> None:
    """The fast way and the one that explains agree."""

    def one() -> list[float] | None:
        try:
            return [field.one(text) for text in texts]
        except Wrong:
            return None

    def many() -> list[float] | None:
        try:
            return [float(value) for value in field.many(texts)]
        except ValueError:
            return None

    assert many() == one()


# -- any bytes ----------------------------------------------------------------------------------

EDITS = st.lists(
    st.tuples(st.integers(0, len(QUERIES) - 1), st.sampled_from(b'\n\r,"-0159. enif\xff\0x')),
    max_size=6,
)


@given(EDITS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_spoilt_trace_is_read_or_refused_in_one_sentence(
    tmp_path: Path, edits: list[tuple[int, int]]
) -> None:
    data = bytearray(QUERIES.encode())
    for at, byte in edits:
        data[at] = byte
    found = read(tmp_path, bytes(data))

    if isinstance(found, str):
        assert found.startswith(f"{tmp_path}/trace.csv")
        assert found.isprintable()
    else:
        assert 1 <= len(found) <= 3
        assert all(0 <= at < inf for at in found.arrival_s)
        assert all(0 < ms < inf for ms in found.latency_ms)


@given(EDITS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_quotes_around_fields_change_nothing(tmp_path: Path, edits: list[tuple[int, int]]) -> None:
    """The fast way for plain blocks and the way of CSV agree, on what they take and refuse."""
    text = bytearray(QUERIES.encode())
    for at, byte in edits:
        text[at] = byte if byte not in b'"\xff\0\r \n' else text[at]
    lines = text.decode().splitlines()
    quoted = "\n".join(",".join(f'"{field}"' for field in line.split(",")) for line in lines)

    assert read(tmp_path, quoted.encode()) == read(tmp_path, "\n".join(lines).encode())


def read(folder: Path, content: bytes) -> Trace | str:
    """The trace, or the sentence that refuses it."""
    path = folder / "trace.csv"
    path.write_bytes(content)
    try:
        return read_trace(path, ["digits"], seed=0)
    except BadFile as error:
        return error.message
