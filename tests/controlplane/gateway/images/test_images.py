"""Queries by image: what becomes of a picture, and what is refused."""

import io
import random
import struct
import zlib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import orjson
import pytest
from PIL import Image

from controlplane.gateway.images.asked import asked_by_image
from controlplane.gateway.images.pixels import parse_image
from controlplane.gateway.protection.body_frames import tasks_as_json, tasks_of
from controlplane.gateway.query.parsing import ParsedQuery
from tests.controlplane.gateway.images.pictures import GREY, RGB, picture, task_with
from tests.controlplane.serving import DOUBLE, TASK
from variants.errors import InvalidInput, ModellessError, PayloadTooLarge, TaskNotFound
from variants.types import ImageScale, Task, TaskName
from workers.runtimes.protocol import Tensor


def parsed(body: bytes, task: Task, fields: Mapping[str, str] | None = None) -> ParsedQuery:
    asked = asked_by_image(fields or {}, {"task": task.name})
    return parse_image(body, asked, {task.name: task}, 5.0, 9)


def row(body: bytes, task: Task, **fields: str) -> Tensor:
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    [tensor] = parsed(body, task, headers).tensors
    assert tensor.shape == (1, *task.inputs[0].shape)
    assert tensor.dtype == task.inputs[0].dtype
    found: Tensor = tensor[0]
    return found


def test_values_of_grey_pixels() -> None:
    body = picture(GREY)
    fractions = [0.0, 0.2, 0.4, 1.0]
    assert row(body, task_with(4)).tolist() == pytest.approx(fractions)
    assert row(body, task_with(2, 2)).ravel().tolist() == pytest.approx(fractions)
    assert row(body, task_with(1, 2, 2, dtype="float64")).ravel().tolist() == pytest.approx(
        fractions
    )
    assert row(body, task_with(2, 2, dtype="uint8")).tolist() == GREY
    whole = row(body, task_with(1, 2, 2, dtype="int64"))
    assert whole.ravel().tolist() == [0, 51, 102, 255]
    assert row(body, task_with(4), image_mean="0.5", image_std="0.25").tolist() == pytest.approx(
        [-2.0, -1.2, -0.4, 2.0]
    )


def test_a_task_says_how_its_pictures_become_numbers_and_headers_overrule_it() -> None:
    body = picture(GREY)
    of_task = replace(task_with(4), image=ImageScale(mean=(0.5,), std=(0.25,)))
    assert row(body, of_task).tolist() == pytest.approx([-2.0, -1.2, -0.4, 2.0])
    assert row(body, of_task, image_mean="0").tolist() == pytest.approx([0.0, 0.8, 1.6, 4.0])
    assert row(body, of_task, image_std="1").tolist() == pytest.approx([-0.5, -0.3, -0.1, 0.5])
    each = ImageScale(mean=(0.0, 0.5, 1.0), std=(1.0, 0.5, 0.25))
    coloured = row(picture(RGB), replace(task_with(3, 2, 2), image=each))
    assert coloured[:, 0, 0].tolist() == pytest.approx([1.0, -1.0, -4.0])


def test_the_reader_is_told_how_a_task_has_its_pictures() -> None:
    told = replace(TASK, image=ImageScale(mean=(0.5,), std=(0.25,)))
    sent = orjson.loads(orjson.dumps(tasks_as_json([told, replace(TASK, name=TaskName("b"))])))
    found = tasks_of(sent)
    assert [task.image for task in found.values()] == [told.image, None]


def test_channels_lie_where_the_input_has_them() -> None:
    body = picture(RGB)
    last = row(body, task_with(2, 2, 3, dtype="uint8"))
    assert last.tolist() == RGB
    first = row(body, task_with(3, 2, 2, dtype="uint8"))
    assert first.tolist() == np.asarray(RGB).transpose(2, 0, 1).tolist()
    normal = row(body, task_with(3, 2, 2), image_mean="0,0.5,1", image_std="1,0.5,0.25")
    assert normal[:, 0, 0].tolist() == pytest.approx([1.0, -1.0, -4.0])
    # Grey by the weights of ITU-R 601.
    assert row(body, task_with(2, 2, dtype="uint8"))[0, 0] == 76
    # And a grey picture has the same value in each channel.
    assert row(picture(GREY), task_with(3, 2, 2, dtype="uint8"))[:, 0, 1].tolist() == [51] * 3


def test_a_picture_is_stretched_and_turned_as_its_camera_says() -> None:
    wide = np.zeros((10, 40), np.uint8)
    wide[:, 20:] = 200
    left, right = row(picture(wide), task_with(1, 2, dtype="uint8"))[0]
    assert (left < 40, right > 160) == (True, True)
    turned = Image.Exif()
    turned[0x0112] = 6  # the top is at the right
    found = row(picture(wide, "JPEG", exif=turned), task_with(2, 1, dtype="uint8"))
    assert (found[0, 0] < 40, found[1, 0] > 160) == (True, True)


@pytest.mark.parametrize(("sides", "furthest"), [((30, 32), 0), ((64, 60), 0), ((512, 512), 4)])
def test_a_jpeg_becomes_what_it_is_unpacked_whole_and_then_stretched(
    sides: tuple[int, int], furthest: int
) -> None:
    """As whoever trained the model stretched it; of far larger ones, near that."""
    steps = np.add.outer(np.arange(sides[0]), np.arange(sides[1]))
    body = picture((100 + 100 * np.sin(steps / 3)).round(), "JPEG", quality=95)
    whole = Image.open(io.BytesIO(body)).resize((16, 16), Image.Resampling.BILINEAR)
    found = row(body, task_with(16, 16, dtype="uint8")).astype(int)
    assert np.abs(found - np.asarray(whole)).max() <= furthest


def test_what_headers_ask_for() -> None:
    asked = parsed(
        picture(GREY),
        TASK,
        {"slo-latency-ms": "50", "slo-accuracy": "0.5", "slo-cost": " 1e-3 "},
    ).query
    assert (asked.task, asked.rows, asked.latency_ms, asked.accuracy, asked.cost) == (
        TASK.name, 1, 50.0, 0.5, 0.001,
    )  # fmt: skip
    whole = parsed(
        picture(GREY),
        TASK,
        {
            "slo-prefer": "accuracy",
            "x-modelless-variant": DOUBLE,
            "x-modelless-priority": "7",
            "x-modelless-best-effort": "true",
        },
    ).query
    assert (whole.prefer, whole.variant, whole.priority, whole.best_effort) == (
        "accuracy", DOUBLE, 7, True,
    )  # fmt: skip
    plain = parsed(picture(GREY), TASK).query
    assert (plain.latency_ms, plain.accuracy) == (TASK.slo.latency_ms, TASK.slo.accuracy)
    assert asked_by_image({"x-modelless-task": "a"}, {"task": "b"})["task"] == "a"


@pytest.mark.parametrize(
    ("body", "task", "fields", "error", "text"),
    [
        (b"GIF89a", TASK, {}, InvalidInput, "the body is no image of these formats: PNG, JPEG"),
        (picture(np.eye(64) * 255)[:60], TASK, {}, InvalidInput, "the image cannot be read: "),
        (picture(GREY), task_with(5), {}, InvalidInput, "takes no image: its input is float32 [5]"),
        (picture(GREY), task_with(4, dtype="bool"), {}, InvalidInput, "takes no image"),
        (picture(GREY), task_with(4, dtype="int64"), {}, InvalidInput, "takes no image"),
        (
            picture(GREY),
            replace(TASK, inputs=TASK.inputs * 2),
            {},
            InvalidInput,
            "has 2 inputs, and an image is one",
        ),
        (picture(GREY), TASK, {"slo-cost": "cheap"}, InvalidInput, "header SLO-Cost must be a num"),
        (picture(GREY), TASK, {"slo-latency-ms": "nan"}, InvalidInput, "must be a number, not 'na"),
        (picture(GREY), TASK, {"slo-latency-ms": "-1"}, InvalidInput, "latency_ms"),
        (picture(GREY), TASK, {"slo-prefer": "beauty"}, InvalidInput, "prefer"),
        (picture(GREY), TASK, {"slo-latency": "5"}, InvalidInput, "did you mean SLO-Latency-Ms?"),
        (picture(GREY), TASK, {"slo-colour-of": "5"}, InvalidInput, "known are: X-Modelless-Task"),
        (picture(GREY), TASK, {"image-sd": "5"}, InvalidInput, "did you mean Image-Std?"),
        (
            picture(GREY),
            TASK,
            {"x-modelless-slo": '{"latency_ms": 5}'},
            InvalidInput,
            "an image says what is needed in SLO-Latency-Ms, SLO-Accuracy, SLO-Cost, SLO-Prefer",
        ),
        (picture(GREY), TASK, {"image-std": "0"}, InvalidInput, "is a divisor, and may not be 0"),
        (picture(GREY), TASK, {"image-mean": "1,2"}, InvalidInput, "one for each of three"),
        (picture(GREY), TASK, {"image-mean": "1,2,3"}, InvalidInput, "the task's input has 1 chan"),
        (
            picture(GREY),
            task_with(4, dtype="uint8"),
            {"image-std": "2"},
            InvalidInput,
            "Image-Mean and Image-Std are for floats",
        ),
        (picture(np.zeros((4097, 4097))), TASK, {}, PayloadTooLarge, "has 4097 x 4097 pixels"),
        (picture(GREY), TASK, {"x-modelless-task": "nobody's"}, TaskNotFound, "nobody's"),
    ],
)
def test_what_is_wrong_is_said(
    body: bytes, task: Task, fields: dict[str, str], error: type[ModellessError], text: str
) -> None:
    with pytest.raises(error) as caught:
        parsed(body, task, fields)
    assert text in caught.value.message


def test_a_picture_that_says_it_is_huge_is_refused() -> None:
    body = bytearray(picture(GREY))
    body[16:24] = struct.pack(">II", 1_000_000, 1_000_000)
    body[29:33] = struct.pack(">I", zlib.crc32(body[12:29]))
    with pytest.raises(PayloadTooLarge, match="too many pixels"):
        parsed(bytes(body), TASK)


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_damaged_pictures_are_read_or_refused(kind: str) -> None:
    rng = random.Random(0)
    turned = Image.Exif()
    turned[0x0112] = 6
    whole = picture(np.arange(3 * 24 * 24).reshape(24, 24, 3) % 251, kind, exif=turned)
    refused = 0
    for _ in range(600):
        body = bytearray(whole)
        for _ in range(rng.randint(1, 6)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            parsed(bytes(body[: rng.randint(1, len(body))]), task_with(3, 8, 8))
        except (InvalidInput, PayloadTooLarge):
            refused += 1
    assert refused > 100


def test_a_task_has_to_be_named() -> None:
    with pytest.raises(InvalidInput, match="names its task in the header X-Modelless-Task"):
        asked_by_image({}, {})


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("latency_ms", "SLO-Latency-Ms"),
        ("prefer", "SLO-Prefer"),
        ("variant", "X-Modelless-Variant"),
    ],
)
def test_a_need_in_the_address_would_be_missed(name: str, header: str) -> None:
    said = f"an image says '{name}' in the header {header}, not in its address"
    with pytest.raises(InvalidInput, match=said):
        asked_by_image({}, {"task": "a", name: "50"})
    assert asked_by_image({}, {"task": "a", "trace": "7"})["task"] == "a"
