"""What PyTorch's exporter writes: the digits family."""

import numpy as np
import pytest
import torch

from tests.machine_cache import digits_folder
from tests.variants.builders.compression.nets import digits, outputs
from variants.builders.compression.channel_dependencies import trace
from variants.builders.compression.graph import read
from variants.builders.compression.surgery import separable
from variants.builders.compression.trainable import TrainableGraph

HIDDEN = {
    "linear-pooled": [],
    "linear": [],
    "mlp-small": [48, 128],
    "mlp": [384, 640],
    "cnn-small": [12, 24, 32],
    "cnn": [16, 24, 32, 48, 96],
    "cnn-large": [16, 32, 64, 64, 96],
}


@pytest.mark.parametrize("name", HIDDEN)
def test_the_family_can_be_trained_and_its_hidden_channels_can_leave(name: str) -> None:
    model = read(digits_folder() / name / "1" / "model.onnx")
    given = {"pixels": digits("evaluation")[0]["pixels"][:3]}

    with torch.no_grad():
        found = TrainableGraph(model)({"pixels": torch.tensor(given["pixels"])})["scores"]

    np.testing.assert_allclose(found.numpy(), outputs(model, given), atol=1e-5)
    assert sorted(len(group) for group in trace(separable(model)).groups) == HIDDEN[name]
