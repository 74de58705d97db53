"""Whatever is done to it, a catalog in a database answers as the one in memory does."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.variants.catalog_builders import (
    event,
    kind,
    plan,
    points,
    profile,
    registration,
    task,
    tick,
)
from variants.catalog.protocol import Catalog
from variants.catalog.sql import open_catalog
from variants.errors import ModellessError
from variants.types import (
    Canary,
    DeviceKindName,
    EventFilter,
    ModelName,
    Rule,
    RuleKind,
    Stage,
    TaskName,
    VariantName,
)

Step = Callable[[Catalog], object]

of = st.sampled_from(["digits", "letters"])
model = st.sampled_from(["mlp", "cnn"])
number = st.integers(0, 3)
cpu = st.sampled_from(["cpu-1", "cpu-2"])
latency_ms = st.sampled_from([1.0, 2.5])


def put_profile(model: str, number: int, of: str, cpu: str, latency_ms: float) -> Step:
    new = profile(f"{model}-v{number}-onnx-fp32", of, cpu, points=points((1, latency_ms)))
    return lambda catalog: catalog.put_profiles((new,))


def register(model: str, number: int, of: str, cpu: str, metric: str, labelled: bool) -> Step:
    one = registration(model, number, of, device_kinds=(kind(cpu),))
    labels = ("a", "b", "c") if labelled else ()
    new = replace(
        one,
        task=task(of, metric=metric, labels=labels),
        profiles=tuple(replace(p, device_kind=DeviceKindName(cpu)) for p in one.profiles),
    )
    return lambda catalog: catalog.register(new)


def set_stage(tasks: list[TaskName], model: str, number: int, stage: Stage) -> Step:
    return lambda catalog: catalog.set_stage(tasks, ModelName(model), number, stage)


def promote(tasks: list[TaskName], model: str, number: int | None) -> Step:
    return lambda catalog: catalog.promote(tasks, ModelName(model), number)


def remove_task(tasks: list[TaskName]) -> Step:
    return lambda catalog: catalog.remove_task(*tasks)


def remove_version(tasks: list[TaskName], model: str, number: int) -> Step:
    return lambda catalog: catalog.remove_version(tasks, ModelName(model), number)


def rule(of: str, model: str, number: int, cpu: str, replicas: int, word: RuleKind) -> Step:
    frozen = word is RuleKind.FREEZE
    new = Rule(
        kind=word,
        task=TaskName("" if frozen else of),
        variant=VariantName("" if frozen else f"{model}-v{number}-onnx-fp32"),
        device_kind=DeviceKindName("" if frozen else cpu),
        replicas=replicas,
    )
    return lambda catalog: catalog.put_rule(new)


def remove_rule(id: int) -> Step:
    return lambda catalog: (catalog.remove_rule(id), catalog.rules())


def set_canary(tasks: list[TaskName], model: str, number: int, share: float) -> Step:
    name = ModelName(model)
    asked = [Canary(task=of, model=name, version=number, share=share) for of in tasks]
    return lambda catalog: catalog.set_canary(*asked)


def end_canary(tasks: list[TaskName], model: str) -> Step:
    return lambda catalog: catalog.end_canary(tasks, ModelName(model))


def settle_canary(of: str, promote: bool, epoch: int) -> Step:
    def step(catalog: Catalog) -> object:
        canaries = [one for one in catalog.snapshot().canaries if one.task == of]
        return [
            catalog.settle_canary(one, promote=promote, why="it was late", epoch=epoch)
            for one in canaries
        ]

    return step


def roll_back(tasks: list[TaskName], model: str, number: int | None) -> Step:
    return lambda catalog: catalog.roll_back(tasks, ModelName(model), number)


def free() -> Step:
    return lambda catalog: (catalog.leftovers(), catalog.free(lambda _: None), catalog.leftovers())


def next_version(of: str, model: str) -> Step:
    return lambda catalog: catalog.next_version(TaskName(of), ModelName(model))


def put_plan(epoch: int, share: float) -> Step:
    return lambda catalog: catalog.put_plan(plan(epoch, share))


def ask_for(cpu: str, count: int) -> Step:
    return lambda catalog: catalog.set_inventory(DeviceKindName(cpu), count)


def lead(owner: str) -> Step:
    return lambda catalog: catalog.acquire_leadership(owner)


def note(message: str) -> Step:
    return lambda catalog: catalog.add_event(event(message))


def record(qps: float) -> Step:
    return lambda catalog: catalog.add_tick(tick(1, qps=qps))


def look(limit: int, after: int) -> Step:
    return lambda catalog: (catalog.ticks(limit), catalog.events(limit, EventFilter(after=after)))


some_tasks = st.lists(of.map(TaskName), min_size=1, unique=True)
steps = st.one_of(
    st.builds(register, model, number, of, cpu, st.sampled_from(["top1", "top5"]), st.booleans()),
    st.builds(put_profile, model, number, of, cpu, latency_ms),
    st.builds(set_stage, some_tasks, model, number, st.sampled_from(Stage)),
    st.builds(next_version, of, model),
    st.builds(promote, some_tasks, model, st.none() | number),
    st.builds(remove_task, some_tasks),
    st.builds(remove_version, some_tasks, model, number),
    st.builds(set_canary, some_tasks, model, number, st.sampled_from([0.0, 0.05, 1.0])),
    st.builds(end_canary, some_tasks, model),
    st.builds(settle_canary, of, st.booleans(), st.integers(0, 2)),
    st.builds(roll_back, some_tasks, model, st.none() | number),
    st.builds(free),
    st.builds(rule, of, model, number, cpu, st.integers(0, 2), st.sampled_from(RuleKind)),
    st.builds(remove_rule, st.integers(0, 3)),
    st.builds(put_plan, st.integers(0, 3), st.sampled_from([0.5, 1.5])),
    st.builds(ask_for, cpu, st.integers(-1, 3)),
    st.builds(lead, st.just("controller")),
    st.builds(note, st.sampled_from(["ready", "\0"])),
    st.builds(record, st.sampled_from([1.0, float("nan")])),
    st.builds(look, st.integers(-1, 3), st.integers(-1, 3)),
)


def outcome(step: Step, catalog: Catalog) -> object:
    """What a step gave, its refusal included, and all that can be read afterwards."""
    try:
        gave = step(catalog)
    except ModellessError as error:
        gave = (type(error), error.message)
    read = (catalog.snapshot(), catalog.latest_plan(), catalog.revision(), catalog.inventory())
    return gave, read


@settings(max_examples=25, deadline=None)
@given(st.lists(steps, min_size=5, max_size=25))
def test_memory_and_sqlite_agree(history: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        memory = open_catalog("memory://")
        sqlite = open_catalog(f"sqlite:///{Path(folder) / 'catalog.db'}")
        for step in history:
            assert outcome(step, sqlite) == outcome(step, memory)
        sqlite.close()
