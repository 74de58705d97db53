"""Workers and outputs of any rank, as regressors and encoders give them."""

from tests.workers.builders import ask, echo_spec, row, running
from tests.workers.execution.asking import CONTROL_S, Ill, ask_all
from variants.types import TensorSpec
from workers.types import ReplyCode, WorkerConfig

NUMBER = TensorSpec(name="number", dtype="float32", shape=())
GRID = TensorSpec(name="grid", dtype="float64", shape=(2, 2))
SPEC = echo_spec(outputs=(NUMBER, GRID))


async def test_each_query_gets_its_own_rows_of_every_output(worker: WorkerConfig) -> None:
    async with running(worker) as (_, connection):
        await connection.load(SPEC, CONTROL_S)
        replies = await ask_all(connection, SPEC, [1, 2, 3])
    for value, reply in zip((1, 2, 3), replies, strict=True):
        number, grid = reply.outputs
        assert (str(number.dtype), number.tolist()) == ("float32", [value])
        assert (str(grid.dtype), grid.shape) == ("float64", (1, 2, 2))
        assert grid[0, 0, 0] == value


async def test_a_regressor_without_finite_numbers_any_more_goes_into_quarantine(
    worker: WorkerConfig,
) -> None:
    async with running(worker) as (host, connection):
        await connection.load(SPEC, CONTROL_S)
        assert (await ask(connection, SPEC, row(1))).code is ReplyCode.OK
        assert host._executor is not None
        (loaded,) = host._executor.replicas.values()
        assert loaded.runtime is not None
        loaded.runtime = Ill(loaded.runtime)  # type: ignore[assignment]
        codes = [(await ask(connection, SPEC, row(value))).code for value in (2, 3, 4)]
    assert codes == [ReplyCode.FAILED, ReplyCode.FAILED, ReplyCode.QUARANTINED]
