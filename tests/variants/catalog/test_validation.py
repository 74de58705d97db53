"""Every way in which a registration can contradict itself gets a sentence of its own."""

from dataclasses import replace
from typing import Any

import pytest

from tests.variants.catalog_builders import (
    event,
    kind,
    plan,
    points,
    profile,
    registration,
    task,
    tick,
    variant,
    version,
)
from variants.catalog.validity.plans import check_event, check_plan, plain_body
from variants.catalog.validity.registrations import check_registration
from variants.errors import InvalidInput
from variants.types import DeviceKindName, Registration, Slo, TensorSpec

NAN, INF = float("nan"), float("inf")


def with_task(**changes: Any) -> Registration:
    return registration(task=task(**changes))


def with_variant(**changes: Any) -> Registration:
    return registration(variants=(replace(variant(), **changes),))


def with_profile(**changes: Any) -> Registration:
    return registration(profiles=(replace(profile(), **changes),))


def with_kind(**changes: Any) -> Registration:
    return registration(device_kinds=(replace(kind(), **changes),))


def with_version(**changes: Any) -> Registration:
    return registration(version=replace(version(), **changes))


def tensor(**changes: Any) -> TensorSpec:
    return replace(TensorSpec(name="x", dtype="float32", shape=(3,)), **changes)


def point(**changes: Any) -> Registration:
    return with_profile(points=(replace(points((1, 1.0))[0], **changes),))


WRONG = [
    (registration(of="Digits"), "'Digits' cannot be the name of a task: names have up to 128 of"),
    (registration(of=""), "'' cannot be the name of a task"),
    (registration(of="a" * 129), "names have up to 128 of a-z"),
    (registration(of="a\n"), "'a\\n' cannot be the name of a task"),
    (registration("../x"), "'../x' cannot be the name of a model"),
    (with_variant(name="A"), "'A' cannot be the name of a variant"),
    (with_variant(runtime=""), "'' cannot be the name of a runtime"),
    (with_kind(name="cpu 1"), "'cpu 1' cannot be the name of a device kind"),
    (with_task(inputs=()), "task 'digits' has no inputs"),
    (with_task(outputs=()), "task 'digits' has no outputs"),
    (with_task(inputs=(tensor(), tensor())), "input of task 'digits' 'x' is given twice"),
    (with_task(inputs=(tensor(name=""),)), "input '' of task 'digits' has no name"),
    (with_task(inputs=(tensor(name="\0"),)), "cannot be stored"),
    (with_task(inputs=(tensor(dtype="str"),)), "has type 'str'; it must be one of float32"),
    (with_task(inputs=(tensor(shape=(0,)),)), "a dimension of input 'x' of task 'digits' is 0"),
    (with_task(labels=("a", "b")), "has 2 labels, but output 'scores' has 3 classes"),
    (with_task(labels=("a",)), "has 1 label, but output 'scores' has 3 classes"),
    (with_task(labels=("a", "b", "\ud800")), "a label of task 'digits' contains a character"),
    (with_task(outputs=(tensor(shape=()),)), "has 3 labels, but output 'x' has 1 class"),
    (with_task(outputs=(tensor(shape=(2, 3)),)), "has 3 labels, but output 'x' has 6 classes"),
    (with_task(inputs=(tensor(shape=(1,) * 8),)), "has 8 axes; at most 7 are possible"),
    (with_task(slo=Slo(latency_ms=0)), "default latency of task 'digits' is 0 ms; it must"),
    (with_task(slo=Slo(latency_ms=INF)), "default latency of task 'digits' is inf ms; it must"),
    (with_task(slo=Slo(accuracy=1.1)), "default accuracy floor of task 'digits' is 1.1, not in"),
    (with_task(slo=Slo(cost=NAN)), "default cost ceiling of task 'digits' is nan"),
    (with_version(task="letters"), "belongs to task 'letters', not to 'digits'"),
    (with_version(version=0), "the number of version 'mlp-v0' is 0"),
    (with_version(version=2**31), "the number of version 'mlp-v2147483648' is"),
    (with_version(source="abc"), "is 'abc', not 64 lower-case hexadecimal digits"),
    (registration(variants=(), profiles=()), "version 'mlp-v1' has no variants"),
    (with_variant(task="letters"), "belongs to 'mlp-v1' of task 'letters', not to 'mlp-v1'"),
    (with_variant(model="cnn"), "belongs to 'cnn-v1' of task 'digits', not to 'mlp-v1'"),
    (with_variant(version=2), "belongs to 'mlp-v2' of task 'digits', not to 'mlp-v1'"),
    (with_variant(artifact="B" * 64), "not 64 lower-case hexadecimal digits"),
    (with_variant(accuracy=1.5), "accuracy of variant 'mlp-v1-onnx-fp32' is 1.5, not in [0, 1]"),
    (with_variant(accuracy=NAN), "is nan, not in [0, 1]"),
    (with_variant(accuracy_rows=-1), "the number of evaluation rows of variant"),
    (with_variant(size_bytes=-1), "is -1 bytes"),
    (with_variant(options={"threads": 1}), "option 'threads' of variant 'mlp-v1-onnx-fp32' is not"),
    (registration(variants=(variant(), variant())), "'mlp-v1-onnx-fp32' is given twice"),
    (with_profile(points=()), "on 'cpu-1' has no points"),
    (with_profile(points=points((2, 1.0), (1, 1.0))), "has batch sizes that do not ascend"),
    (with_profile(points=points((1, 1.0), (1, 1.0))), "has batch sizes that do not ascend"),
    (point(batch_size=0), "a batch size in the profile"),
    (point(p50_ms=0.0), " ms at batch size 1; they must be positive and finite"),
    (point(p95_ms=NAN), " ms at batch size 1; they must be positive and finite"),
    (point(p99_ms=INF), " ms at batch size 1; they must be positive and finite"),
    (point(p50_ms=2.5), " ms at batch size 1; they must ascend"),
    (with_profile(memory_mib=-1.0), "the memory in the profile"),
    (with_profile(load_s=INF), "the load time in the profile"),
    (with_profile(working_mib=-1.0), "the working memory in the profile"),
    (with_profile(memory_mib=10.0, working_mib=10.5), "has more working memory than memory"),
    (with_profile(host="\0"), "the host of the profile"),
    (with_profile(task="letters"), "of task 'letters', which is not in this registration"),
    (with_profile(variant="nobody"), "variant 'nobody' of task 'digits', which is not in this"),
    (with_profile(device_kind="cpu-9"), "names the unknown device kind 'cpu-9'"),
    (registration(profiles=(profile(), profile())), "on cpu-1' is given twice"),
    (with_kind(cores=0), "the number of cores of device kind 'cpu-1' is 0"),
    (with_kind(memory_mib=NAN), "the memory of device kind 'cpu-1' is nan"),
    (with_kind(usd_per_hour=-1.0), "the price of device kind 'cpu-1' is -1.0"),
    (registration(device_kinds=(kind(), kind())), "device kind 'cpu-1' is given twice"),
]


@pytest.mark.parametrize(("wrong", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_a_contradiction_is_named(wrong: Registration, sentence: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_registration(wrong)
    assert sentence in caught.value.message


def test_a_consistent_registration_passes() -> None:
    check_registration(registration())
    check_registration(registration(task=task(labels=())))
    check_registration(registration(profiles=()))
    check_registration(with_variant(accuracy=0.0, accuracy_rows=0, size_bytes=0))


def test_a_device_kind_that_is_known_already_need_not_come_along() -> None:
    check_registration(registration(device_kinds=()), {DeviceKindName("cpu-1")})


@pytest.mark.parametrize("share", [-0.1, 1.1, NAN])
def test_a_share_is_a_fraction(share: float) -> None:
    with pytest.raises(InvalidInput, match="share of variant 'mlp-v1-onnx-fp32' on worker 'w-1'"):
        check_plan(plan(share=share))


def test_a_number_of_workers_is_not_negative() -> None:
    with pytest.raises(InvalidInput, match="number of 'cpu-1' workers"):
        check_plan(replace(plan(), workers={DeviceKindName("cpu-1"): -1}))


def test_text_that_no_database_stores_is_refused() -> None:
    with pytest.raises(InvalidInput, match="an event contains a character"):
        check_event(event("\0"))


def test_a_body_is_copied_as_plain_json() -> None:
    assert plain_body(tick(1, pair=(1, 2))) == ({"pair": [1, 2]}, len('{"pair": [1, 2]}'))
    with pytest.raises(InvalidInput, match="not plain JSON"):
        plain_body(tick(1, rate=NAN))
