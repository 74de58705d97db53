"""Tokenising: from texts to numbers of tokens, by a ``tokenizer.json``.

Imports the library ``tokenizers``, and so does only who reads texts: the process that does it for a
gateway, and that in which foreign models are tried. Neither may go on with a text of any size, so
each text is bounded before it is read.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from variants.errors import InvalidInput
from variants.texts.inputs import MOST_BYTES, fills_of
from variants.types import TYPE_UNIT, TextInput

MOST_CHARACTERS = 64
"""Of a text, for each token that its row may have: English has some four or five."""
AT_ONCE = 64
"""Texts whose tokens, which take some 100 bytes each, are held at a time."""


class Unheld(InvalidInput):
    """A text that rows of one tokenizer do not hold; those of another one may."""

    def __init__(self, message: str, why: str) -> None:
        """
        Args:
            why: a fragment that follows the name of a variant.
        """
        super().__init__(message)
        self.why = why


Text = str | tuple[str, str]
"""A text, or one and a second one beside it, as for the question whether the first implies it."""


class Tokens(NamedTuple):
    """A text as numbers of tokens, with those that its model wants before and behind it."""

    ids: NDArray[np.int64]
    """Shape (length,)."""
    types: NDArray[np.int64]
    """0 for each token of the text, and 1 for those of a second one."""
    spans: NDArray[np.int64] | None = None
    """Shape (length, 2): where in its text each token begins and ends, in characters; 0 and 0 for
    those that stand for none. Of a pair (length, 3): and in which of the two texts, 0 or 1. Only
    where it was asked for."""
    words: NDArray[np.int64] | None = None
    """Shape (length,): the number of the word that each token is of, -1 for those of none. Only of
    a text that came as words."""


class Tokeniser:
    """A tokenizer as a ``tokenizer.json`` describes it. It adds what its model wants before and
    behind a text; what the file says of cutting and filling up is not done."""

    def __init__(self, data: bytes, where: str) -> None:
        """
        Args:
            data: the bytes of a ``tokenizer.json``.
            where: what it is called in sentences.

        Raises:
            InvalidInput: they are none, or the library is not installed.
        """
        if len(data) > MOST_BYTES:
            raise InvalidInput(
                f"{where} has {len(data) / 2**20:,.0f} MiB, more than the"
                f" {MOST_BYTES >> 20} allowed"
            )
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # before it is imported
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise InvalidInput(
                "texts are read by the library tokenizers, which is not installed: pip install"
                " 'modelless[text]'"
            ) from error
        _check_json(data, where)
        try:
            self._tokenizer: Any = Tokenizer.from_buffer(data)
            self.pad = _pad_of(self._tokenizer)
            self._tokenizer.no_padding()
            self._tokenizer.no_truncation()
        except Exception as error:  # the library has no error of its own
            raise InvalidInput(
                f"{where} is no tokenizer.json: {str(error)[:200]}; that of the library"
                " transformers is written by save_pretrained"
            ) from error
        self._where = where

    @property
    def size(self) -> int:
        """How many numbers of tokens there are."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    @property
    def highest(self) -> int:
        """The highest number of a token that it may give, added ones and what fills up included."""
        known = self._tokenizer.get_vocab(with_added_tokens=True).values()
        around = self._tokenizer.encode("", "").ids  # a template names numbers by itself
        return int(max((*known, *around, self.pad)))

    def read(
        self, texts: Sequence[Text], longest: int | None, *, cut: bool = False, spans: bool = False
    ) -> list[Tokens]:
        """The tokens of each text.

        Args:
            longest: tokens that a text may have; None: any number.
            cut: whether longer texts are cut off, instead of refused. What its model wants behind
                a text stays there.
            spans: whether to say where each token stands.

        Raises:
            Unheld: a text is too long, or of no tokens.
            InvalidInput: it cannot be read.
        """
        if longest is not None:
            texts = [_bounded(text, number, longest, cut) for number, text in enumerate(texts)]
        if cut and longest is not None:
            try:
                self._tokenizer.enable_truncation(longest)
            except Exception as error:
                raise InvalidInput(
                    f"a text cannot be cut off at {longest} tokens: {str(error)[:100]}"
                ) from error
        read = self._tokenizer.encode_batch if spans else self._tokenizer.encode_batch_fast
        found: list[Tokens] = []
        try:
            for at in range(0, len(texts), AT_ONCE):
                some = list(texts[at : at + AT_ONCE])
                pairs = isinstance(some[0], tuple)
                found += [_tokens(one, spans=spans, pairs=pairs) for one in read(some)]
        except Exception as error:
            raise InvalidInput(_unreadable(texts) or f"a text cannot be read: {error}") from error
        finally:
            if cut:
                self._tokenizer.no_truncation()
        for number, one in enumerate(found):
            if not len(one.ids):
                raise Unheld(f"text {number} has no tokens", f"makes no tokens of text {number}")
            if longest is not None and len(one.ids) > longest:
                has = len(one.ids)
                raise Unheld(
                    f"text {number} has {has} tokens, and at most {longest} are taken;"
                    " 'truncate' cuts it off",
                    f"makes {has} tokens of text {number}, and takes {longest} at most",
                )
        return found

    def read_words(self, rows: Sequence[Sequence[str]]) -> list[Tokens]:
        """The tokens of texts that come as words, with the word of each token.

        Raises:
            InvalidInput: one cannot be read.
        """
        found: list[Tokens] = []
        for number, words in enumerate(rows):
            try:
                read = self._tokenizer.encode(list(words), is_pretokenized=True)
            except Exception as error:
                raise InvalidInput(f"the words of row {number} cannot be read: {error}") from error
            of = [-1 if word is None else word for word in read.word_ids]
            found.append(_tokens(read, spans=False)._replace(words=np.array(of, np.int64)))
        return found


def filled(
    texts: Sequence[Tokens], text: TextInput, dtypes: Mapping[str, str], width: int
) -> dict[str, NDArray[Any]]:
    """The rows ``(texts, width)`` of each input that texts fill, by its name.

    Args:
        dtypes: of these inputs, by name.
        width: at least the tokens of the longest.
    """
    rows = {
        name: np.full((len(texts), width), fill, dtypes[name])
        for name, fill in fills_of(text).items()
    }
    for row, one in enumerate(texts):
        end = len(one.ids)
        rows[text.ids][row, :end] = one.ids
        if text.mask is not None:
            rows[text.mask][row, :end] = 1
        if text.types is not None:
            rows[text.types][row, :end] = one.types
        elif text.packed_types:
            rows[text.ids][row, :end] += (one.types * TYPE_UNIT).astype(dtypes[text.ids])
    return rows


def _tokens(found: Any, *, spans: bool, pairs: bool = False) -> Tokens:
    places = np.array(found.offsets, np.int64).reshape(-1, 2) if spans else None
    if places is not None and pairs:
        places = np.column_stack([places, [of or 0 for of in found.sequence_ids]])
    return Tokens(np.array(found.ids, np.int64), np.array(found.type_ids, np.int64), places)


def _check_json(data: bytes, where: str) -> None:
    """Refuse what is plainly another file, which the library would describe by a place in it.

    Raises:
        InvalidInput: it is.
    """
    begin = data[:64].lstrip()
    if not begin.startswith(b"{"):
        hint = ""
        if begin.startswith(b"[PAD]") or b"\n" in begin[:32]:
            hint = "; a vocab.txt alone does not say how texts become tokens"
        raise InvalidInput(
            f"{where} is no tokenizer.json, as save_pretrained of transformers writes it beside a"
            f" model{hint}"
        )


def _unreadable(texts: Sequence[Text]) -> str:
    """Which text has half of a character, which JSON can write and nobody can read."""
    for number, text in enumerate(texts):
        parts = (text,) if isinstance(text, str) else text
        if any("\ud800" <= letter <= "\udfff" for part in parts for letter in part):
            return f"text {number} has a surrogate, which is half of a character"
    return ""


def _pad_of(tokenizer: Any) -> int:
    """The number of the token that fills up: as the file says, else of a usual name, else 0."""
    if (padding := tokenizer.padding) is not None:
        return int(padding["pad_id"])
    for name in ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>", "</s>"):
        if (number := tokenizer.token_to_id(name)) is not None:
            return int(number)
    return 0


def _bounded(text: Text, number: int, longest: int, cut: bool) -> Text:
    """A text that is no longer than it may be before it is read.

    Raises:
        InvalidInput: it is longer, and is not to be cut off.
    """
    most = MOST_CHARACTERS * longest
    parts = (text,) if isinstance(text, str) else text
    size = sum(map(len, parts))
    if size <= most:
        return text
    if not cut:
        raise Unheld(
            f"text {number} has {size} characters, and at most {most} are read for {longest}"
            " tokens; 'truncate' cuts it off",
            f"takes {longest} tokens at most, too few for the {size} characters of text {number}",
        )
    if isinstance(text, str):
        return text[:most]
    return text[0][:most], text[1][:most]
