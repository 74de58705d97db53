"""Queries by picture, of clients in Python and of the command line, against a real gateway."""

import asyncio
import io
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from controlplane.client import AsyncClient, Client, InvalidInput, SloInfeasible, TaskNotFound
from controlplane.client.pictures import picture_bytes, picture_query
from tests.controlplane.cli.shell import Shell
from tests.controlplane.serving import DOUBLE, FAST, Served, serving
from variants.types import ImageScale, TaskName

GREY = np.array([[0, 51], [102, 255]], np.uint8)
VALUES = [0.0, 0.2, 0.4, 1.0]


def picture(kind: str = "PNG") -> bytes:
    made = io.BytesIO()
    Image.fromarray(GREY).save(made, kind)
    return made.getvalue()


@pytest.fixture
def shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Shell:
    monkeypatch.setenv("MODELLESS_STATE_DIR", str(tmp_path))
    return Shell(monkeypatch, capsys)


@pytest.fixture
async def served(short_folder: Path, live_url: str) -> AsyncIterator[Served]:
    async with serving(short_folder, live_url) as running:
        await running.worker("w1", FAST, DOUBLE)
        yield running


@pytest.mark.slow
async def test_a_picture_is_asked_as_a_path_bytes_or_an_image(
    served: Served, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{served.port}"
    file = tmp_path / "a.png"
    file.write_bytes(picture())
    needs: dict[str, Any] = {"latency_ms": 30_000, "variant": FAST}

    def ask(image: Any, **more: Any) -> Any:
        with Client(url) as client:
            return client.query("letters", image=image, **needs, **more)

    for image in (file, str(file), picture(), Image.fromarray(GREY)):
        reply = await asyncio.to_thread(ask, image)
        assert reply.outputs[0] == pytest.approx(VALUES)
        assert (reply.variant, reply.labels) == (FAST, ("d",))
    arrays = await asyncio.to_thread(lambda: ask(file, arrays=True, image_mean=0.5, image_std=0.25))
    assert arrays.outputs.tolist()[0] == pytest.approx([-2.0, -1.2, -0.4, 2.0])
    async with AsyncClient(url) as client:
        reply = await client.query("letters", image=file, image_std=[0.5], latency_ms=30_000)
        assert reply.outputs[0] == pytest.approx([0.0, 0.4, 0.8, 2.0])
        assert reply.request_id
        with pytest.raises(SloInfeasible):
            await client.query("letters", image=file, accuracy=1.0, latency_ms=30_000)
        with pytest.raises(TaskNotFound):
            await client.query("no/such task", image=file)
        with pytest.raises(InvalidInput, match="the body is no image of these formats"):
            await client.query("letters", image=b"GIF89a")


@pytest.mark.slow
async def test_the_command_line_asks_by_picture(
    served: Served, shell: Shell, tmp_path: Path
) -> None:
    said = ImageScale(std=(0.25,))
    served.gateway.catalog.change_tasks([TaskName("letters")], lambda one: replace(one, image=said))
    file = tmp_path / "a.png"
    file.write_bytes(picture())
    options = ("--variant", FAST, "--latency-ms", "30000", "-o", "json")
    url = f"http://127.0.0.1:{served.port}"
    async with asyncio.timeout(30):  # until the gateway has read the catalog again
        while served.gateway.path.tasks[TaskName("letters")].image != said:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    done = await asyncio.to_thread(
        lambda: shell("query", "letters", "--image", str(file), *options, url=url)
    )
    assert (done.code, done.err) == (0, "")
    [row] = done.json()["outputs"]
    assert row == pytest.approx([4 * value for value in VALUES])
    scaled = ("--image-mean", "0.5", "--image-std", "0.5", *options)
    done = await asyncio.to_thread(
        lambda: shell("query", "letters", "--image", str(file), *scaled, url=url)
    )
    [row] = done.json()["outputs"]
    assert row == pytest.approx([2 * (value - 0.5) for value in VALUES])
    explained = await asyncio.to_thread(
        lambda: shell("explain", "letters", "--image", str(file), "--json", url=url)
    )
    assert (explained.code, explained.json()["rows"]) == (0, 1)
    refused = await asyncio.to_thread(
        lambda: shell("explain", "letters", "--image", str(file), "--rows", "2", url=url)
    )
    assert "a picture is one row: --rows or --image, not both" in refused.err
    for wrong, why in (
        (("--image-mean", "0.5"), "--image-mean and --image-std are of a picture"),
        (("--image", str(file), "--image-std", "a"), "--image-std must be a number, not 'a'"),
        (("--image", str(tmp_path / "none.png")), "cannot be read: No such file or directory"),
        (("--image", str(file), "--input", "-"), "--input or --image, not both"),
    ):
        done = await asyncio.to_thread(partial(shell, "query", "letters", *wrong, url=url))
        assert (done.code, done.out) == (2, "")
        assert why in done.err


def test_what_a_query_by_picture_asks_for_stands_in_headers() -> None:
    path, body, headers = picture_query(
        "a/b",
        picture("JPEG"),
        {
            "latency_ms": 50, "accuracy": 0.5, "cost": None, "prefer": "accuracy",
            "best_effort": True, "priority": 3,
        },
        variant="v",
        mean=(0.485, 0.456, 0.406),
        std=0.5,
    )  # fmt: skip
    assert (path, body) == ("/v1/query?task=a%2Fb", picture("JPEG"))
    assert headers == {
        "SLO-Latency-Ms": "50",
        "SLO-Accuracy": "0.5",
        "SLO-Prefer": "accuracy",
        "X-Modelless-Variant": "v",
        "X-Modelless-Priority": "3",
        "X-Modelless-Best-Effort": "true",
        "Image-Mean": "0.485,0.456,0.406",
        "Image-Std": "0.5",
        "Content-Type": "image/jpeg",
    }


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "HSV", "YCbCr"])
def test_an_image_of_pillow_becomes_a_png_that_shows_the_same(mode: str) -> None:
    image = Image.fromarray(GREY).convert("RGB").convert(mode)
    sent = Image.open(io.BytesIO(picture_bytes(image)))
    assert sent.convert("RGB").tobytes() == image.convert("RGB").tobytes()


def test_an_image_of_pillow_stays_turned_as_its_camera_says() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    made = io.BytesIO()
    Image.fromarray(GREY).save(made, "JPEG", exif=turned)
    sent = Image.open(io.BytesIO(picture_bytes(Image.open(made))))
    assert sent.getexif()[0x0112] == 6


@pytest.mark.parametrize(
    ("image", "why"),
    [
        ("no/such.png", "image 'no/such.png' cannot be read: No such file"),
        ("a\0b", "cannot be read: embedded null"),
        (GREY, "a ndarray is no picture"),
        (7, "a int is no picture"),
        (Image.fromarray(GREY).convert("F"), "more than 8 bits"),
    ],
)
def test_what_is_no_picture_is_refused_before_it_is_sent(image: Any, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        picture_bytes(image)


@pytest.mark.parametrize(
    ("about", "why"),
    [
        ({}, "a query has inputs, which are rows, or an image"),
        ({"inputs": [[1]], "image": b"x"}, "inputs or an image, not both"),
        ({"inputs": [[1]], "image_std": 1}, "there is none"),
        ({"image": b"x", "variant": "é"}, "has no form in a header"),
    ],
)
def test_a_query_is_about_rows_or_a_picture(about: dict[str, Any], why: str) -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(InvalidInput, match=why):
        client.query("letters", **about)


def test_pillow_is_not_imported_for_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(picture())
    code = (
        "import sys; from controlplane.client.pictures import picture_query;"
        f"picture_query('t', {str(file)!r}, {{}}); print('PIL' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
