"""Looking things up by name: laziness, what is unknown, and what is not installed."""

import sys

import pytest

from variants.errors import InvalidInput, RuntimeFailed
from variants.registry import Entry, load, missing

ENTRIES = {
    "upper": Entry(target="string:capwords", about="every word with a capital letter"),
    "absent": Entry(target="no_such_module:factory", needs=("json", "no_such_module")),
    "undeclared": Entry(target="no_such_module:factory"),
    "nested": Entry(target="json:loads", needs=("no_such_module.part",)),
}


def test_what_an_entry_names_is_returned() -> None:
    assert load("spelling", "upper", ENTRIES)("two words") == "Two Words"


def test_an_unknown_name_is_refused_and_the_known_ones_are_told() -> None:
    with pytest.raises(InvalidInput) as refused:
        load("spelling", "lower", ENTRIES)
    assert refused.value.message == (
        "spelling 'lower' is unknown; there are: absent, nested, undeclared, upper"
    )


def test_the_caller_says_which_error_it_is() -> None:
    with pytest.raises(RuntimeFailed, match="runtime 'lower' is unknown"):
        load("runtime", "lower", ENTRIES, RuntimeFailed)


def test_a_missing_package_is_named() -> None:
    with pytest.raises(InvalidInput, match="it needs the package 'no_such_module'"):
        load("spelling", "absent", ENTRIES)


def test_what_does_not_import_is_not_installed() -> None:
    with pytest.raises(InvalidInput, match="not installed here: No module named 'no_such_module'"):
        load("spelling", "undeclared", ENTRIES)


def test_what_is_missing_is_known_without_an_import(monkeypatch: pytest.MonkeyPatch) -> None:
    assert missing(ENTRIES["upper"]) is None
    assert missing(ENTRIES["absent"]) == "no_such_module"
    assert missing(ENTRIES["nested"]) == "no_such_module.part"
    monkeypatch.delitem(sys.modules, "this", raising=False)
    assert missing(Entry(target="this:d", needs=("this",))) is None
    assert "this" not in sys.modules


def test_a_package_whose_import_is_forbidden_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wave", None)
    assert missing(Entry(target="wave:open", needs=("wave",))) == "wave"
