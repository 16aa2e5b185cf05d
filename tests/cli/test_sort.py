"""The files of a run in one folder per cluster."""

import shutil
import time

import numpy as np

from kscn.cli.sort import folder_names, place
from kscn.runs.directory import read_run
from kscn.runs.edits import open_editor


def listed(folder):
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.*"))


def test_every_file_is_copied_into_the_folder_of_its_cluster(sized, photos, kscn, tmp_path):
    result = kscn("sort", sized, "-o", tmp_path / "sorted")
    assert result.exit_code == 0, result.output
    assert "wrote copies of 13 files" in result.output
    run = read_run(sized)
    expected = [f"cluster-{c}/{n}" for n, c in zip(run.names(), run.labels(), strict=True)]
    assert listed(tmp_path / "sorted") == sorted(expected)
    for name in expected:
        copy = tmp_path / "sorted" / name
        assert not copy.is_symlink()
        assert copy.read_bytes() == (photos / copy.name).read_bytes()


def test_links_lead_to_the_images(sized, photos, kscn, tmp_path):
    (tmp_path / "sorted").mkdir()  # an empty folder will do
    result = kscn("sort", sized, "-o", tmp_path / "sorted", "--link")
    assert "wrote links to 13 files" in result.output
    for name in listed(tmp_path / "sorted"):
        link = tmp_path / "sorted" / name
        assert link.is_symlink() and link.samefile(photos / link.name)


def test_clusters_are_as_the_explorer_left_them(sized, kscn, tmp_path):
    run = shutil.copytree(sized, tmp_path / "run")
    opened = read_run(run)
    labels = opened.labels().astype(np.int32)
    editor = open_editor(run, labels, 2)
    editor.make({"edit": "name", "cluster": 0, "name": "cats/dogs"})
    editor.make({"edit": "move", "samples": [0], "cluster": int(1 - labels[0])})
    editor.close()
    assert kscn("sort", run, "-o", tmp_path / "sorted").exit_code == 0
    folders = ["cats-dogs", "cluster-1"]
    assert sorted(path.name for path in (tmp_path / "sorted").iterdir()) == folders
    assert (tmp_path / "sorted" / folders[1 - labels[0]] / "00.png").is_file()
    assert (tmp_path / "sorted" / folders[labels[2]] / "02.webp").is_file()


def test_names_of_people_become_names_of_folders():
    called = {0: "Cats", 1: "cats", 2: "../..", 3: "cluster-4", 5: " a:b\u202e* ", 6: "ü" * 200}
    names = folder_names([-1, *range(7)], called)
    assert [names[i] for i in range(-1, 6)] == [
        "no-cluster", "Cats", "cats-2", "-", "cluster-4-2", "cluster-4", "a-b--",
    ]  # fmt: skip
    assert len(names[6].encode()) <= 255
    assert len({name.casefold() for name in names.values()}) == 8


def test_files_of_one_name_do_not_collide():
    names = ["x/a.png", "y/a.png", "y/A.png", "x-a.png", "b.png", "y/b.png", "z/y/b.png"]
    placed = place(names, ["c", "c", "c", "c", "c", "d", "d"])
    assert placed == ["c/x-a.png", "c/y-a.png", "c/y-A-2.png", "c/x-a-2.png", "c/b.png",
                      "d/y-b.png", "d/z-y-b.png"]  # fmt: skip


def test_images_that_are_gone_are_named(sized, photos, kscn, one_sentence, tmp_path):
    moved = shutil.copytree(photos, tmp_path / "moved")
    (moved / "01.jpg").unlink()
    assert "01.jpg" in one_sentence(kscn("sort", sized, "-o", tmp_path / "new", "--data", moved))


def test_nothing_half_done_is_left(sized, kscn, monkeypatch, tmp_path):
    copied = []

    def interrupted(source, target):
        copied.append(target)
        if len(copied) == 5:
            target.write_bytes(b"half")
            raise KeyboardInterrupt
        return shutil.copyfile(source, target)

    monkeypatch.setattr("kscn.cli.sort.shutil.copy2", interrupted)
    result = kscn("sort", sized, "-o", tmp_path / "sorted")
    assert result.exit_code == 130
    assert list(tmp_path.iterdir()) == []


def test_a_kill_leaves_nothing_under_the_name(sized, start, tmp_path):
    before = "import shutil, time; shutil.copy2 = lambda *a: (open(a[1], 'w'), time.sleep(60))"
    process = start("sort", sized, "-o", tmp_path / "sorted", before=before)
    while not list(tmp_path.glob(".sorted.part-*/*/*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.kill()
    assert not (tmp_path / "sorted").exists()
