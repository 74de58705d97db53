"""Archives that are refused for how their zip file is laid out."""

import io
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests import onnx_models as models
from tests.corpus.case import Step, bad
from tests.corpus.pt2 import (
    NAME,
    ONNX,
    PROGRAM,
    ROOT,
    SAID,
    WEIGHTS,
    changed,
    members,
    pickled,
    sound,
    write,
)

# -- no archive ----------------------------------------------------------------------------------


@bad(Step.FIND, r"net.pt2 is empty$")
def empty_archive(folder: Path) -> Path:
    (folder / NAME).touch()
    return folder / NAME


@bad(Step.CHECK, rf"{SAID} is not a zip archive, or only a part of one$")
def onnx_as_an_archive(folder: Path) -> Path:
    return models.write(folder / NAME)


@bad(Step.CHECK, rf"{SAID} is a pickle, which is never loaded$")
def pickle_as_an_archive(folder: Path) -> Path:
    (folder / NAME).write_bytes(pickle.dumps([print], protocol=2))
    return folder / NAME


@bad(Step.CHECK, rf"{SAID} has the member 'archive/data.pkl', which would have to be unpickled")
def weights_as_torch_saves_them(folder: Path) -> Path:
    return write(folder / NAME, {"data.pkl": pickled(), "data/0": bytes(48), "version": b"3\n"})


@bad(Step.CHECK, rf"{SAID} is not a zip archive, or only a part of one$")
def archive_cut_off(folder: Path) -> Path:
    data = sound(folder / NAME).read_bytes()
    (folder / NAME).write_bytes(data[: len(data) // 2])
    return folder / NAME


@bad(Step.CHECK, rf"{SAID} is not a zip archive, or only a part of one$")
def archive_without_its_last_bytes(folder: Path) -> Path:
    data = sound(folder / NAME).read_bytes()
    (folder / NAME).write_bytes(data[:-5])
    return folder / NAME


# -- how it is laid out --------------------------------------------------------------------------


def patched(folder: Path, edit: Callable[[bytearray], object]) -> Path:
    """The sound archive with some of its bytes changed."""
    data = bytearray(sound(folder / NAME).read_bytes())
    edit(data)
    (folder / NAME).write_bytes(data)
    return folder / NAME


def entry(data: bytes | bytearray, name: str) -> int:
    """Where the zip directory's entry of a member is."""
    at = data.rindex((ROOT + name).encode()) - 46
    assert data[at : at + 4] == b"PK\x01\x02"
    return at


def put(data: bytearray, at: int, layout: str, *values: int) -> None:
    struct.pack_into(f"<{layout}", data, at, *values)


@bad(Step.CHECK, rf"{SAID} has a damaged zip directory$")
def directory_that_counts_too_many(folder: Path) -> Path:
    return patched(folder, lambda data: put(data, len(data) - 14, "HH", 99, 99))


@bad(Step.CHECK, rf"{SAID} has a damaged zip directory$")
def directory_with_a_damaged_entry(folder: Path) -> Path:
    return patched(folder, lambda data: put(data, entry(data, ONNX), "I", 0))


@bad(Step.CHECK, rf"{SAID} has the member '.*', which overlaps another, or leaves a gap$")
def members_that_overlap(folder: Path) -> Path:
    """As in zip bombs that need no recursion: many names for the same bytes."""

    def edit(data: bytearray) -> None:
        put(data, entry(data, PROGRAM) + 42, "I", 0)

    return patched(folder, edit)


@bad(Step.CHECK, rf"{SAID} has the member '.*', which the zip directory contradicts")
def sizes_that_contradict_each_other(folder: Path) -> Path:
    def edit(data: bytearray) -> None:
        size = struct.unpack_from("<I", data, entry(data, WEIGHTS) + 20)[0]
        put(data, entry(data, WEIGHTS) + 20, "II", size - 1, size - 1)

    return patched(folder, edit)


@bad(Step.CHECK, rf"{SAID} has the member 'archive/{PROGRAM}', which the zip directory contradicts")
def names_that_contradict_each_other(folder: Path) -> Path:
    """One reader sees the program, another sees something else."""

    def edit(data: bytearray) -> None:
        at = data.index((ROOT + PROGRAM).encode())
        data[at : at + len(ROOT + PROGRAM)] = (ROOT + "models/other.json").encode()

    return patched(folder, edit)


@bad(Step.CHECK, rf"{SAID} has the member '.*' with zip64 sizes that contradict its others$")
def zip64_sizes_that_lie(folder: Path) -> Path:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, content in members().items():
            info = zipfile.ZipInfo(ROOT + name)
            if name == ONNX:
                info.extra = struct.pack("<HHQQ", 1, 16, 2**40, 2**40)
            archive.writestr(info, content)
    (folder / NAME).write_bytes(data.getvalue())
    return folder / NAME


@bad(Step.CHECK, rf"{SAID} has a damaged member: 'archive/data/weights/weight_0'$")
def weight_with_a_flipped_byte(folder: Path) -> Path:
    def edit(data: bytearray) -> None:
        data[data.index(models.WEIGHT.tobytes()) + 2] ^= 1

    return patched(folder, edit)


@bad(Step.CHECK, rf"{SAID} has the member '.*', which overlaps another, or leaves a gap$")
def archive_behind_something_else(folder: Path) -> Path:
    """A zip's directory is at its end: what comes first may be another file altogether."""
    data = sound(folder / NAME).read_bytes()
    stub = b"#!/bin/sh\nexit 0\n"
    end = len(data) - 22
    start = struct.unpack_from("<I", data, end + 16)[0]
    moved = bytearray(stub + data)
    put(moved, len(stub) + end + 16, "I", start + len(stub))
    at = start + len(stub)
    while moved[at : at + 4] == b"PK\x01\x02":
        header = struct.unpack_from("<I", moved, at + 42)[0]
        put(moved, at + 42, "I", header + len(stub))
        at += 46 + sum(struct.unpack_from("<HHH", moved, at + 28))
    (folder / NAME).write_bytes(moved)
    return folder / NAME


@bad(Step.CHECK, rf"{SAID} is not a zip archive, or only a part of one$")
def archive_before_something_else(folder: Path) -> Path:
    return patched(folder, lambda data: data.extend(b"more"))


@bad(Step.CHECK, rf"{SAID} has the member '.*', which is encrypted, or packed in a way of its own$")
def encrypted_member(folder: Path) -> Path:
    def edit(data: bytearray) -> None:
        at = entry(data, PROGRAM)
        put(data, at + 8, "H", struct.unpack_from("<H", data, at + 8)[0] | 1)

    return patched(folder, edit)


@bad(Step.CHECK, rf"{SAID} has the member '.*' compressed; members are stored as they are$")
def compressed_bomb(folder: Path) -> Path:
    what = members() | {"data/weights/weight_0": bytes(2**25)}
    return write(folder / NAME, what, packing=zipfile.ZIP_DEFLATED)


@bad(Step.CHECK, rf"{SAID} has 20001 members, more than the 20000 allowed$")
def members_without_end(folder: Path) -> Path:
    return patched(folder, lambda data: put(data, len(data) - 14, "HH", 20_001, 20_001))


@bad(Step.CHECK, rf"{SAID} has the member 'archive/models/model.json' twice$")
def member_twice(folder: Path) -> Path:
    """Which of the two counts is for each reader to decide."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(sound(folder / NAME), "a") as archive:
            archive.writestr(zipfile.ZipInfo(ROOT + PROGRAM), b"{}")
    return folder / NAME


@bad(Step.CHECK, rf"{SAID} has a member that points outside: 'archive/\.\./\.\./etc/cron.d/job'$")
def member_above_its_folder(folder: Path) -> Path:
    return changed(folder, **{"../../etc/cron.d/job": b"* * * * * root true\n"})


@bad(Step.CHECK, rf"{SAID} has a member that points outside: '/etc/cron.d/job'$")
def member_at_an_absolute_path(folder: Path) -> Path:
    return write(folder / NAME, {"etc/cron.d/job": b"* * * * * root true\n"}, root="/")


@bad(Step.CHECK, rf"{SAID} has a member with an odd name: 'archive/a\\nb'$")
def member_with_a_line_break_in_its_name(folder: Path) -> Path:
    return changed(folder, **{"a\nb": b""})


@bad(Step.CHECK, rf"{SAID} has a member with a name of \d+ bytes$")
def member_with_a_name_without_end(folder: Path) -> Path:
    return changed(folder, **{"n" * 60_000: b""})


@bad(
    Step.CHECK,
    rf"{SAID} has the member 'archive/data/weights/weight_1', which is a link or a folder",
)
def member_that_is_a_link(folder: Path) -> Path:
    with zipfile.ZipFile(sound(folder / NAME), "a") as archive:
        link = zipfile.ZipInfo(ROOT + "data/weights/weight_1")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, b"/etc/passwd")
    return folder / NAME


@bad(Step.CHECK, rf"{SAID} has the member 'other/.*', which no archive of modelless.export has$")
def members_in_another_folder(folder: Path) -> Path:
    return write(folder / NAME, members(), root="other/")


@bad(Step.CHECK, rf"{SAID} is what torch.export.save writes, .*modelless.export\(module, ")
def what_torch_saves_by_itself(folder: Path) -> Path:
    import torch

    saved = folder / NAME
    program = torch.export.export(torch.nn.Linear(4, 3).eval(), (torch.zeros(2, 4),))
    torch.export.save(program, saved)
    return saved
