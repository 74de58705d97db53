"""What ``ray up deploy/ray-cluster.yaml`` does, on machines of a test."""

import shutil
import signal
from contextlib import suppress

import psutil
import yaml

from tests.deploy.files import ray_cluster, readme_commands
from tests.integration.machines.lab import Lab, Reached, placed, user_environment
from tests.integration.machines.network import Machine, Program

START_S = 600.0
TOO_SLOW = "The current node timed out during startup"
"""What Ray says of a machine that took more than 30 s, which are not to be had otherwise."""
ATTEMPTS = 3


class RayUp:
    """The head and the workers that the file describes, each with its own commands."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._file = ray_cluster()
        self.head = lab.machine(2, "head")
        self.workers: list[Machine] = []
        self.gateway = Reached(self.head, "127.0.0.1", 8000)
        self.told = ""
        """What `modelless up` said."""

    def prepare(self) -> None:
        """What the README has a user do first."""
        commands = self._lab.addressed(readme_commands("Make Ray's token"))
        done = self.head.shell(commands, user_environment()).wait(START_S)
        assert done.code == 0, done.output
        # `ray up` leaves the file there; its autoscaler shall not look for machines by SSH.
        file = self._file | {"max_workers": 0}
        file["provider"] = self._file["provider"] | {"head_ip": "127.0.0.1", "worker_ips": []}
        (self.head.folder / "tmp/home/ray_bootstrap_config.yaml").write_text(yaml.safe_dump(file))

    def start(self) -> None:
        """Run the head's commands, and those of the workers as soon as there is a head for them."""
        *before, up = self._file["head_start_ray_commands"]
        for command in before:
            self._run(command, self.head)
        started = self._shell(up, self.head)
        self.add_workers(len(self._file["provider"]["worker_ips"]))  # beside it, as `ray up` does
        ended = started.wait(START_S)
        assert ended.code == 0, f"{ended.output}\n{self.head.logs()}"
        self.told = ended.output

    def add_workers(self, count: int) -> None:
        """So many more machines, with the commands of every worker; all at once."""
        first = 3 + len(self.workers)
        added = [self._lab.machine(n, f"worker-{n}") for n in range(first, first + count)]
        self.workers += added
        for worker in added:
            for there, here in self._file["file_mounts"].items():
                if here != ".":  # the working copy is installed
                    copy(self.head, here, worker, there)
        for command in self._file["worker_start_ray_commands"]:
            self._run(command, *added)

    def _run(self, command: str, *machines: Machine) -> None:
        running = [(machine, self._shell(command, machine)) for machine in machines]
        for machine, started in running:
            self._succeed(command, machine, started)

    def _succeed(self, command: str, machine: Machine, started: Program) -> None:
        for _ in range(ATTEMPTS):
            ended = started.wait(START_S)
            if ended.code == 0:
                return
            if TOO_SLOW not in ended.output:
                break
            self._shell("ray stop --force", machine).wait(START_S)
            started = self._shell(command, machine)
        raise AssertionError(f"{command}: {ended.output}")

    def _shell(self, command: str, machine: Machine) -> Program:
        """As Ray's command runner wraps it."""
        environment = user_environment() | {"RAY_HEAD_IP": self.head.address}
        wrapped = f"export OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore && ({placed(command, machine)})"
        return machine.shell(wrapped, environment)


def copy(source: Machine, path: str, target: Machine, place: str) -> None:
    """What ``ray up`` does with a file of the machine that it runs on."""
    found, made = (
        one.folder / "tmp/home" / at.removeprefix("~/")
        for one, at in ((source, path), (target, place))
    )
    made.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copy2(found, made)


def kill_raylet(machine: Machine) -> None:
    """Kill the process by which Ray has the machine; what it started ends with it."""
    for process in machine.processes():
        with suppress(psutil.Error):
            if process.name() == "raylet":
                process.send_signal(signal.SIGKILL)
                return
    raise AssertionError(f"no raylet runs on {machine.name}")
