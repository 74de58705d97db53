"""What every runtime keeps, kept by those that run on a GPU: the cases of ``tests/contracts``."""

import inspect

import pytest

from tests.contracts import test_runtime as contract
from tests.contracts.contenders import Contender, Workshop
from tests.gpu.machine import KINDS, NEEDS_GPU

pytestmark = NEEDS_GPU

TORCH_KINDS = ("torch-fp32-cuda", "torch-bf16-cuda", "torch-fp16-cuda", "torch-fp16-compiled-cuda")


@pytest.fixture(params=(*KINDS, *TORCH_KINDS))
def contender(request: pytest.FixtureRequest, workshop: Workshop) -> Contender:
    return workshop.contender(request.param)


@pytest.fixture
def stored(contender: Contender) -> Contender:
    return contender


globals().update(
    {
        name: case
        for name, case in vars(contract).items()
        if name.startswith("test_")
        and {"contender", "stored"} & set(inspect.signature(case).parameters)
    }
)
workshop, runtime = contract.workshop, contract.runtime
