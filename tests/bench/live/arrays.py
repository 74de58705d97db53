"""What a query with a large array takes the Python client: as bytes, and as lists in JSON.

``python -m tests.bench.live.arrays`` starts an installation with a model that takes images of
3 x 224 x 224 numbers and does next to nothing with them, and asks with some rows, in turns: an
array, an array that is answered with arrays, and lists. Printed is the median time of a query in
ms as the client sees it, and the bytes that it sends.
"""

import argparse
import subprocess
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

import modelless
from controlplane.client.exchange import query_content
from tests.bench import machine
from tests.integration.deployment import CLI, deployed, environment, short_directory
from tests.ports import free_port

SHAPE = (3, 224, 224)
LATENCY_MS = 10_000.0


def register(state: Path, folder: Path) -> None:
    """A task ``pictures`` whose model takes the mean of each colour."""
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("ReduceMean", ["image"], ["scores"], axes=[2, 3], keepdims=0)],
        "means",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["rows", *SHAPE])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", SHAPE[0]])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "means.onnx")
    rows = np.random.default_rng(0).uniform(size=(16, *SHAPE)).astype(np.float32)
    np.savez(folder / "rows.npz", image=rows, labels=rows.mean(axis=(2, 3)).argmax(axis=1))
    command: list[str | Path] = [
        *CLI, "register", folder / "means.onnx", "--task", "pictures", "--eval",
        folder / "rows.npz", "--variants", "onnx-fp32", "--labels", "red,green,blue",
    ]  # fmt: skip
    settings = environment(state, free_port())
    subprocess.run(command, env=settings, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live.arrays")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--runs", type=int, default=15)
    given = parser.parse_args()
    print(machine.describe())
    with TemporaryDirectory() as made, short_directory() as home:
        register(home / "s", Path(made))
        with (
            deployed(home / "s", max_body_mib=64) as running,
            modelless.Client(f"http://127.0.0.1:{running.port}") as client,
        ):
            for count in given.rows:
                image = np.random.default_rng(1).uniform(size=(count, *SHAPE)).astype(np.float32)
                forms = {"bytes": (image, False), "bytes, arrays back": (image, True)}
                forms["lists"] = (image.tolist(), False)
                took: dict[str, list[float]] = {form: [] for form in forms}
                for _ in range(given.runs):
                    for form, (inputs, arrays) in forms.items():
                        began_s = perf_counter()
                        client.query("pictures", inputs, latency_ms=LATENCY_MS, arrays=arrays)
                        took[form].append(1e3 * (perf_counter() - began_s))
                size = len(query_content("pictures", {"inputs": image}))
                said = ", ".join(f"{form} {median(ms):.1f} ms" for form, ms in took.items())
                print(f"{count} rows: {said}; {image.nbytes / 2**20:.1f} MiB, {size / 2**20:.1f}")


if __name__ == "__main__":
    main()
