"""Asking a query on the command line, against a real gateway on a free port."""

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controlplane.cli.asking.example_digit import THREE, is_example
from controlplane.cli.gateway_client import TIMEOUT_S
from tests.controlplane.cli.gateway import ANSWER, Gateway
from tests.controlplane.cli.shell import Shell
from variants.catalog.database import BUSY_TIMEOUT_S
from variants.errors import Alternative, Cold, SloInfeasible


def test_a_query_carries_the_slo_and_shows_the_answer(
    gateway: Gateway, shell: Shell, tmp_path: Path
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([list(range(64))]))

    ended = shell(
        "query", "digits", "--latency-ms", "50", "--accuracy", "0.95", "--prefer", "cost",
        "--input", str(path), url=gateway.url,
    )  # fmt: skip

    assert gateway.asked == [
        {
            "task": "digits",
            "slo": {"latency_ms": 50.0, "accuracy": 0.95, "prefer": "cost"},
            "inputs": [list(range(64))],
        }
    ]
    assert [line.split(maxsplit=1)[0] for line in ended.out.splitlines()] == [
        "label", "variant", "chosen", "worker", "batch", "queue,", "accuracy", "cost", "slo",
        "request",
    ]  # fmt: skip
    shown = " ".join(ended.out.split())
    assert "label 7 (0.9) variant mlp-v1-onnx-int8 of mlp-v1" in shown
    assert "chosen the cheapest that fits worker cpu-4-a batch 4" in shown
    assert re.search(
        r"0.250 ms, 2.50 ms accuracy 97.00 % cost 0.62 USD per million queries slo met yes "
        r"request [0-9a-f]{16}$",
        shown,
    )


@pytest.mark.parametrize("priority", [0, 7, 70_000], ids=["none", "own", "beyond the lowest"])
def test_a_priority_is_what_it_is_for_the_gateway(
    gateway: Gateway, shell: Shell, priority: int
) -> None:
    """0, which names none there, and numbers beyond the lowest were refused here."""
    shell("query", "digits", "--priority", str(priority), url=gateway.url)

    (asked,) = gateway.asked
    assert asked["priority"] == priority


@pytest.mark.parametrize("option", ["--latency-ms", "--cost"])
def test_a_need_without_end_is_refused_and_not_left_out(
    gateway: Gateway, shell: Shell, option: str
) -> None:
    """JSON has null for it, which is the task's default."""
    ended = shell("query", "digits", option, "inf", url=gateway.url)
    assert (ended.code, gateway.asked) == (2, [])
    assert "must be a finite number, not inf" in ended.err


def test_a_query_says_which_zone_answered_and_why(gateway: Gateway, shell: Shell) -> None:
    gateway.place = "in zone core, 80 ms away: zone edge has no room for it in time"
    ended = shell("query", "digits", url=gateway.url)
    assert f"answered {gateway.place}" in " ".join(ended.out.split())


def test_a_query_in_json_is_the_reply_itself_with_its_request_id(
    gateway: Gateway, shell: Shell
) -> None:
    ended = shell("query", "digits", "-o", "json", url=gateway.url)

    reply = ended.json()
    assert re.fullmatch("[0-9a-f]{16}", reply.pop("request_id"))
    assert (ended.code, reply) == (0, ANSWER)
    assert ended.err == "no --input: asking with a handwritten 3\n"
    assert gateway.asked == [{"task": "digits", "inputs": [list(THREE)]}]


def test_what_is_no_example_is_asked_with_zeros() -> None:
    pixels = {"name": "pixels", "dtype": "float32", "shape": [8, 8]}
    assert is_example("digits", [pixels])
    assert not is_example("churn", [pixels])
    assert not is_example("digits", [pixels, pixels])
    assert not is_example("digits", [{**pixels, "shape": [28, 28]}])


def test_a_row_of_an_npz_is_found_by_name_or_by_shape(
    gateway: Gateway, shell: Shell, tmp_path: Path
) -> None:
    rows = np.arange(3 * 64, dtype=np.float32).reshape(3, 64)
    np.savez(tmp_path / "named.npz", pixels=rows, labels=np.array([1, 2, 3]))
    np.savez(tmp_path / "other.npz", x=rows, y=np.array([1, 2, 3]))

    for name in ("named.npz", "other.npz"):
        shell("query", "digits", "-i", str(tmp_path / name), "--row", "2", url=gateway.url)

    assert [asked["inputs"] for asked in gateway.asked] == [[rows[2].tolist()]] * 2


def test_that_only_the_first_row_of_an_npz_is_asked_with_is_said(
    gateway: Gateway, shell: Shell, tmp_path: Path
) -> None:
    rows = np.arange(3 * 64, dtype=np.float32).reshape(3, 64)
    np.savez(tmp_path / "rows.npz", pixels=rows)
    np.savez(tmp_path / "row.npz", pixels=rows[:1])

    ended = shell("query", "digits", "-i", str(tmp_path / "rows.npz"), url=gateway.url)
    alone = shell("query", "digits", "-i", str(tmp_path / "row.npz"), url=gateway.url)

    assert [asked["inputs"] for asked in gateway.asked] == [[rows[0].tolist()]] * 2
    assert (ended.err, alone.err) == (
        "no --row: asking with the first of 3 rows; `modelless batch` answers all\n", "",
    )  # fmt: skip


def test_a_row_of_no_file_is_refused(gateway: Gateway, shell: Shell) -> None:
    ended = shell("query", "digits", "--row", "2", url=gateway.url)
    assert ended.code == 2
    assert ended.err == "error: --row picks a row of a file: name it by --input\n"


def test_a_single_row_may_stand_without_its_list(
    gateway: Gateway, shell: Shell, tmp_path: Path
) -> None:
    path = tmp_path / "row.json"
    path.write_text(json.dumps({"inputs": [1.0] * 64}))

    shell("query", "digits", "-i", str(path), url=gateway.url)

    assert gateway.asked[0]["inputs"] == [[1.0] * 64]


def test_a_command_waits_longer_than_a_write_for_the_database() -> None:
    assert TIMEOUT_S > BUSY_TIMEOUT_S


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros((3, 64)))
    return file.getvalue()


def damaged_npz() -> bytes:
    content = bytearray(npz(pixels=np.zeros((3, 64))))
    start = content.index(b"pixels.npy") + len(b"pixels.npy") + 20
    content[start : start + 8] = b"\xff" * 8
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "arguments", "error"),
    [
        ("none.json", None, (), "none.json cannot be read: No such file or directory"),
        ("broken.json", b"[1,", (), "broken.json is not JSON: "),
        ("rows.csv", b"a,b", (), "rows.csv is not JSON: rows are read from .json and .npz files"),
        ("text.json", b'"x"', (), "text.json holds no rows: a list of rows is needed"),
        ("short.json", b"[[1]]", ("--row", "1"), "short.json has no row 1; it has 1 row"),
        ("none.npz", None, (), "none.npz cannot be read: No such file or directory"),
        ("broken.npz", b"PK not really", (), "broken.npz cannot be read as .npz: "),
        ("npy.npz", npy(), (), "npy.npz cannot be read as .npz: it is a single array"),
        ("damaged.npz", damaged_npz(), (), "damaged.npz cannot be read as .npz: "),
        ("text.npz", npz(pixels=["a"]), (), "text.npz has no array 'pixels'; it has: none of"),
        ("scalar.npz", npz(pixels=1.0), (), "scalar.npz has no array 'pixels'; it has: none of"),
        ("complex.npz", npz(pixels=[1j]), (), "complex.npz has no array 'pixels'; it has: none"),
    ],
)
def test_a_wrong_input_file_is_one_sentence(
    gateway: Gateway,
    shell: Shell,
    tmp_path: Path,
    name: str,
    content: bytes | None,
    arguments: tuple[str, ...],
    error: str,
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)

    ended = shell("query", "digits", "-i", str(tmp_path / name), *arguments, url=gateway.url)

    assert (ended.code, ended.out, gateway.asked) == (2, "", [])
    assert ended.err.startswith(f"error: {tmp_path / name}"[: -len(name)] + error)


def test_a_pickle_in_an_npz_is_never_loaded(gateway: Gateway, shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "pickle.npz"
    np.savez(path, pixels=np.array([{"a": 1}], dtype=object))

    assert shell("query", "digits", "-i", str(path), url=gateway.url).code == 2


def test_an_infeasible_slo_shows_what_comes_closest(gateway: Gateway, shell: Shell) -> None:
    gateway.answer = SloInfeasible(
        "no variant of digits answers within 1 ms",
        alternatives=[
            Alternative(
                variant="linear-v1-onnx-fp32",
                accuracy=0.9,
                latency_ms=1.2,
                cost_usd_per_1k=0.0005,
                reason="p95 1.2 ms > 1 ms",
            )
        ],
    )

    ended = shell("query", "digits", url=gateway.url)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines()[1:] == [
        "error: no variant of digits answers within 1 ms",
        "  the closest are",
        "  linear-v1-onnx-fp32: accuracy 90.00 %, 1.20 ms, 0.50 USD per million"
        " (p95 1.2 ms > 1 ms)",
        "  `modelless explain` with the same needs says of each variant why",
    ]


def test_an_infeasible_slo_that_nothing_comes_close_to_says_why(
    gateway: Gateway, shell: Shell
) -> None:
    gateway.answer = SloInfeasible(
        "no variant of digits can meet the SLO (1,000 ms)",
        reasons={f"v{place}": "needs 2629 MiB, more than a cpu-2 has" for place in range(7)},
    )

    ended = shell("query", "digits", url=gateway.url)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines()[2:] == [
        *(f"  v{place}: needs 2629 MiB, more than a cpu-2 has" for place in range(5)),
        "  and 2 more; `modelless explain` with the same needs says of each variant why",
    ]


def test_a_cold_variant_says_when_to_try_again(gateway: Gateway, shell: Shell) -> None:
    gateway.answer = Cold("the variant is being loaded", retry_after_s=1.5)

    ended = shell("query", "digits", url=gateway.url)

    assert (ended.code, ended.err.splitlines()[-1]) == (1, "  try again in 1.5 s")
