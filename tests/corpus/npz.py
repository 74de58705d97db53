"""Evaluation rows that are refused, once the model has been checked."""

import io
import os
import pickle
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from tests import onnx_models as models
from tests.corpus.case import Step, bad

NAME = "rows.npz"
DAMAGED = r"rows.npz is not an .npz file, or is damaged"


def written(folder: Path, **changes: Any) -> Path:
    return models.write_rows(folder / NAME, **changes)


def members(folder: Path, *arrays: tuple[str, bytes]) -> Path:
    """A file with members that no library would write."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names that are there twice
        with zipfile.ZipFile(folder / NAME, "w") as archive:
            for name, data in arrays:
                archive.writestr(name, data)
    return folder / NAME


def array(values: Any) -> bytes:
    data = io.BytesIO()
    np.save(data, values)
    return data.getvalue()


def header(shape: str, kind: str = "'<f4'") -> bytes:
    """What begins an array that declares this shape and type."""
    text = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


PIXELS = ("pixels.npy", array(models.rows()["pixels"]))
LABELS = ("labels.npy", array(models.rows()["labels"]))


# -- no file of rows -----------------------------------------------------------------------------


@bad(Step.ROWS, r"rows.npz is empty$")
def empty_rows(folder: Path) -> Path:
    (folder / NAME).touch()
    return folder / NAME


@bad(Step.ROWS, DAMAGED)
def rows_as_text(folder: Path) -> Path:
    (folder / NAME).write_text("pixels,labels\n0.5,1\n")
    return folder / NAME


@bad(Step.ROWS, DAMAGED)
def rows_as_a_single_array(folder: Path) -> Path:
    (folder / NAME).write_bytes(array(models.rows()["pixels"]))
    return folder / NAME


@bad(Step.ROWS, DAMAGED)
def rows_as_a_pickle(folder: Path) -> Path:
    (folder / NAME).write_bytes(pickle.dumps(models.rows()))
    return folder / NAME


@bad(Step.ROWS, DAMAGED)
def rows_cut_off(folder: Path) -> Path:
    data = written(folder).read_bytes()
    (folder / NAME).write_bytes(data[:-40])
    return folder / NAME


@bad(Step.ROWS, r"rows.npz: array 'pixels' cannot be read$")
def rows_with_a_flipped_byte(folder: Path) -> Path:
    data = bytearray(written(folder).read_bytes())
    data[250] ^= 0xFF
    (folder / NAME).write_bytes(data)
    return folder / NAME


@bad(Step.ROWS, r"rows.npz is not a plain file$")
def rows_from_a_pipe(folder: Path) -> Path:
    """Reading one would wait for a writer for ever."""
    os.mkfifo(folder / NAME)
    return folder / NAME


@bad(Step.ROWS, r"rows.npz is a symbolic link")
def rows_behind_a_link(folder: Path) -> Path:
    real = models.write_rows(folder / "real.npz")
    (folder / NAME).symlink_to(real)
    return folder / NAME


# -- bombs and lies ------------------------------------------------------------------------------


@bad(Step.ROWS, r"rows.npz: array 'labels' holds pickled objects, which are never loaded$")
def pickled_labels(folder: Path) -> Path:
    return written(folder, labels=np.array([print] * 30, dtype=object))


@bad(Step.ROWS, r"rows.npz: array 'pixels' (holds pickled objects|cannot be read)")
def pickle_inside_a_structure(folder: Path) -> Path:
    kind = "[('x', '<f4'), ('y', '|O')]"
    return members(folder, ("pixels.npy", header("(30,)", kind) + bytes(480)), LABELS)


@bad(Step.ROWS, r"rows.npz unpacks to [0-9,]+ MiB, more than the 512 allowed$")
def zip_bomb(folder: Path) -> Path:
    """A gigabyte of zeros in a few kilobytes: deflated once, and put together from that."""
    block = zipped_zeros(2**24)
    names = [f"a{i}.npy" for i in range(60)]
    return deflated(folder, [(name, block, 2**24, 0) for name in names])


@bad(Step.ROWS, r"rows.npz: array 'pixels' cannot be read$")
def bomb_that_declares_a_small_size(folder: Path) -> Path:
    return deflated(folder, [("pixels.npy", zipped_zeros(2**24), 608, 0)])


def zipped_zeros(size: int) -> bytes:
    import zlib

    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(bytes(size)) + packer.flush()


def deflated(folder: Path, entries: list[tuple[str, bytes, int, int]]) -> Path:
    """A zip of packed members: name, packed bytes, the size and the checksum that it declares."""
    body, directory = io.BytesIO(), io.BytesIO()
    for name, data, size, crc in entries:
        at = body.tell()
        about = struct.pack("<HHHHIIIHH", 0, 8, 0, 0, crc, len(data), size, len(name), 0)
        body.write(struct.pack("<IH", 0x04034B50, 20) + about + name.encode() + data)
        directory.write(struct.pack("<IHH", 0x02014B50, 20, 20) + about)
        directory.write(struct.pack("<HHHII", 0, 0, 0, 0, at) + name.encode())
    count, start = len(entries), body.tell()
    body.write(directory.getvalue())
    body.write(
        struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, count, count, body.tell() - start, start, 0)
    )
    (folder / NAME).write_bytes(body.getvalue())
    return folder / NAME


@bad(Step.ROWS, r"rows.npz: array 'pixels' declares more data than it has$")
def header_that_declares_terabytes(folder: Path) -> Path:
    return members(folder, ("pixels.npy", header("(1000000000000, 4)") + bytes(64)), LABELS)


@bad(Step.ROWS, r"rows.npz: array 'pixels' cannot be read$")
def header_of_a_negative_size(folder: Path) -> Path:
    return members(folder, ("pixels.npy", header("(-1, 4)") + bytes(480)), LABELS)


@bad(Step.ROWS, r"rows.npz: array 'pixels' declares more data than it has$")
def header_whose_size_overflows(folder: Path) -> Path:
    """2^62 x 4 elements of 4 bytes: 16 modulo 2^64."""
    return members(folder, ("pixels.npy", header(f"({2**62}, 4)") + bytes(480)), LABELS)


@bad(Step.ROWS, r"rows.npz: array 'pixels' cannot be read$")
def header_that_is_code(folder: Path) -> Path:
    return members(folder, ("pixels.npy", header("__import__('os').getpid()") + bytes(480)), LABELS)


@bad(Step.ROWS, r"rows.npz: array 'pixels' cannot be read$")
def header_nested_without_end(folder: Path) -> Path:
    text = b"(" * 60_000
    data = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text
    return members(folder, ("pixels.npy", data), LABELS)


@bad(Step.ROWS, r"rows.npz has more than 64 arrays$")
def too_many_arrays(folder: Path) -> Path:
    return members(folder, *((f"a{i}.npy", b"") for i in range(65)))


@bad(Step.ROWS, r"rows.npz has more than 64 arrays$")
def directory_of_more_than_it_counts(folder: Path) -> Path:
    """Readers go by the directory's bytes, and build a thing for each entry in it."""
    path = members(folder, *((f"a{i}.npy", b"") for i in range(800)))
    data = bytearray(path.read_bytes())
    struct.pack_into("<HH", data, len(data) - 14, 1, 1)
    path.write_bytes(data)
    return path


@bad(Step.ROWS, r"rows.npz has the array 'pixels' twice$")
def array_twice(folder: Path) -> Path:
    """Which of the two counts is for each reader to decide."""
    return members(folder, PIXELS, LABELS, PIXELS)


@bad(Step.ROWS, r"rows.npz: array 'pixels' cannot be read$")
def encrypted_rows(folder: Path) -> Path:
    path = members(folder, PIXELS, LABELS)
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    return path


# -- rows that do not fit ------------------------------------------------------------------------


@bad(Step.ROWS, r"rows.npz lacks the array 'labels'; it has pixels$")
def no_labels(folder: Path) -> Path:
    return written(folder, labels=None)


@bad(Step.ROWS, r"rows.npz lacks the array 'pixels'; it has labels, x: arrays are called like")
def rows_of_another_input(folder: Path) -> Path:
    return written(folder, pixels=None, x=models.rows()["pixels"])


@bad(Step.ROWS, r"rows.npz: array 'pixels' has shape \(30, 5\), not \(rows, 4\)$")
def rows_too_wide(folder: Path) -> Path:
    return written(folder, pixels=np.zeros((30, 5), np.float32))


@bad(Step.ROWS, r"rows.npz: array 'pixels' has type complex128, and the model takes float32: write")
def rows_of_another_type(folder: Path) -> Path:
    return written(folder, pixels=np.zeros((30, 4), complex))


@bad(Step.ROWS, r"rows.npz: array 'pixels' is not finite in row 7, which no query can be$")
def rows_with_a_nan(folder: Path) -> Path:
    pixels = models.rows()["pixels"].copy()
    pixels[7, 2] = np.nan
    return written(folder, pixels=pixels)


@bad(Step.ROWS, r"rows.npz: array 'pixels' is not finite in row 3, which no query can be$")
def rows_beyond_single_precision(folder: Path) -> Path:
    pixels = models.rows()["pixels"].astype(np.float64)
    pixels[3, 0] = 1e300
    return written(folder, pixels=pixels)


@bad(Step.ROWS, r"rows.npz: array 'labels' has type float64; labels are integers, from 0")
def labels_that_are_no_whole_numbers(folder: Path) -> Path:
    return written(folder, labels=models.rows()["labels"].astype(float))


@bad(Step.ROWS, r"rows.npz: array 'labels' has 3 in row 5; the task's labels are 0 to 2$")
def label_above_range(folder: Path) -> Path:
    labels = models.rows()["labels"].copy()
    labels[5] = 3
    return written(folder, labels=labels)


@bad(Step.ROWS, r"rows.npz: array 'labels' has -1 in row 0; the task's labels are 0 to 2$")
def label_below_range(folder: Path) -> Path:
    labels = models.rows()["labels"].copy()
    labels[0] = -1
    return written(folder, labels=labels)


@bad(Step.ROWS, r"rows.npz: array 'labels' has 18446744073709551615 in row 2")
def label_that_wraps_around(folder: Path) -> Path:
    labels = models.rows()["labels"].astype(np.uint64)
    labels[2] = 2**64 - 1
    return written(folder, labels=labels)


@bad(
    Step.ROWS,
    r"rows.npz: array 'labels' has shape \(30, 3\), not \(rows\): of one-hot rows .argmax",
)
def labels_one_hot(folder: Path) -> Path:
    return written(folder, labels=np.eye(3, dtype=int)[models.rows()["labels"]])


@bad(Step.ROWS, r"rows.npz: its arrays differ in their number of rows: pixels 30, labels 29$")
def label_missing(folder: Path) -> Path:
    return written(folder, labels=models.rows()["labels"][:29])


@bad(Step.ROWS, r"rows.npz has no rows$")
def no_rows(folder: Path) -> Path:
    return written(folder, pixels=np.zeros((0, 4), np.float32), labels=np.zeros(0, int))


@bad(Step.ROWS, r"rows.npz has 9 rows; without a calibration file at least 10 are needed$")
def too_few_rows(folder: Path) -> Path:
    return written(folder, **models.rows(9))
