"""Registering a model with its tokenizer: what becomes of texts, and what is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controlplane.building.doubt import doubt
from controlplane.building.text_encoding import rows_of_task
from controlplane.building.types import RegistrationRequest
from controlplane.registry.extension import extend
from profiler.evaluation.labelled_rows import LabelledRows
from tests import onnx_models as models
from tests.controlplane.builders import digits_catalog
from tests.controlplane.gateway.texts.several_tokenizers import ECHOED
from tests.controlplane.registry.house import CPU, QUICK, House
from tests.texts import FILM, PAD, WORTH, opinion_model, text_input, tokenizer_json, write_texts
from variants.buckets import bucketed_named, positions_axis
from variants.errors import Conflict, InvalidArtifact, InvalidInput
from variants.types import OpenAxis, Stage

FILLED = ("input_ids", "attention_mask")

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]


class Opinions(House):
    """Registers a model of texts."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.model = models.write(folder / "opinion.onnx", opinion_model())
        self.rows = write_texts(folder / "texts.csv")
        self.tokenizer = folder / "tokenizer.json"
        self.tokenizer.write_bytes(tokenizer_json())

    def register(self, **changes: Any) -> Any:
        given = {
            "task": "opinions", "kinds": (), "labels": ("neg", "pos"), "lengths": (4, 8),
            "tokenizer": self.tokenizer,
        } | changes  # fmt: skip
        return super().register(**given)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Opinions:
    """Registered for the lengths 4 and 8, not to be changed."""
    made = Opinions(tmp_path_factory.mktemp("texts"))
    made.register()
    return made


def test_a_task_takes_texts_by_its_tokenizer(first: Opinions) -> None:
    data = first.tokenizer.read_bytes()
    texts = bucketed_named(first.catalog.snapshot().tasks, "opinions")
    assert texts is not None
    assert [one.text for one in texts.buckets] == [text_input(data, pairs=False)] * 2
    assert texts.axes == (
        OpenAxis(input="input_ids", axis=0, pad=float(PAD)),
        OpenAxis(input="attention_mask", axis=0, pad=0.0),
    )
    assert first.catalog.tokenizer(text_input(data).tokenizer) == data


def test_it_is_judged_by_the_texts_that_each_length_holds(first: Opinions) -> None:
    found = {one.task: one for one in first.catalog.snapshot().variants}
    # Of 40 texts 14 have three tokens; a fifth calibrates.
    assert {task: one.accuracy_rows for task, one in found.items()} == {
        "opinions.4": 12,
        "opinions.8": 32,
    }
    assert {one.accuracy for one in found.values()} == {1.0}


def test_later_models_are_judged_by_texts_without_saying_more(tmp_path: Path) -> None:
    house = Opinions(tmp_path)
    house.register(lengths=(8,))
    other = models.write(tmp_path / "other.onnx", opinion_model(opsets=[("", 19)]))
    result = house.register(path=other, model="opinion", tokenizer=None, lengths=None, labels=None)
    [version] = result.versions
    assert (version.task, version.version, version.stage) == ("opinions.8", 2, Stage.CANARY)
    assert result.variants[0].accuracy == 1.0
    # A length more is for texts as well.
    house.register(lengths=(12,), tokenizer=None, labels=None)
    texts = bucketed_named(house.catalog.snapshot().tasks, "opinions")
    assert texts is not None
    assert texts.holding(12).text == texts.holding(8).text


def test_a_model_of_one_length_takes_texts(tmp_path: Path) -> None:
    house = Opinions(tmp_path)
    house.tokenizer.write_bytes(tokenizer_json(pad=FILM))
    fixed = models.write(tmp_path / "fixed.onnx", opinion_model(8))
    result = house.register(path=fixed, lengths=None)
    assert (result.task.name, result.task.bucket) == ("opinions", None)
    assert result.task.text == text_input(house.tokenizer.read_bytes(), pad=FILM, pairs=False)
    assert [one.accuracy for one in result.variants] == [1.0]


def test_rows_of_numbers_judge_too(tmp_path: Path) -> None:
    house = Opinions(tmp_path)
    ids = np.array([[2, 4, 3, 0], [2, 5, 3, 0]] * 10)
    np.savez(tmp_path / "n.npz", input_ids=ids, attention_mask=ids > 0, labels=[1, 0] * 10)
    with np.load(tmp_path / "n.npz") as rows:
        given = {name: rows[name].astype(np.int64) for name in rows.files}
    np.savez(tmp_path / "n.npz", **given)
    result = house.register(evaluation=tmp_path / "n.npz", lengths=(4,))
    assert [one.accuracy for one in result.variants] == [1.0]
    assert result.task.text is not None


@pytest.mark.parametrize(
    ("changes", "error", "reason"),
    [
        ({"lengths": None}, InvalidInput, "opinion.onnx takes texts of any length: say with"),
        ({"pads": (("", 1.0),)}, InvalidInput, "says what fills rows up: leave --pad out"),
        ({"text_inputs": (("ids", "words"),)}, InvalidInput, "opinion.onnx has no input 'words'"),
        ({"lengths": (2,)}, InvalidArtifact, "texts.csv: the shortest of its 40 texts has 3"),
        ({"tokenizer": Path("/none/t.json")}, InvalidArtifact, "t.json"),
        ({"evaluation": Path("/none/e.csv")}, InvalidArtifact, "e.csv: there is no such file"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], reason: str
) -> None:
    house = Opinions(tmp_path)
    with pytest.raises(error, match=reason):
        house.register(**changes)
    assert house.catalog.snapshot().tasks == ()


def test_a_tokenizer_with_more_numbers_than_embeddings_is_refused(tmp_path: Path) -> None:
    house = Opinions(tmp_path)
    few = {
        "worth": np.zeros(7, np.float32),
        "axis": np.array([1]),
        "signs": np.array([[-1.0, 1.0]], np.float32),
    }
    models.write(house.model, opinion_model(weights=few))
    why = (
        r"tokenizer\.json gives numbers of tokens up to 7, and opinion\.onnx has embeddings for 7,"
        r" which are 0 to 6: give the tokenizer that it was trained with"
    )
    with pytest.raises(InvalidInput, match=why):
        house.register(lengths=(8,))
    assert house.catalog.snapshot().tasks == ()


def test_a_tokenizer_of_far_fewer_numbers_is_told(tmp_path: Path) -> None:
    house = Opinions(tmp_path)
    many = {
        "worth": np.pad(WORTH, (0, 992)),
        "axis": np.array([1]),
        "signs": np.array([[-1.0, 1.0]], np.float32),
    }
    models.write(house.model, opinion_model(weights=many))
    result = house.register(lengths=(8,))
    assert result.said == (
        "tokenizer.json has 8 numbers of tokens, and opinion.onnx has embeddings for 1,000: it may"
        " be the tokenizer of another model",
    )


def test_a_doubt_of_vectors_speaks_of_no_scores() -> None:
    made = replace(digits_catalog().snapshot().variants[0], accuracy=0.5)
    rows = LabelledRows(inputs={}, labels=np.array([0, 1] * 50))
    said = doubt("encoder-v1", replace(ECHOED, metric="nearest"), [made], rows)
    assert said.endswith("that it was trained with, and are the labels those of its rows?")


def test_who_guesses_is_asked_for_its_tokenizer(tmp_path: Path) -> None:
    house = Opinions(tmp_path)
    labels = ("pos", "neg", "pos", "neg", "neg")  # of texts that are all good
    rows = [f"good,{labels[number % 5]}" for number in range(60)]
    house.rows.write_text("\n".join(["text,label", *rows]) + "\n")
    [said] = house.register(lengths=(4,)).doubts
    assert said.startswith(
        "the accuracy of opinion-v1 of opinions.4 is 35.42 %, no better than the"
    )
    assert "are its texts read by the tokenizer that it was trained with" in said


def test_a_file_that_is_no_tokenizer_is_refused_by_its_name(tmp_path: Path) -> None:
    house = Opinions(tmp_path)
    house.tokenizer = tmp_path / "vocab.txt"
    house.tokenizer.write_text("[PAD]\n[UNK]\n")
    with pytest.raises(InvalidInput, match=r"vocab\.txt is no tokenizer\.json"):
        house.register()


def test_a_task_of_numbers_gets_no_tokenizer(tmp_path: Path) -> None:
    house = Opinions(tmp_path)
    ids = np.array([[2, 4, 3, 0], [2, 5, 3, 0]] * 10, np.int64)
    mask = (ids > 0).astype(np.int64)
    np.savez(tmp_path / "n.npz", input_ids=ids, attention_mask=mask, labels=[1, 0] * 10)
    house.register(evaluation=tmp_path / "n.npz", lengths=(4,), tokenizer=None)
    other = models.write(tmp_path / "other.onnx", opinion_model(opsets=[("", 19)]))
    with pytest.raises(Conflict, match="task 'opinions' takes no texts: if its models read"):
        house.register(path=other, model="opinion", lengths=None)


def test_more_variants_are_judged_by_texts(tmp_path: Path) -> None:
    house = Opinions(tmp_path)
    house.register(lengths=(8,))
    request = RegistrationRequest(
        path=Path(), task="opinions.8", evaluation=house.rows, kinds=("onnx-fp32-open",)
    )
    result = extend(
        request, "opinion", None, house.catalog, house.store, (CPU,), limits=QUICK,
        scratch=house.scratch,
    )  # fmt: skip
    assert [(one.name, one.accuracy) for one in result.variants] == [
        ("opinion-v1-onnx-fp32-open", 1.0)
    ]
    task = house.catalog.snapshot().tasks[0]
    rows = rows_of_task(house.rows, task, house.catalog.tokenizer, tmp_path / "rows")
    with np.load(rows) as arrays:
        assert arrays["input_ids"].shape == (40, 8)
    # Rows of numbers stay as they are.
    assert rows_of_task(rows, task, house.catalog.tokenizer, tmp_path / "again") == rows


def test_a_model_may_say_which_position_of_a_text_is_meant(tmp_path: Path) -> None:
    house = Opinions(tmp_path)
    ids = [models.tensor(name, "batch", "tokens", kind=7) for name in FILLED]
    model = opinion_model(
        nodes=[
            models.node("Gather", ("worth", "input_ids"), "each"),
            models.node("Cast", ("attention_mask",), "mask", to=1),
            models.node("Mul", ("each", "mask"), "start"),
            models.node("Neg", ("start",), "end"),
        ],
        inputs=ids,
        outputs=[models.tensor(name, "batch", "out", kind=1) for name in ("start", "end")],
        weights={"worth": WORTH},
    )
    lines = ["text,label"]
    for number in range(40):  # where the good word is: behind what begins the text
        lines.append(f"{'the ' * (number % 4)}good film,{number % 4 + 1}")
    house.rows.write_text("\n".join(lines) + "\n")
    path = models.write(tmp_path / "answers.onnx", model)
    result = house.register(path=path, labels=None, lengths=(6, 8))
    assert [one.accuracy for one in result.variants] == [1.0, 1.0]
    [short, _] = house.catalog.snapshot().tasks
    assert [spec.shape for spec in short.outputs] == [(6,), (6,)]
    assert short.bucket is not None
    assert [one.output for one in short.bucket.outputs] == ["start", "end"]
    assert positions_axis(short) is None
