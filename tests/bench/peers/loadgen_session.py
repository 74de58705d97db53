"""MLPerf LoadGen as a client: run by LoadGen's own environment.

``python loadgen_session.py JOB`` takes a JSON object (port, path, bodies, scenario, mode, qps,
slo_ms, seconds, connections, output) and prints what LoadGen's summary says as another one. In
accuracy mode, what every row was answered with is printed instead, in the rows' order.
"""

import array
import http.client
import json
import queue
import re
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import mlperf_loadgen as lg

SCENARIOS = {
    "SingleStream": lg.TestScenario.SingleStream,
    "Server": lg.TestScenario.Server,
    "Offline": lg.TestScenario.Offline,
}
JSON = {"content-type": "application/json"}
WANTED = re.compile(
    r"^(Result is|Completed samples per second|Scheduled samples per second|Samples per second"
    r"|50\.00 percentile latency \(ns\)|99\.00 percentile latency \(ns\)) *: *(\S+)",
    re.MULTILINE,
)


class Client:
    """Asks with so many connections at once; a thread has one of them."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.due: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.failed = 0
        for _ in range(job["connections"]):
            threading.Thread(target=self._work, daemon=True).start()

    def issue(self, samples: list[Any]) -> None:
        for sample in samples:
            self.due.put((sample.id, sample.index))

    def _work(self) -> None:
        bodies = [body.encode() for body in self.job["bodies"]]
        connection = http.client.HTTPConnection("127.0.0.1", self.job["port"], timeout=60)
        while True:
            id_, index = self.due.get()
            best = -1
            connection.request("POST", self.job["path"], bodies[index], JSON)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status == 200:
                (row,) = (
                    json.loads(body)["outputs"] if self.job["ours"] else [json.loads(body)["y"]]
                )
                best = max(range(len(row)), key=row.__getitem__)
            else:
                self.failed += 1
            told = array.array("b", [best])
            address, length = told.buffer_info()
            lg.QuerySamplesComplete([lg.QuerySampleResponse(id_, address, length)])


def main() -> None:
    job = json.loads(sys.stdin.read())
    settings = lg.TestSettings()
    settings.scenario = SCENARIOS[job["scenario"]]
    accuracy = job["mode"] == "accuracy"
    settings.mode = lg.TestMode.AccuracyOnly if accuracy else lg.TestMode.PerformanceOnly
    settings.min_duration_ms = int(job["seconds"] * 1_000)
    settings.min_query_count = 1
    settings.server_target_qps = settings.offline_expected_qps = job["qps"]
    settings.server_target_latency_ns = int(job["slo_ms"] * 1e6)
    settings.server_target_latency_percentile = 0.99
    client = Client(job)
    rows = len(job["bodies"])
    with tempfile.TemporaryDirectory() as folder:
        output = lg.LogOutputSettings()
        output.outdir = folder
        output.copy_summary_to_stdout = False
        log = lg.LogSettings()
        log.log_output = output
        log.enable_trace = False
        sut = lg.ConstructSUT(client.issue, lambda: None)
        qsl = lg.ConstructQSL(rows, rows, lambda _: None, lambda _: None)
        lg.StartTestWithLogSettings(sut, qsl, settings, log)
        lg.DestroyQSL(qsl)
        lg.DestroySUT(sut)
        if accuracy:
            answers = json.loads((Path(folder) / "mlperf_log_accuracy.json").read_text())
            found = {one["qsl_idx"]: int(one["data"], 16) for one in answers}
            print(json.dumps({"best": [found[row] for row in range(rows)]}))
        else:
            summary = (Path(folder) / "mlperf_log_summary.txt").read_text()
            print(json.dumps({**dict(WANTED.findall(summary)), "failed": client.failed}))


if __name__ == "__main__":
    main()
