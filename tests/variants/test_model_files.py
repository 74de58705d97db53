"""Where the versions of a model lie: files, and folders as TensorFlow Serving lays them out."""

from pathlib import Path

import pytest

from variants.errors import InvalidArtifact, InvalidInput
from variants.model_files import find_model_files, numbered_folders


def lay(folder: Path, *files: str) -> Path:
    """Empty files below ``folder``."""
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def found(path: Path, *, model: str | None = None, only: str | None = None) -> list[str]:
    """``name version file`` for each version."""
    files = find_model_files(path, model, only=only)
    return [f"{file.model} {file.version} {file.path.name}" for file in files]


@pytest.mark.parametrize("name", ["cnn.onnx", "cnn.pt2"])
def test_a_file_is_the_next_version(tmp_path: Path, name: str) -> None:
    lay(tmp_path, name)
    assert found(tmp_path / name) == [f"cnn None {name}"]
    assert found(tmp_path / name, model="other") == [f"other None {name}"]


def test_a_name_with_capitals_is_taken_in_small_letters(tmp_path: Path) -> None:
    """As most published files have some; one that is given is taken as it is."""
    lay(tmp_path, "MobileNetV2_1.0.onnx", "ResNet/3/model.onnx")
    assert found(tmp_path / "MobileNetV2_1.0.onnx") == ["mobilenetv2_1.0 None MobileNetV2_1.0.onnx"]
    assert found(tmp_path / "ResNet") == ["resnet 3 model.onnx"]
    with pytest.raises(InvalidInput, match=r"^'ResNet' cannot be a model's name: lower-case"):
        found(tmp_path / "ResNet", model="ResNet")
    lay(tmp_path, "Res Net.onnx")
    with pytest.raises(InvalidInput, match=r"^'Res Net' cannot .*; give another one with --model$"):
        found(tmp_path / "Res Net.onnx")


def test_numbers_may_have_gaps_and_are_no_text(tmp_path: Path) -> None:
    folder = lay(tmp_path / "cnn", "10/model.onnx", "9/model.pt2", "2/anything.onnx")
    assert found(folder) == ["cnn 2 anything.onnx", "cnn 9 model.pt2", "cnn 10 model.onnx"]


def test_what_is_no_number_does_not_count(tmp_path: Path) -> None:
    folder = lay(
        tmp_path / "cnn", "1/model.pt2", "1/notes.txt", "1/assets/a", "best/model.onnx",
        "v2/model.onnx", "README.md",
    )  # fmt: skip
    assert found(folder) == ["cnn 1 model.pt2"]
    assert [path.name for path in numbered_folders(folder)] == ["1"]


def test_one_version_is_looked_at_whatever_lies_beside_it(tmp_path: Path) -> None:
    folder = lay(tmp_path / "cnn", "1/model.onnx", "2/notes.txt", "003/model.onnx")
    assert found(folder, only="1") == ["cnn 1 model.onnx"]


def test_a_folder_may_hold_more_versions_than_are_taken_at_once(tmp_path: Path) -> None:
    folder = lay(tmp_path / "cnn", *(f"{number}/model.onnx" for number in range(1, 66)))
    assert found(folder, only="65") == ["cnn 65 model.onnx"]
    with pytest.raises(InvalidArtifact, match="cnn has more than 64 versions"):
        find_model_files(folder)


@pytest.mark.parametrize(
    ("files", "only", "sentence"),
    [
        ([], None, "cnn has no folder named after a version, such as 1"),
        (["1/notes.txt"], None, "cnn/1 has no .onnx or .pt2 file"),
        (["1/a.onnx", "1/b.onnx"], None, "cnn/1 has 2 model files; a version is one"),
        (["1/a.onnx", "1/a.pt2"], None, "cnn/1 has 2 model files; a version is one"),
        (["1"], None, "cnn/1 is not a folder"),
        (["1/a.pt2/b"], None, "cnn/1/a.pt2 is not a plain file"),
        (["0/a.onnx"], None, "cnn/0 is no version; versions count from 1, without leading zeros"),
        (["1/a.onnx", "02/a.onnx"], None, "cnn/02 is no version"),
        (["1/a.onnx"], "2", "2 cannot be read: No such file or directory"),
        (["1/a.onnx", "02/a.onnx"], "02", "cnn/02 is no version"),
        (["1/a.onnx"], "..", "cnn/.. is no version"),
    ],
)
def test_a_folder_that_is_not_laid_out_so_is_refused(
    tmp_path: Path, files: list[str], only: str | None, sentence: str
) -> None:
    (tmp_path / "cnn").mkdir()
    with pytest.raises(InvalidArtifact) as refusal:
        find_model_files(lay(tmp_path / "cnn", *files), only=only)
    assert refusal.value.message.startswith(sentence)


@pytest.mark.parametrize("link", ["cnn", "cnn/1", "cnn/1/model.pt2"])
def test_links_are_refused(tmp_path: Path, link: str) -> None:
    lay(tmp_path / "real", "1/model.pt2", "model.pt2")
    target = tmp_path / "real" / Path(link).relative_to("cnn")
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(target)
    with pytest.raises(InvalidArtifact, match=r"is a symbolic link; give what it points to$"):
        find_model_files(tmp_path / "cnn")


def test_a_name_that_cannot_be_a_models_is_refused(tmp_path: Path) -> None:
    folder = lay(tmp_path / "Big CNN", "1/model.onnx")
    with pytest.raises(InvalidInput, match="give another one with --model"):
        find_model_files(folder)
    assert found(folder, model="cnn") == ["cnn 1 model.onnx"]
