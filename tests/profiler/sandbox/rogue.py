"""A child process that does what a foreign model may do; started by the sandbox's tests."""

import json
import os
import signal
import subprocess
import sys
import time


def main() -> None:
    for line in sys.stdin:
        method = json.loads(line)["method"]
        if method == "crash":
            os.abort()
        elif method == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif method == "hang":
            time.sleep(600)
        elif method == "swell":
            held = bytearray(os.urandom(1 << 20)) * 300
            time.sleep(600)
            print(len(held))
        elif method == "spawn":
            child = subprocess.Popen(["sleep", "600"])
            print(json.dumps({"result": {"pid": child.pid}}), flush=True)
        elif method == "leave":
            os._exit(3)
        elif method == "babble":
            print("Segmentation fault (not really)", flush=True)
        elif method == "flood":
            while True:
                os.write(1, b"x" * 65_536)
        elif method == "list":
            print(json.dumps({"result": [1]}), flush=True)
        elif method == "environment":
            print(json.dumps({"result": {"names": sorted(os.environ)}}), flush=True)
        elif method == "work":
            print(json.dumps({"progress": [1, 2]}), flush=True)
            print(json.dumps({"result": {"answer": 42}}), flush=True)
        elif method == "plod":
            for step in range(8):
                time.sleep(0.01)
                print(json.dumps({"progress": [step, 8]}), flush=True)
            print(json.dumps({"result": {"answer": 42}}), flush=True)
        elif method == "refuse":
            print(json.dumps({"error": "digits/m cannot be loaded: no rule for it"}), flush=True)
        elif method == "boast":
            print(json.dumps({"progress": 100}), flush=True)


if __name__ == "__main__":
    main()
