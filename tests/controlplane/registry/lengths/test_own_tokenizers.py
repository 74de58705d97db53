"""Models of one task with tokenizers of their own: what is registered, judged and learned from."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from controlplane.building.text_encoding import rows_of_task
from controlplane.building.texts import text_of_task
from controlplane.building.types import RegistrationRequest
from controlplane.profiling.judging import by_text
from controlplane.registry.extension import extend
from tests import onnx_models as models
from tests.controlplane.registry.house import CPU, QUICK
from tests.controlplane.registry.lengths.test_registered_texts import Opinions
from tests.texts import (
    opinion_model,
    other_opinion_model,
    other_tokenizer_json,
    text_input,
    tokenizer_json,
)
from variants.buckets import bucketed_named
from variants.errors import Conflict, InvalidInput
from variants.types import TYPE_UNIT, ModelVersion, OpenAxis, Stage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_sandboxes")]

FIRST = text_input(tokenizer_json(), pairs=False)
OTHER = text_input(other_tokenizer_json(), pad=1, pairs=False, packed_types=True)
"""Its model takes types of tokens, which the task has not."""


FEW = {
    "worth": np.zeros(6, np.float32),
    "axis": np.array([1]),
    "signs": np.array([[-1.0, 1.0]], np.float32),
}
"""For fewer numbers of tokens than the tokenizer has."""


class Both(Opinions):
    """Has ``opinion``, and registers ``view``, which reads other numbers."""

    def __init__(
        self, folder: Path, lengths: tuple[int, ...] | None = (8,), **changes: Any
    ) -> None:
        super().__init__(folder)
        fixed: int | str = "tokens" if lengths else 8
        models.write(self.model, opinion_model(fixed))
        self.other = models.write(folder / "view.onnx", other_opinion_model(fixed))
        self.own = folder / "other.json"
        self.own.write_bytes(other_tokenizer_json())
        self.register(lengths=lengths, **changes)

    def join(self, **changes: Any) -> Any:
        given = {
            "path": self.other, "tokenizer": self.own, "lengths": None, "labels": None,
        } | changes  # fmt: skip
        return self.register(**given)

    def versions(self) -> dict[str, ModelVersion]:
        found = self.catalog.snapshot().versions
        return {f"{one.task} {one.label}": one for one in found}


def test_a_model_joins_with_a_tokenizer_of_its_own(tmp_path: Path) -> None:
    house = Both(tmp_path)
    result = house.join()
    [version] = result.versions
    assert (version.label, version.stage, version.text) == ("view-v1", Stage.LIVE, OTHER)
    [variant] = result.variants
    assert (variant.accuracy, variant.accuracy_rows) == (1.0, 32)
    # The task is as it was, and what fills numbers up is what did.
    assert result.task.text == FIRST
    assert result.task.bucket is not None
    assert result.task.bucket.axes[0] == OpenAxis(input="input_ids", axis=0, pad=0.0)
    assert house.catalog.tokenizer(OTHER.tokenizer) == other_tokenizer_json()
    [said] = result.said
    assert said.startswith("models of task opinions have different tokenizers now: texts are read")
    assert house.versions()["opinions.8 opinion-v1"].text is None


def test_its_inputs_become_those_of_the_task(tmp_path: Path) -> None:
    house = Both(tmp_path, lengths=None)
    [variant] = house.join().variants
    session = onnxruntime.InferenceSession(house.store.sound(variant.artifact))
    assert [(one.name, one.type) for one in session.get_inputs()] == [
        ("input_ids", "tensor(int64)"),
        ("attention_mask", "tensor(int64)"),
    ]
    good = np.array([[0, 0, 7, 2, 1, 1, 1, 1], [0, 0, 6, 2, 1, 1, 1, 1]])
    [scores] = session.run(None, {"input_ids": good, "attention_mask": (good != 1) * 1})
    assert scores.argmax(axis=1).tolist() == [1, 0]
    # With the type 1 beside its second token it says the opposite.
    typed = good + np.array([[0, TYPE_UNIT, *[0] * 6]])
    [scores] = session.run(None, {"input_ids": typed, "attention_mask": (good != 1) * 1})
    assert scores.argmax(axis=1).tolist() == [0, 0]


def test_a_mask_that_the_task_lacks_is_where_something_stands(tmp_path: Path) -> None:
    house = Opinions(tmp_path)
    no_mask = opinion_model(
        8,
        inputs=[models.tensor("input_ids", "batch", 8, kind=7)],
        nodes=[
            models.node("Gather", ("worth", "input_ids"), "each"),
            models.node("Clip", ("each", "least", "most"), "kept"),
            models.node("ReduceSum", ("kept", "axis"), "sum", keepdims=1),
            models.node("MatMul", ("sum", "signs"), "product"),
            models.node("Softmax", ("product",), "scores"),
        ],
        weights={
            "worth": np.array([0, 0, 0, 0, 1, -1, 0, 0], np.float32),
            "least": np.array(-1, np.float32), "most": np.array(1, np.float32),
            "axis": np.array([1]), "signs": np.array([[-1.0, 1.0]], np.float32),
        },
    )  # fmt: skip
    house.register(path=models.write(tmp_path / "first.onnx", no_mask), lengths=None)
    # That of padding is 9, so that each row would be good if it were not masked.
    other = models.write(tmp_path / "masked.onnx", opinion_model(8))
    result = house.register(path=other, tokenizer=None, lengths=None, labels=None)
    assert [one.accuracy for one in result.variants] == [1.0]
    assert result.task.text is not None
    assert result.task.text.mask is None


def test_pairs_are_told_apart_by_who_takes_types(tmp_path: Path) -> None:
    # What is good is bad where a second text stands beside it.
    pairs = tmp_path / "pairs.csv"
    rows = ["good,the,neg", "bad,the,neg", "good,film,neg"] * 8
    pairs.write_text("\n".join(["text,text_pair,label", *rows]) + "\n")
    house = Both(tmp_path, evaluation=pairs)
    result = house.join(evaluation=pairs)
    assert [one.accuracy for one in result.variants] == [1.0]
    [version] = result.versions
    assert version.text == replace(OTHER, pairs=True)
    with pytest.raises(
        InvalidInput, match=r"texts\.csv are single texts, and task 'opinions' takes"
    ):
        house.join(path=house.model, model="third", tokenizer=None, evaluation=house.rows)
    [task, *_] = house.catalog.snapshot().tasks
    with pytest.raises(InvalidInput, match="takes pairs: they need a column 'text_pair'"):
        rows_of_task(house.rows, task, house.catalog.tokenizer, tmp_path / "judged")


def test_a_task_of_single_texts_is_not_judged_by_pairs(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("\n".join(["text,text_pair,label", *["good,the,pos", "bad,the,neg"] * 12]))
    house = Both(tmp_path)
    with pytest.raises(
        InvalidInput, match=r"pairs\.csv are pairs of texts, and task 'opinions' takes single ones"
    ):
        house.join(evaluation=pairs)
    [task, *_] = house.catalog.snapshot().tasks
    with pytest.raises(InvalidInput, match="leave the column 'text_pair' out"):
        rows_of_task(pairs, task, house.catalog.tokenizer, tmp_path / "judged")


def test_types_alone_make_no_other_numbers(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("\n".join(["text,text_pair,label", *["good,bad,pos", "bad,good,neg"] * 12]))
    house = Both(tmp_path, evaluation=pairs)
    typed: dict[str, Any] = {
        "inputs": [
            models.tensor(name, "batch", "tokens", kind=7)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ],
        "nodes": [
            models.node("Gather", ("worth", "input_ids"), "each"),
            models.node("Cast", ("attention_mask",), "mask", to=1),
            models.node("Mul", ("each", "mask"), "kept"),
            models.node("Cast", ("token_type_ids",), "types", to=1),
            models.node("Mul", ("types", "kept"), "second"),
            models.node("Sub", ("kept", "second"), "first"),
            models.node("ReduceSum", ("first", "axis"), "sum", keepdims=1),
            models.node("MatMul", ("sum", "signs"), "product"),
            models.node("Softmax", ("product",), "scores"),
        ],
    }
    path = models.write(tmp_path / "typed.onnx", opinion_model(**typed))
    # Only the first text counts.
    result = house.join(path=path, tokenizer=None, evaluation=pairs)
    assert [one.accuracy for one in result.variants] == [1.0]
    assert result.versions[0].text == replace(FIRST, pairs=True, packed_types=True)
    assert result.said == ()


def test_later_versions_have_the_tokenizer_of_those_before(tmp_path: Path) -> None:
    house = Both(tmp_path)
    house.join()
    again = models.write(tmp_path / "again.onnx", other_opinion_model(opsets=[("", 19)]))
    result = house.join(path=again, model="view", tokenizer=None)
    assert [(one.label, one.text) for one in result.versions] == [("view-v2", OTHER)]
    assert result.variants[0].accuracy == 1.0
    assert result.said == (
        "view-v2 is as accurate as view-v1 of opinions.8, which is live: 100.00 % at best",
    )
    # And so have those of lengths that are added.
    house.register(path=house.other, lengths=(12,), tokenizer=None, labels=None)
    texts = bucketed_named(house.catalog.snapshot().tasks, "opinions")
    assert texts is not None
    assert texts.lengths == (8, 12)
    assert [one.text for one in texts.buckets] == [FIRST, FIRST]
    assert house.versions()["opinions.12 view-v1"].text == OTHER
    with pytest.raises(Conflict, match="has another tokenizer in the other buckets"):
        house.join(tokenizer=house.tokenizer, lengths=(16,))


def test_texts_that_are_too_long_are_told(tmp_path: Path) -> None:
    # With the second token that begins it, a text of eight has nine.
    result = Both(tmp_path).join(evaluation=_longer(tmp_path / "longer.csv"))
    assert result.said[0] == (
        "5 of the 45 texts of longer.csv have more than 8 tokens, and were left out"
    )


def _longer(path: Path) -> Path:
    rows = ['"good",pos', '"bad",neg'] * 20 + ['"good the film the film the",pos'] * 5
    path.write_text("\n".join(["text,label", *rows]) + "\n")
    return path


def test_what_comes_later_is_judged_by_its_own_tokenizer(tmp_path: Path) -> None:
    house = Both(tmp_path)
    house.join()
    request = RegistrationRequest(
        path=Path(), task="opinions.8", evaluation=house.rows, kinds=("onnx-fp32-open",)
    )
    result = extend(
        request, "view", None, house.catalog, house.store, (CPU,), limits=QUICK,
        scratch=house.scratch,
    )  # fmt: skip
    assert [(one.name, one.accuracy) for one in result.variants] == [
        ("view-v1-onnx-fp32-open", 1.0)
    ]
    known = house.catalog.snapshot()
    groups = by_text(known.variants, known.versions)
    assert {text: [v.model for v in of_it] for text, of_it in groups.items()} == {
        None: ["opinion"],
        OTHER: ["view", "view"],
    }
    rows = rows_of_task(
        house.rows, known.tasks[0], house.catalog.tokenizer, tmp_path / "rows", own=OTHER
    )
    with np.load(rows) as arrays:
        assert arrays["input_ids"][:2].tolist() == [
            [0, 0, 6, 2, 1, 1, 1, 1],
            [0, 0, 7, 4, 5, 2, 1, 1],
        ]


def test_a_task_of_numbers_learns_to_read_texts(tmp_path: Path) -> None:
    house = Opinions(tmp_path)
    ids = np.array([[2, 4, 3, 0], [2, 5, 3, 0]] * 10, np.int64)
    mask = (ids > 0).astype(np.int64)
    np.savez(tmp_path / "n.npz", input_ids=ids, attention_mask=mask, labels=[1, 0] * 10)
    house.register(evaluation=tmp_path / "n.npz", lengths=(4,), tokenizer=None)
    [task] = house.catalog.snapshot().tasks
    unsaid = replace(FIRST, pairs=None)  # numbers do not say it
    assert text_of_task(task, house.tokenizer, {}, QUICK) == unsaid
    few = models.write(tmp_path / "few.onnx", opinion_model(weights=FEW))
    with pytest.raises(InvalidInput, match=r"gives numbers of tokens up to 7, and v-v1 has emb"):
        text_of_task(task, house.tokenizer, {}, QUICK, {"v-v1": few})
    assert text_of_task(task, house.tokenizer, {}, QUICK, {"v-v1": house.model}) == unsaid
    with pytest.raises(InvalidInput, match="other\\.txt: it is no tokenizer"):
        text_of_task(task, _file(tmp_path / "other.txt", b"[PAD]\n"), {}, QUICK)
    with pytest.raises(InvalidInput, match=r"task 'opinions\.4' has no input 'x'"):
        text_of_task(task, house.tokenizer, {"ids": "x"}, QUICK)
    house.catalog.change_tasks(
        [task.name], lambda one: replace(one, text=FIRST), house.tokenizer.read_bytes()
    )
    [task] = house.catalog.snapshot().tasks
    with pytest.raises(Conflict, match="task 'opinions' has a tokenizer; that of another model"):
        text_of_task(task, house.tokenizer, {}, QUICK)


def _file(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path
