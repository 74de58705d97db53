"""Small planning files that are right, to be spoilt in one place."""

from pathlib import Path

CATALOG = """\
task,model,variant,accuracy,device_kind,batch_size,latency_ms,memory_mib,load_s
digits,cnn,cnn-fp32,0.98,cpu-4,1,10,100,0.5
digits,cnn,cnn-fp32,0.98,cpu-4,8,40,100,0.5
digits,mlp,mlp-int8,0.9,cpu-4,1,2,,
digits,mlp,mlp-int8,0.9,gpu,1,1,,
digits,mlp,mlp-int8,0.9,gpu,16,4,,
"""
DEVICES = """\
device_kind,count,memory_mib,usd_per_hour
cpu-4,4,1000,0.1
gpu,2,,0.5
"""
DEMAND = """\
task,qps,latency_slo_ms,min_accuracy
digits,100,100,
digits,20,200,0.95
"""
QUERIES = """\
arrival_s,task,latency_slo_ms,min_accuracy,max_cost_usd_per_1k
0.5,digits,100,,
1.25,digits,200,0.95,0.01
"""
RATES = """\
second,task,requests,latency_slo_ms,min_accuracy
0,digits,100,100,
1,digits,50,100,0.9
"""
PEAKS = """\
task,factor,qps,start_s,end_s,every_s
,3,,60,120,
digits,,50,600,660,3600
"""
GOOD = {"catalog": CATALOG, "devices": DEVICES, "demand": DEMAND, "trace": QUERIES}


def write_all(folder: Path, **other: str | bytes) -> dict[str, Path]:
    """Write every kind of file, with ``other`` contents where given."""
    written = {}
    for name, text in {**GOOD, **other}.items():
        path = folder / f"{name}.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        written[name] = path
    return written


def with_line(text: str, number: int, line: str) -> str:
    """A text with one of its lines replaced, counted from 1."""
    lines = text.splitlines()
    lines[number - 1] = line
    return "\n".join(lines) + "\n"


def with_more(text: str, *lines: str) -> str:
    return text + "".join(f"{line}\n" for line in lines)
