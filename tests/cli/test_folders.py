"""Folders of images as they are: of any size and mode, with broken files, called by their names."""

import csv
import os
import shutil

import pytest
from PIL import Image

from kscn.runs.directory import read_run

LINEAR = ("--method", "k-subspaces", "--subspace-dim", 2, "--seed", 0)


def rows(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_labels_go_by_the_names_of_files(sized):
    head, *found = rows(sized / "labels.csv")
    assert head == ["file", "label"]
    labels = dict(found)
    assert len(labels) == 13
    assert labels["01.jpg"] != labels["00.png"] == labels["glass, clear.png"]
    assert {labels[name] for name in labels if name[1:2] in set("02468")} == {labels["00.png"]}


def test_files_that_were_left_out_are_listed_with_the_reason(sized):
    head, *found = rows(sized / "left-out.csv")
    assert head == ["file", "reason"]
    assert [name for name, _ in found] == ["broken.jpg", "empty.png"]
    assert all("not a readable image" in why for _, why in found)


def test_the_size_belongs_to_the_run(sized, photos, kscn, tmp_path):
    """Predict, evaluate and report take the raw images again."""
    out = tmp_path / "labels.csv"
    result = kscn("predict", sized, photos, "-o", out, "--skip-broken")
    assert result.exit_code == 0, result.output
    assert out.read_bytes() == (sized / "labels.csv").read_bytes()
    true = tmp_path / "y.csv"
    true.write_text("".join(f"{label}\n" for _, label in rows(out)[1:]))
    result = kscn("evaluate", sized, "--labels", true)
    assert "ACC 1.0000" in result.output


def test_new_images_may_be_grey_where_those_of_the_run_were_not(sized, paint, kscn, tmp_path):
    folder = tmp_path / "new"
    folder.mkdir()
    paint(folder / "a.png", 1, (90, 70))
    Image.open(folder / "a.png").convert("L").save(folder / "a.png")
    result = kscn("predict", sized, folder, "-o", tmp_path / "labels.csv")
    assert result.exit_code == 0, result.output
    assert rows(tmp_path / "labels.csv")[1][0] == "a.png"


def test_a_folder_that_grew_is_still_that_of_the_run(photos, sized, paint, kscn, tmp_path):
    """The run knows its files by name, here in a copy of the folder."""
    moved = shutil.copytree(photos, tmp_path / "moved")
    paint(moved / "00-new.png", 1, (10, 10))
    page = tmp_path / "page.html"
    result = kscn("report", sized, "--data", moved, "-o", page)
    assert result.exit_code == 0, result.output
    (moved / "01.jpg").unlink()
    result = kscn("report", sized, "--data", moved, "-o", page)
    assert result.exit_code == 2
    assert "1 of 13 images" in result.stderr and "01.jpg" in result.stderr


def test_names_that_point_elsewhere_are_refused(sized, kscn, one_sentence, tmp_path):
    copy = shutil.copytree(sized, tmp_path / "copy")
    text = (copy / "labels.csv").read_text()
    for name in ("../secret.png", "/etc/secret.png", ""):
        (copy / "labels.csv").write_text(text.replace("01.jpg", name))
        assert "is damaged" in one_sentence(kscn("report", copy))


@pytest.mark.parametrize("content", ["file,label\n\0", f"file,label\n{'a' * 200_000},0\n", None])
def test_damaged_names_are_told_in_one_sentence(sized, content, kscn, one_sentence, tmp_path):
    copy = shutil.copytree(sized, tmp_path / "copy")
    if content is None:
        (copy / "labels.csv").unlink()
    else:
        (copy / "labels.csv").write_text(content)
    assert "labels.csv" in one_sentence(kscn("sort", copy, "-o", tmp_path / "sorted"))


def test_a_run_that_is_replaced_takes_its_list_along(photos, sized, files, kscn, tmp_path):
    copy = shutil.copytree(sized, tmp_path / "copy")
    again = kscn("fit", files / "x.npy", "-k", 2, "-o", copy, "--overwrite", *LINEAR)
    assert again.exit_code == 0, again.output
    assert not (copy / "left-out.csv").exists()
    assert read_run(copy).names() is None


def test_a_run_on_a_folder_goes_on_with_the_same_images(sized, kscn, tmp_path):
    (tmp_path / "run").mkdir()
    shutil.copy(sized / "config.toml", tmp_path / "run")
    result = kscn("fit", "--resume", tmp_path / "run")
    assert result.exit_code == 0, result.output
    for name in ("labels.csv", "left-out.csv", "config.toml"):
        assert (tmp_path / "run" / name).read_bytes() == (sized / name).read_bytes()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("grey = false", "grey = false\nvalues = [3, 1]"),
        ("grey = false", "grey = false\nvalues = [nan, 1.0]"),
        ("left_out = 2", "left_out = -2"),
        ("[data.preparation]", "preparation = []\n[other]"),
    ],
)
def test_a_preparation_that_makes_no_sense_is_damage(
    sized, before, after, kscn, one_sentence, tmp_path
):
    copy = shutil.copytree(sized, tmp_path / "copy")
    text = (copy / "config.toml").read_text()
    assert before in text
    (copy / "config.toml").write_text(text.replace(before, after))
    assert "config.toml is damaged" in one_sentence(kscn("info", copy))


def test_colour_images_without_an_encoder_get_one_line(photos, files, kscn, tmp_path):
    fit = ("-k", 2, *LINEAR, "--overwrite", "-o", tmp_path / "run")
    told = kscn("fit", photos, *fit, "--size", 8, "--skip-broken").stderr.splitlines()
    assert len([line for line in told if "--encoder" in line and "colour images" in line]) == 1
    assert "--encoder" not in kscn("fit", files / "x.npy", *fit).stderr
    grey = tmp_path / "grey"
    grey.mkdir()
    for file in photos.glob("*.tiff"):
        Image.open(file).convert("L").save(grey / file.name)
    told = kscn("fit", grey, *fit, "--size", 8)
    assert told.exit_code == 0 and "--encoder" not in told.stderr
    assert read_run(tmp_path / "run").config["data"]["shape"] == [8, 8]


def test_names_that_are_no_text_are_kept_as_they_are(kscn, paint, tmp_path):
    """Names of files are bytes."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(6):
        paint(folder / f"{number}.png", number, (20, 20))
    odd = os.fsdecode(b"caf\xe9.png")
    (folder / "3.png").rename(folder / odd)
    run = tmp_path / "run"
    assert kscn("fit", folder, "-k", 2, "-o", run, *LINEAR).exit_code == 0
    assert odd in read_run(run).names()
    for command in (("report", run), ("evaluate", run, "--labels", run / "labels.csv")):
        result = kscn(*command)
        assert result.exit_code == 0, result.output
    assert kscn("sort", run, "-o", tmp_path / "sorted").exit_code == 0
    assert len(list((tmp_path / "sorted").glob(f"*/{odd}"))) == 1


def test_a_run_finds_a_folder_that_was_given_by_its_bare_name(paint, kscn, tmp_path, monkeypatch):
    (tmp_path / "photos").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for number in range(6):
        paint(tmp_path / "photos" / f"{number}.png", number, (20, 20))
    monkeypatch.chdir(tmp_path)
    assert kscn("fit", "photos", "-k", 2, "-o", "run", *LINEAR).exit_code == 0
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = kscn("sort", tmp_path / "run", "-o", "sorted")
    assert result.exit_code == 0, result.output
