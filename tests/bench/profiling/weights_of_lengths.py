"""What several lengths of one model take in memory and in time, by how their weights are held.

``python -m tests.bench.profiling.weights_of_lengths`` makes an encoder of 53 MiB and loads it for
16, 64 and 256 tokens, each way in a process of its own: a session for each length; the same with
their initializers given by ``SessionOptions.add_initializer``, with and without ONNX Runtime's own
packing of weights; and one session whose axis is open. All use the arena of a worker. It prints the
memory that is there more than before (PSS) once all are loaded and once batches of 1 and 8 rows
have run, and the processor time of these.
"""

import argparse
import ctypes
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from variants.checks.open_axis import fix_axis
from workers.runtimes.sharing.arena import ARENA

WIDTH, HEADS, LAYERS, VOCABULARY = 384, 6, 6, 8_000
LENGTHS, ROWS = (16, 64, 256), (1, 8)
RUNS = 6
WAYS = ("apart", "initializers", "initializers unpacked", "open")
LEAST_BYTES = 1_024
"""Of an initializer that is shared."""


def make(path: Path) -> None:
    """Write the encoder, which gives nine scores for each token."""
    import torch
    from torch import nn

    class Encoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(512, WIDTH)
            layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
            self.head = nn.Linear(WIDTH, 9)
            for weights in self.parameters():  # layers are copies, whose weights would be one
                nn.init.normal_(weights, std=0.02)

        def forward(self, ids: Any) -> Any:
            places = self.places(torch.arange(ids.shape[1]))
            return self.head(self.layers(self.tokens(ids) + places[None]))

    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", max=512)}
    torch.onnx.export(
        Encoder().eval(), (torch.ones(2, 5, dtype=torch.int64),), path, dynamo=True,
        input_names=["ids"], output_names=["tags"], external_data=False,
        dynamic_shapes={"ids": sizes}, verbose=False,
    )  # fmt: skip


def pss_mib() -> float:
    """Of this process, without what the allocator keeps for later."""
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1_024


def sessions(folder: Path, way: str) -> list[Any]:
    """A session for each length."""
    import onnxruntime as ort

    def opened(path: Path, prepared: Callable[[Any], None] = lambda _: None) -> Any:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.enable_mem_pattern = False
        options.log_severity_level = 3
        ARENA.prepare(ort, options)
        prepared(options)
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    if way == "open":
        return [opened(folder / "open.onnx")] * len(LENGTHS)
    fixed = [folder / f"{length}.onnx" for length in LENGTHS]
    if way == "apart":
        return [opened(each) for each in fixed]
    shared = initializers(folder / "open.onnx")

    def prepared(options: Any) -> None:
        if way.endswith("unpacked"):
            options.add_session_config_entry("session.disable_prepacking", "1")
        for name, value in shared.items():
            options.add_initializer(name, value)

    found = [opened(each, prepared) for each in fixed]
    held.extend(shared.values())
    return found


held: list[Any] = []
"""Initializers that sessions refer to."""


def initializers(path: Path) -> dict[str, Any]:
    import onnx
    import onnxruntime as ort
    from onnx import numpy_helper

    model = onnx.load(path)
    return {
        tensor.name: ort.OrtValue.ortvalue_from_numpy(numpy_helper.to_array(tensor))
        for tensor in model.graph.initializer
        if len(tensor.raw_data) > LEAST_BYTES
    }


def measure(folder: Path, way: str) -> None:
    """Print a line of what one way takes."""
    import onnx  # noqa: F401 - its own memory is not that of a way
    import onnxruntime  # noqa: F401

    ARENA.share()
    before = pss_mib()
    loaded = sessions(folder, way)
    told = [f"loaded {pss_mib() - before:.0f} MiB"]
    times = []
    for length, session in zip(LENGTHS, loaded, strict=True):
        for rows in ROWS:
            feed = {"ids": np.ones((rows, length), np.int64)}
            took = []
            for _ in range(RUNS):
                began_s = time.thread_time()
                session.run(None, feed)
                took.append(time.thread_time() - began_s)
            times.append(f"{1_000 * median(took[2:]):.1f}")
    told.append(f"run {pss_mib() - before:.0f} MiB")
    print(f"{way:22}{', '.join(told)}; ms {' '.join(times)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--way", choices=WAYS)
    given = parser.parse_args()
    if given.way is not None:
        measure(given.folder, given.way)
        return
    with TemporaryDirectory() as text:
        folder = Path(text)
        make(folder / "open.onnx")
        data = (folder / "open.onnx").read_bytes()
        for length in LENGTHS:
            fixed = fix_axis(data, length, where="encoder").data
            (folder / f"{length}.onnx").write_bytes(fixed)
        print(f"times are of {LENGTHS} tokens by {ROWS} rows", flush=True)
        for way in WAYS:
            command = [sys.executable, "-m", __spec__.name, "--folder", text, "--way", way]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
