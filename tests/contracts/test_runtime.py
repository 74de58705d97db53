"""What every runtime keeps, run over all that need no accelerator; ``tests/gpu`` has the others.

One network for all, so that each can be held against what numpy makes of it.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.contracts import alone
from tests.contracts.contenders import KINDS, Contender, Workshop
from tests.contracts.network import Array, images
from tests.workers.builders import echo_spec
from variants.errors import RuntimeFailed
from workers.runtimes.protocol import Runtime
from workers.runtimes.registry import RUNTIMES, make_runtime

pytestmark = pytest.mark.slow

GROWTH_MIB = 1.0
"""Allowed over 12 rounds, which would leave 2 MiB if weights alone were leaked."""
GROWING = {
    "onnx": ["onnx-fp32", "onnx-fp16", "onnx-int8"],
    "openvino": ["openvino-fp32", "openvino-int8"],
    "torch": ["torch-fp32", "torch-bf16", "torch-fp32-compiled"],
}
"""The kinds of each runtime that are loaded again and again; of one not named here, all."""
THREADED = ["onnx-fp32", "openvino-fp32", "torch-fp32", "torch-fp32-compiled"]
"""Kinds whose threads are counted; of a runtime not named here, all. ``echo`` computes nothing."""
for _kind in KINDS:
    if (_runtime := _kind.partition("-")[0]) not in ("onnx", "openvino", "torch"):
        GROWING.setdefault(_runtime, []).append(_kind)
        THREADED += [_kind] if _runtime != "echo" else []


@pytest.fixture(scope="session")
def workshop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workshop]:
    made = Workshop(tmp_path_factory.mktemp("contenders"))
    wanted = {kind for kind in KINDS for item in request.session.items if kind in item.name}
    with made.compiling_ahead(wanted):
        yield made


@pytest.fixture(params=KINDS)
def contender(request: pytest.FixtureRequest, workshop: Workshop) -> Contender:
    return workshop.contender(request.param)


@pytest.fixture(params=[kind for kind in KINDS if kind != "echo"])
def stored(request: pytest.FixtureRequest, workshop: Workshop) -> Contender:
    """One that is made of an artifact."""
    return workshop.contender(request.param)


@pytest.fixture
def runtime(contender: Contender) -> Iterator[Runtime]:
    made = make_runtime(contender.spec, 1)
    made.load()
    yield made
    made.close()


# -- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 32])
def test_answers_are_those_of_the_network(
    runtime: Runtime, contender: Contender, count: int
) -> None:
    rows = images(count)
    (found,) = runtime.run([rows])
    assert (str(found.dtype), found.shape) == ("float32", (count, 10))
    contender.check(found, rows)


def test_a_row_of_a_batch_is_answered_as_it_is_alone(
    runtime: Runtime, contender: Contender
) -> None:
    """As nearly as two kernels for two sizes agree: for the last bits of the precision."""
    rows = images(5)
    (together,) = runtime.run([rows])
    alone = np.concatenate([runtime.run([rows[i : i + 1]])[0] for i in range(5)])
    allowed = contender.tolerance * float(np.abs(together).max())
    np.testing.assert_allclose(together, alone, atol=allowed, rtol=0)


def test_the_same_batch_is_answered_the_same_after_others(
    runtime: Runtime, contender: Contender
) -> None:
    rows = images(3)
    (first,) = runtime.run([rows])
    for count in (1, 17, 2):
        runtime.run([images(count, seed=count)])
    np.testing.assert_array_equal(runtime.run([rows])[0], first)


def test_an_answer_is_not_written_over_by_the_next_run(
    runtime: Runtime, contender: Contender
) -> None:
    rows, others = images(4), images(4, seed=2)
    (answer,) = runtime.run([rows])
    kept = answer.copy()
    runtime.run([others])
    np.testing.assert_array_equal(answer, kept)
    answer[:] = -1  # and belongs to who asked
    np.testing.assert_array_equal(runtime.run([rows])[0], kept)


# -- inputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["read-only", "every other row", "unaligned"])
def test_arrays_are_taken_as_they_come_from_the_wire(
    runtime: Runtime, contender: Contender, form: str
) -> None:
    rows = images(4)
    given = _in_form(rows, form)
    (found,) = runtime.run([given])
    contender.check(found, rows)
    np.testing.assert_array_equal(given, rows)


@pytest.mark.parametrize(
    "wrong",
    [
        [np.zeros((1, 3, 12, 13), dtype=np.float32)],
        [np.zeros((1, 432), dtype=np.float32)],
        [np.zeros((1, 3, 12, 12), dtype=np.int64)],
        [np.zeros((1, 3, 12, 12), dtype=np.float64)],
    ],
    ids=["shape", "rank", "kind", "width"],
)
def test_wrong_inputs_fail_and_the_next_batch_works(
    runtime: Runtime, contender: Contender, wrong: list[Array]
) -> None:
    with pytest.raises(RuntimeFailed, match="task/v"):
        runtime.run(wrong)
    contender.check(runtime.run([images(2)])[0], images(2))


# -- loading --------------------------------------------------------------------------------------


def test_closed_it_fails_and_loaded_again_it_works(runtime: Runtime, contender: Contender) -> None:
    (before,) = runtime.run([images(1)])
    runtime.close()
    runtime.close()
    with pytest.raises(RuntimeFailed, match="task/v is not loaded"):
        runtime.run([images(1)])
    runtime.load()
    np.testing.assert_array_equal(runtime.run([images(1)])[0], before)


def test_two_of_a_variant_run_side_by_side(runtime: Runtime, contender: Contender) -> None:
    other = make_runtime(contender.spec, 1)
    other.load()
    (answer,) = runtime.run([images(2)])
    other.close()
    np.testing.assert_array_equal(runtime.run([images(2)])[0], answer)


def test_only_loading_looks_at_the_artifact(stored: Contender, tmp_path: Path) -> None:
    nowhere, rubbish = tmp_path / "nothing", tmp_path / "rubbish"
    rubbish.write_bytes(b"not a model" * 100)
    for path in (nowhere, rubbish):
        runtime = make_runtime(replace(stored.spec, path=str(path)), 1)
        with pytest.raises(RuntimeFailed, match="task/v cannot be loaded: ") as failure:
            runtime.load()
        assert "\n" not in failure.value.message
        with pytest.raises(RuntimeFailed, match="task/v is not loaded"):
            runtime.run([images(1)])


def test_a_signature_that_is_not_the_model_s_is_refused(stored: Contender) -> None:
    (output,) = stored.spec.outputs
    for wrong in (replace(output, name="labels"), replace(output, dtype="int64")):
        runtime = make_runtime(replace(stored.spec, outputs=(wrong,)), 1)
        with pytest.raises(RuntimeFailed, match="task/v"):
            runtime.load()


def test_an_unknown_runtime_is_named() -> None:
    with pytest.raises(
        RuntimeFailed, match=f"runtime 'tea' is unknown; there are: {', '.join(sorted(RUNTIMES))}"
    ):
        make_runtime(replace(echo_spec(), runtime="tea"), 1)


# -- what it takes --------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", GROWING.values(), ids=GROWING)
def test_loading_again_and_again_takes_no_more_memory(workshop: Workshop, kinds: list[str]) -> None:
    """Resident memory after 12 rounds, each variant of a back end in turn, after 10 to warm up."""
    specs = [workshop.contender(kind).spec for kind in kinds]
    grown = dict(zip(kinds, alone.ask("rounds", specs, 1), strict=True))
    assert {kind: mib for kind, mib in grown.items() if mib > GROWTH_MIB} == {}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two threads need two processors")
@pytest.mark.parametrize("kind", THREADED)
def test_a_variant_takes_as_many_threads_as_it_says(workshop: Workshop, kind: str) -> None:
    """The one that runs a batch computes too, so a second one is the only one that is added."""
    spec = workshop.contender(kind).spec
    one, three = (
        replace(spec, options=(*spec.options, ("threads", count))) for count in ("1", "3")
    )
    of_one, of_two, of_at_most_two = alone.ask("threads", [one, spec, three], 2)
    assert (of_two, of_at_most_two) == (of_one + 1, of_one + 1)


def _in_form(rows: Array, form: str) -> Array:
    if form == "every other row":
        return np.repeat(rows, 2, axis=0)[::2]
    if form == "unaligned":
        shifted = np.frombuffer(b"\0" + rows.tobytes(), dtype=np.uint8)[1:].copy()
        padded = np.empty(len(shifted) + 1, dtype=np.uint8)
        padded[1:] = shifted
        return padded[1:].view(np.float32).reshape(rows.shape)
    rows = rows.copy()
    rows.flags.writeable = False
    return rows
