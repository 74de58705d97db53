"""What is refused where a model is looked for: names, links, kinds of files, versions."""

import os
import socket
from pathlib import Path

from tests import onnx_models as models
from tests.corpus.case import Step, bad


def version(folder: Path, name: str, file: str = "model.onnx") -> Path:
    """A sound version of the model ``net``; returns the model's folder."""
    models.write(folder / "net" / name / file)
    return folder / "net"


# -- what is no file -----------------------------------------------------------------------------


@bad(Step.FIND, r"net.onnx cannot be read: No such file or directory$")
def nothing_there(folder: Path) -> Path:
    return folder / "net.onnx"


@bad(Step.FIND, r"net.onnx is a symbolic link; give what it points to$")
def link_to_a_model(folder: Path) -> Path:
    models.write(folder / "real.onnx")
    (folder / "net.onnx").symlink_to("real.onnx")
    return folder / "net.onnx"


@bad(Step.FIND, r"net.onnx is a symbolic link; give what it points to$")
def link_to_a_file_of_the_system(folder: Path) -> Path:
    (folder / "net.onnx").symlink_to("/etc/shadow")
    return folder / "net.onnx"


@bad(Step.FIND, r"net.onnx is a symbolic link; give what it points to$")
def link_to_itself(folder: Path) -> Path:
    (folder / "net.onnx").symlink_to("net.onnx")
    return folder / "net.onnx"


@bad(Step.FIND, r"net.onnx is neither a plain file nor a folder$")
def pipe(folder: Path) -> Path:
    """Reading one would wait for a writer for ever."""
    os.mkfifo(folder / "net.onnx")
    return folder / "net.onnx"


@bad(Step.FIND, r"net.onnx is neither a plain file nor a folder$")
def socket_file(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(folder, os.O_DIRECTORY)  # a socket's path may have a hundred bytes
        try:
            listener.bind(f"/proc/self/fd/{here}/net.onnx")
        finally:
            os.close(here)
    return folder / "net.onnx"


@bad(Step.FIND, r"zero is neither a plain file nor a folder$")
def device(folder: Path) -> Path:
    """Reading it would never end."""
    return Path("/dev/zero")


@bad(Step.FIND, r"net.onnx has no folder named after a version, such as 1$")
def folder_under_the_name_of_a_file(folder: Path) -> Path:
    (folder / "net.onnx").mkdir()
    return folder / "net.onnx"


# -- names ---------------------------------------------------------------------------------------


@bad(Step.FIND, r"'net\\nINFO all is well' cannot be a model's name")
def name_with_a_line_break(folder: Path) -> Path:
    return models.write(folder / "net\nINFO all is well.onnx")


@bad(Step.FIND, r"'\\x1b\[2Jnet' cannot be a model's name")
def name_that_clears_the_screen(folder: Path) -> Path:
    return models.write(folder / "\x1b[2Jnet.onnx")


@bad(Step.FIND, r"'.*' cannot be a model's name")
def name_that_is_no_text(folder: Path) -> Path:
    return models.write(folder / os.fsdecode(b"net\xff\xfe.onnx"))


@bad(Step.FIND, r"'n{40}' cannot be a model's name")
def name_too_long_for_a_model(folder: Path) -> Path:
    return models.write(folder / ("n" * 240 + ".onnx"))


@bad(Step.FIND, r"n{150,}.* cannot be read: File name too long$")
def name_too_long_for_a_file(folder: Path) -> Path:
    return folder / ("n" * 4000 + ".onnx")


@bad(Step.FIND, r"net.onnx.* cannot be read: .*null")
def name_with_a_zero_byte(folder: Path) -> Path:
    return folder / "net.onnx\0.txt"


@bad(Step.FIND, r"'.*' cannot be a model's name")
def name_of_hidden_file(folder: Path) -> Path:
    return models.write(folder / ".onnx")


@bad(Step.FIND, r"(net/1/)?m\\nodel.onnx is (not a plain file|a symbolic link)")
def link_with_a_line_break_in_its_name(folder: Path) -> Path:
    top = version(folder, "1", "real.bin")
    (top / "1" / "m\nodel.onnx").symlink_to("real.bin")
    return top


# -- folders of versions -------------------------------------------------------------------------


@bad(Step.FIND, r"net is no folder of versions; give the file itself, .*/given/net/model\.onnx$")
def folder_without_versions(folder: Path) -> Path:
    models.write(folder / "net" / "model.onnx")
    return folder / "net"


@bad(Step.FIND, r"net/0 is no version; versions count from 1, without leading zeros$")
def version_zero(folder: Path) -> Path:
    version(folder, "1")
    return version(folder, "0")


@bad(Step.FIND, r"net/01 is no version; versions count from 1, without leading zeros$")
def version_with_a_leading_zero(folder: Path) -> Path:
    version(folder, "1")
    return version(folder, "01")


@bad(Step.FIND, r"net/1\.0 is no version")
def version_with_a_point(folder: Path) -> Path:
    version(folder, "1")
    return version(folder, "1.0")


@bad(Step.FIND, r"net/-1 is no version")
def negative_version(folder: Path) -> Path:
    version(folder, "1")
    return version(folder, "-1")


@bad(Step.FIND, r"net/9{30} is no version")
def version_beyond_all_numbers(folder: Path) -> Path:
    return version(folder, "9" * 30)


@bad(Step.FIND, r"net has more than 64 versions$")
def too_many_versions(folder: Path) -> Path:
    for number in range(1, 66):
        (folder / "net" / str(number)).mkdir(parents=True)
    return folder / "net"


@bad(Step.FIND, r"net/2 has no .* file")
def version_without_a_model(folder: Path) -> Path:
    version(folder, "1")
    (folder / "net" / "2").mkdir()
    return folder / "net"


@bad(Step.FIND, r"net/1 has 2 model files; a version is one$")
def version_with_two_models(folder: Path) -> Path:
    version(folder, "1", "a.onnx")
    return version(folder, "1", "b.onnx")


@bad(Step.FIND, r"net/3 is not a folder$")
def version_that_is_a_file(folder: Path) -> Path:
    version(folder, "1")
    models.write(folder / "net" / "3")
    return folder / "net"


@bad(Step.FIND, r"2 is a symbolic link; give what it points to$")
def version_that_is_a_link(folder: Path) -> Path:
    version(folder, "1")
    (folder / "net" / "2").symlink_to("1")
    return folder / "net"


@bad(Step.FIND, r"(net/1/)?model.onnx is (not a plain file|a symbolic link)")
def version_whose_model_is_a_link(folder: Path) -> Path:
    top = version(folder, "1", "real.bin")
    (top / "1" / "model.onnx").symlink_to("real.bin")
    return top


@bad(Step.FIND, r"net/1/model.onnx is not a plain file$")
def version_whose_model_is_a_folder(folder: Path) -> Path:
    (folder / "net" / "1" / "model.onnx").mkdir(parents=True)
    return folder / "net"


@bad(Step.FIND, r"net/1/model.onnx is not a plain file$")
def version_whose_model_is_a_pipe(folder: Path) -> Path:
    (folder / "net" / "1").mkdir(parents=True)
    os.mkfifo(folder / "net" / "1" / "model.onnx")
    return folder / "net"


@bad(Step.FIND, r"net is a symbolic link; give what it points to$")
def model_that_is_a_link(folder: Path) -> Path:
    version(folder, "1").rename(folder / "real")
    (folder / "net").symlink_to("real")
    return folder / "net"


@bad(Step.CHECK, r"net-v2: model.onnx is not an ONNX model")
def second_version_that_is_damaged(folder: Path) -> Path:
    """None of a folder's versions is written unless all are sound."""
    top = version(folder, "1")
    (top / "2").mkdir()
    data = (top / "1" / "model.onnx").read_bytes()
    (top / "2" / "model.onnx").write_bytes(data[: len(data) // 2])
    return top
