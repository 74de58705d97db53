"""A file of clients' keys that is wrong is told before a gateway has to start with it."""

from controlplane.views.machines.keys_file import KeysLevel, keys_status


def test_nothing_is_said_of_a_file_that_can_be_read() -> None:
    for known in (True, False):
        status = keys_status("", known=known)
        assert (status.level, status.sentence) == (KeysLevel.READ, "")


def test_what_is_wrong_is_said_with_what_becomes_of_clients() -> None:
    had, never = (keys_status("keys, line 3: so", known=known) for known in (True, False))
    assert had.level is never.level is KeysLevel.WRONG
    assert had.sentence == (
        "The keys of clients cannot be read: this gateway goes on with the keys that it has, and"
        " one that starts has none. Correct the file: keys, line 3: so."
    )
    assert never.sentence == (
        "The keys of clients cannot be read: this gateway has started without keys, and knows"
        " no client. Correct the file: keys, line 3: so."
    )
