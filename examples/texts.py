"""From texts to an answer: two models with different tokenizers become a task asked with texts.

Start modelless in another terminal with ``make up``, and run::

    .venv/bin/python examples/texts.py

The task, ``library``, says from which library's documentation a sentence is: NumPy, SciPy or
scikit-learn, whose docstrings are at hand. Two tokenizers are trained on some of them, one of word
pieces and one of pairs of bytes, and a model on the numbers of each: the mean of vectors of 8 and
of 64 numbers. Each is registered with its tokenizer and with sentences that nothing was trained
on. Nobody who asks needs to know of any of them. Files go to ``--folder``.
"""

import argparse
import csv
import os
import re
import time
import warnings
from pathlib import Path
from random import Random

import numpy
import scipy
import sklearn
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import nn

import modelless

LIBRARIES = {"numpy": numpy, "scipy": scipy, "scikit-learn": sklearn}
EACH = 3_000
"""Sentences of a library."""
LENGTHS = (32, 128)
WORDS = 6_000
ASKED = "the inverse of the cumulative distribution function", "fit the estimator to the data"


def sentences(folder: Path, draw: Random) -> list[str]:
    """Sentences of the docstrings of a library, in a random order."""
    found = set()
    for path in folder.rglob("*.py"):
        for text in re.findall(r'"""(.*?)"""', path.read_text(errors="ignore"), re.DOTALL):
            for one in re.split(r"(?<=\.)\s+|\n\s*\n", text):
                plain = " ".join(one.split())
                if 40 <= len(plain) <= 400 and plain[0].isalpha() and ">>>" not in plain:
                    found.add(plain)
    ordered = sorted(found)
    draw.shuffle(ordered)
    return ordered[:EACH]


def train_word_pieces(texts: list[str]) -> Tokenizer:
    """Word pieces, with a token before and one behind each text, as BERT has them."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=WORDS, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")  # noqa: S106
    return tokenizer


def train_byte_pairs(texts: list[str]) -> Tokenizer:
    """Pairs of bytes, with other tokens around each text, as RoBERTa has them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = trainers.BpeTrainer(
        vocab_size=WORDS, special_tokens=["<s>", "<pad>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.enable_padding(pad_id=1, pad_token="<pad>")  # noqa: S106
    return tokenizer


class Reader(nn.Module):  # type: ignore[misc]
    """The mean of the vectors of a text's tokens, and a linear layer on it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vectors = nn.Embedding(WORDS, width)
        self.head = nn.Linear(width, len(LIBRARIES))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Both have shape ``(rows, tokens)``; what is returned has ``(rows, libraries)``."""
        mask = attention_mask.unsqueeze(-1).float()
        mean = (self.vectors(input_ids) * mask).sum(1) / mask.sum(1)
        scores: torch.Tensor = self.head(mean).softmax(-1)
        return scores


def train(width: int, tokenizer: Tokenizer, rows: list[tuple[str, int]]) -> Reader:
    torch.manual_seed(0)
    made = Reader(width)
    optimizer = torch.optim.Adam(made.parameters(), lr=0.01)
    for _ in range(4):
        for at in range(0, len(rows), 256):
            part = rows[at : at + 256]
            read = tokenizer.encode_batch([text for text, _ in part])
            ids = torch.tensor([one.ids for one in read])
            mask = torch.tensor([one.attention_mask for one in read])
            loss = nn.functional.nll_loss(
                made(ids, mask).log(), torch.tensor([right for _, right in part])
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    made.eval()
    return made


def export(made: Reader, path: Path) -> None:
    """Write a model that takes texts of any number of tokens."""
    one = torch.ones(2, 5, dtype=torch.int64)
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", max=512)}
    with warnings.catch_warnings():  # of PyTorch's own, about axes that share a name
        warnings.simplefilter("ignore")
        torch.onnx.export(
            made, (one, one.clone()), path, dynamo=True, external_data=False, verbose=False,
            input_names=["input_ids", "attention_mask"], output_names=["scores"],
            dynamic_shapes={"input_ids": sizes, "attention_mask": sizes},
        )  # fmt: skip


def wait_until_answered(client: modelless.Client) -> None:
    for _ in range(60):
        try:
            client.query("library", ["a sentence"], latency_ms=2_000)
            return
        except modelless.ModellessError:
            time.sleep(0.5)
    raise SystemExit("library is not answered; see: modelless status")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--url", help="else MODELLESS_URL, or this machine")
    options.add_argument("--folder", type=Path, default=Path("texts"))
    given = options.parse_args()
    folder = given.folder
    folder.mkdir(parents=True, exist_ok=True)

    draw = Random(0)
    rows = [
        (text, number)
        for number, library in enumerate(LIBRARIES.values())
        for text in sentences(Path(library.__file__).parent, draw)
    ]
    draw.shuffle(rows)
    held_out, learned = rows[:1_000], rows[1_000:]
    names = list(LIBRARIES)
    with (folder / "held_out.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("text", "label"))
        table.writerows((text, names[number]) for text, number in held_out)

    token = os.environ.get("MODELLESS_API_TOKEN", "")
    with modelless.Client(given.url, token=token) as client:
        for name, width, train_tokenizer in (
            ("narrow", 8, train_word_pieces),
            ("wide", 64, train_byte_pairs),
        ):
            tokenizer = train_tokenizer([text for text, _ in learned])
            tokenizer.save(str(folder / f"{name}.json"))
            export(train(width, tokenizer, learned), folder / f"{name}.onnx")
            # The second model finds the task there, with its lengths and labels.
            of_the_first = {"lengths": LENGTHS, "labels": names}
            client.register(
                folder / f"{name}.onnx", task="library", evaluation=folder / "held_out.csv",
                tokenizer=folder / f"{name}.json", variants=["onnx-fp32"], measure="sampled",
                **(of_the_first if name == "narrow" else {}),
            )  # fmt: skip
            print(f"registered {name}")
        wait_until_answered(client)
        for text in ASKED:
            for preference in ("cost", "accuracy"):
                reply = client.query("library", [text], latency_ms=2_000, prefer=preference)
                print(f"{text!r} is of {reply.labels[0]}, from {reply.variant}")


if __name__ == "__main__":
    main()
