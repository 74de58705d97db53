"""Texts as numbers of tokens: what comes of them, and which are refused."""

import numpy as np
import pytest

from tests.texts import BAD, BEGIN, END, FILM, GOOD, PAD, THE, UNKNOWN, tokenizer_json
from variants.errors import InvalidInput
from variants.texts.tokenising import MOST_CHARACTERS, Tokeniser


@pytest.fixture(scope="module")
def tokeniser() -> Tokeniser:
    return Tokeniser(tokenizer_json(), "tokenizer.json")


def test_a_text_is_read_as_its_model_wants_it(tokeniser: Tokeniser) -> None:
    first, second = tokeniser.read(["The GOOD film", "nothing"], None)
    assert first.ids.tolist() == [BEGIN, THE, GOOD, FILM, END]
    assert second.ids.tolist() == [BEGIN, UNKNOWN, END]
    assert first.types.tolist() == [0] * 5
    assert first.ids.dtype == np.int64
    assert first.spans is None


def test_of_two_texts_the_second_has_types_of_its_own(tokeniser: Tokeniser) -> None:
    [found] = tokeniser.read([("good", "bad film")], None)
    assert found.ids.tolist() == [BEGIN, GOOD, END, BAD, FILM, END]
    assert found.types.tolist() == [0, 0, 0, 1, 1, 1]


def test_the_file_says_what_fills_up_and_nothing_is_cut_or_filled_up(tokeniser: Tokeniser) -> None:
    assert (tokeniser.pad, tokeniser.size) == (PAD, 8)
    assert Tokeniser(tokenizer_json(pad=FILM), "t").pad == FILM
    [found] = tokeniser.read(["good " * 30], None)
    assert len(found.ids) == 32


def test_a_long_text_is_refused_or_cut_off(tokeniser: Tokeniser) -> None:
    with pytest.raises(InvalidInput, match="text 1 has 7 tokens, and at most 6 are taken"):
        tokeniser.read(["good", "good bad good bad film"], 6)
    first, second = tokeniser.read(["good", "good bad good bad film"], 6, cut=True)
    assert first.ids.tolist() == [BEGIN, GOOD, END]
    # What its model wants behind a text stays there.
    assert second.ids.tolist() == [BEGIN, GOOD, BAD, GOOD, BAD, END]
    assert len(tokeniser.read(["good " * 5], None)[0].ids) == 7  # and no longer cut


def test_a_text_is_not_read_at_any_length(tokeniser: Tokeniser) -> None:
    most = 6 * MOST_CHARACTERS
    long = "good" + " " * most
    with pytest.raises(
        InvalidInput, match=f"text 0 has {len(long)} characters, and at most {most}"
    ):
        tokeniser.read([long], 6)
    assert tokeniser.read([long], 6, cut=True)[0].ids.tolist() == [BEGIN, GOOD, END]
    with pytest.raises(InvalidInput, match="characters"):
        tokeniser.read([("good", " " * most)], 6)


def test_where_tokens_stand_is_told_where_it_is_asked(tokeniser: Tokeniser) -> None:
    [found] = tokeniser.read(["the  good"], None, spans=True)
    assert found.spans is not None
    assert found.spans.tolist() == [[0, 0], [0, 3], [5, 9], [0, 0]]


def test_of_words_each_token_says_which_it_is_of(tokeniser: Tokeniser) -> None:
    [found] = tokeniser.read_words([["good", "film-film"]])
    assert found.words is not None
    assert found.ids.tolist() == [BEGIN, GOOD, FILM, UNKNOWN, FILM, END]
    assert found.words.tolist() == [-1, 0, 1, 1, 1, -1]


def test_what_no_text_can_hold_is_refused(tokeniser: Tokeniser) -> None:
    with pytest.raises(InvalidInput, match="text 1 has a surrogate, which is half of"):
        tokeniser.read(["good", "\ud800"], None)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "vocab.json is no tokenizer.json, as save_pretrained"),
        (b"[PAD]\n[UNK]\n", "a vocab.txt alone does not say how texts become tokens"),
        (b'{"good": 1}', "vocab.json is no tokenizer.json: .*save_pretrained"),
        (b'{"version": ', "vocab.json is no tokenizer.json"),
        (b"\x80\x04", "vocab.json is no tokenizer.json"),
    ],
)
def test_another_file_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Tokeniser(data, "vocab.json")
