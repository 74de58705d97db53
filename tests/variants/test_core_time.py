"""How cores are used, from files as kernels write them, and from this machine's own."""

from pathlib import Path

from variants.core_time import WINDOW_S, CoreMeter, CoreTime

TICK = 100  # of /proc/stat, in a second


class Machine:
    """A machine whose files say what it is told."""

    def __init__(self, folder: Path, *, group: str = "/pod") -> None:
        self.proc, self.root, self.own = folder / "proc", folder / "groups", folder / "own"
        (self.proc / "pressure").mkdir(parents=True)
        (self.root / group.lstrip("/")).mkdir(parents=True)
        self.group = self.root / group.lstrip("/")
        self.own.write_text(f"0::{group}\n")
        self.now_s = self.used_s = 0.0

    def meter(self, cores: tuple[int, ...] = (0, 1), least_s: float = WINDOW_S) -> CoreMeter:
        return CoreMeter(
            proc=self.proc, root=self.root, own=self.own, cores=cores, host="h1",
            used_s=lambda: self.used_s, clock_s=lambda: self.now_s, least_s=least_s,
        )  # fmt: skip

    def stat(self, *cores: dict[str, float]) -> None:
        names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
        lines = ["cpu  9 9 9 9 9 9 9 9 0 0"]
        for number, spent in enumerate(cores):
            ticks = " ".join(str(round(TICK * spent.get(name, 0.0))) for name in names)
            lines.append(f"cpu{number} {ticks} 0 0")
        (self.proc / "stat").write_text("\n".join([*lines, "intr 7 0 0", "ctxt 8"]) + "\n")

    def delayed(self, ran_s: float, delayed_s: float) -> None:
        own = self.proc / "thread-self" / "schedstat"
        own.parent.mkdir(exist_ok=True)
        own.write_text(f"{ran_s * 1e9:.0f} {delayed_s * 1e9:.0f} 7\n")

    def waited(self, seconds: float) -> None:
        pressure(self.proc / "pressure" / "cpu", seconds)


def pressure(file: Path, seconds: float) -> None:
    total = round(seconds * 1e6)
    file.write_text(f"some avg10=1.00 avg60=2.00 avg300=3.00 total={total}\nfull total=0\n")


def test_it_says_what_the_last_ten_seconds_were_used_for(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.stat({"user": 3.0, "nice": 50.0, "idle": 9.0}, {"steal": 1.0})
    machine.waited(100.0)
    meter = machine.meter()
    assert meter.look() is None

    machine.now_s, machine.used_s = 10.0, 4.0
    machine.stat(
        {"user": 9.0, "nice": 70.0, "system": 1.5, "irq": 0.25, "softirq": 0.25, "idle": 9.0},
        {"user": 5.0, "steal": 3.0, "iowait": 2.0},
    )
    machine.waited(106.3)

    assert meter.look() == CoreTime(host="h1", cores=2, used=0.4, busy=1.3, waited=0.63, stolen=0.2)


def test_a_process_that_has_just_started_says_nothing_yet(tmp_path: Path) -> None:
    """Of what all say the worst counts: a worker or gateway that starts in the place of another one
    made a busy second look like a machine without cores."""
    machine = Machine(tmp_path)
    machine.stat({}, {})
    machine.waited(0.0)
    meter = machine.meter()
    meter.look()
    for second in range(1, 10):
        machine.now_s = float(second)
        machine.stat({"user": 1.0}, {"user": 1.0})
        machine.waited(1.0)
        assert meter.look() is None
    machine.now_s = 10.0
    assert meter.look() == CoreTime(host="h1", cores=2, used=0.0, busy=0.2, waited=0.1, stolen=0.0)


def test_it_says_how_long_its_thread_had_no_core(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.delayed(1.0, 2.0)
    meter = machine.meter()
    meter.look()

    def share() -> float | None:
        machine.now_s += WINDOW_S
        found = meter.look()
        assert found is not None
        return found.delayed

    machine.delayed(2.0, 5.0)
    assert share() == 0.75
    machine.delayed(2.01, 5.01)
    assert share() is None  # it had hardly anything to do
    machine.delayed(0.5, 0.1)
    assert share() is None  # of another thread
    (machine.proc / "thread-self" / "schedstat").unlink()
    assert share() is None


def test_other_cores_than_it_may_run_on_do_not_count(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.stat({}, {}, {})
    meter = machine.meter(cores=(1,))
    meter.look()
    machine.now_s = 10.0
    machine.stat({"user": 10.0}, {"user": 4.0}, {"steal": 10.0})

    found = meter.look()

    assert found is not None
    assert (found.cores, found.busy, found.stolen) == (1, 0.4, 0.0)


def test_files_that_are_not_there_say_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.own.unlink()
    meter = machine.meter(least_s=1.0)
    meter.look()
    machine.now_s, machine.used_s = 2.0, 1.0

    assert meter.look() == CoreTime(host="h1", cores=2, used=0.5)


def test_the_account_of_the_own_control_group_counts_before_that_of_the_machine(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    machine.waited(0.0)
    pressure(machine.group / "cpu.pressure", 0.0)
    meter = machine.meter()
    meter.look()
    machine.now_s = 10.0
    machine.waited(9.0)
    pressure(machine.group / "cpu.pressure", 2.0)

    found = meter.look()

    assert found is not None
    assert found.waited == 0.2


def test_a_quota_is_named_where_it_held_something_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (machine.group / "cpu.max").write_text("25000 50000\n")
    stat = "usage_usec 9\nnr_periods {}\nnr_throttled {}\nthrottled_usec 77\n".format
    (machine.group / "cpu.stat").write_text(stat(10, 3))
    meter = machine.meter(least_s=1.0)
    meter.look()

    machine.now_s = 5.0
    (machine.group / "cpu.stat").write_text(stat(110, 3))
    calm = meter.look()
    machine.now_s = 10.0
    (machine.group / "cpu.stat").write_text(stat(210, 83))
    held = meter.look()

    assert calm is not None
    assert held is not None
    assert (calm.throttled, calm.quota) == (0.0, None)
    assert (held.throttled, held.quota) == (0.4, 0.5)  # 80 periods of 50 ms in 10 s


def test_a_quota_of_the_first_version_is_read_too(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.own.write_text("3:cpu,cpuacct:/pod\n")
    group = machine.root / "cpu" / "pod"
    group.mkdir(parents=True)
    for name, text in (("quota", "50000"), ("period", "100000")):
        (group / f"cpu.cfs_{name}_us").write_text(f"{text}\n")
    (group / "cpu.stat").write_text("nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
    meter = machine.meter()
    meter.look()
    machine.now_s = 10.0
    (group / "cpu.stat").write_text("nr_periods 100\nnr_throttled 25\nthrottled_time 5\n")

    found = meter.look()

    assert found is not None
    assert (found.throttled, found.quota) == (0.25, 0.5)


def test_what_was_long_ago_does_not_count_and_what_was_just_read_is_not_read_again(
    tmp_path: Path,
) -> None:
    machine = Machine(tmp_path)
    meter = machine.meter()

    def at(now_s: float, waited_s: float) -> float | None:
        machine.now_s = now_s
        machine.waited(waited_s)
        found = meter.look()
        return None if found is None else found.waited

    machine.waited(0.0)
    meter = machine.meter()
    assert at(0.0, 0.0) is None
    assert at(10.0, 10.0) == 1.0
    assert at(10.5, 99.0) == 1.0  # within a second
    assert at(20.0, 10.0) == 0.0
    assert WINDOW_S == 10.0


def test_a_counter_that_goes_back_counts_as_still(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.stat({"steal": 5.0}, {})
    meter = machine.meter()
    meter.look()
    machine.now_s = 10.0
    machine.stat({"steal": 4.0}, {})

    found = meter.look()

    assert found is not None
    assert found.stolen == 0.0


def test_this_machine_tells_what_this_process_uses() -> None:
    now_s = [0.0]
    meter = CoreMeter(clock_s=lambda: now_s[0], least_s=1.0)
    assert meter.look() is None
    now_s[0] = 1.0

    found = meter.look()

    assert found is not None
    assert found.cores >= 1
    assert found.used >= 0.0
    assert found.host
