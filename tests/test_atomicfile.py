"""Files that appear under their name when they are complete, whatever already has that name."""

import errno
import os
import subprocess
import sys

import pytest

from kscn.atomicfile import atomic_file
from kscn.errors import InputError


def write(path, content=b"new"):
    with atomic_file(path) as file:
        file.write(content)


def test_a_file_is_replaced_when_the_new_one_is_complete(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), atomic_file(path) as file:
        file.write(b"half")
        raise KeyError
    assert path.read_bytes() == b"old"
    write(path)
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_its_target_is_written(tmp_path, there):
    (tmp_path / "far").mkdir()
    target, link = tmp_path / "far" / "target", tmp_path / "link"
    if there:
        target.write_bytes(b"old")
    (tmp_path / "between").symlink_to("far/target")
    link.symlink_to("between")
    write(link)
    assert link.is_symlink() and (tmp_path / "between").is_symlink()
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path / "far") == ["target"]


def test_a_full_disk_is_named_with_the_file(tmp_path):
    def fill(path):
        with atomic_file(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(InputError, match=r"cannot write .*/file: No space left"):
        fill(tmp_path / "file")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_stdout_is_written_where_it_stands(tmp_path, name):
    """`-o - >> file` must not lose what the file holds, nor what is written after."""
    path = tmp_path / "file"
    path.write_bytes(b"before,")
    code = (
        f"import os; from kscn.atomicfile import atomic_file\nwith atomic_file({name!r}) as file:"
    )
    code += " file.write(b'new')\nos.write(1, b',after')"
    with path.open("ab") as stdout:
        subprocess.run([sys.executable, "-c", code], stdout=stdout, check=True)
    assert path.read_bytes() == b"before,new,after"
    assert os.listdir(tmp_path) == ["file"]


def test_what_is_no_place_for_a_file_is_refused_before_the_work(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    for path, words in (
        (tmp_path, "is a directory"),
        (tmp_path / "link", "is a directory"),
        ("/dev/null", "is a directory or no regular file"),
        (tmp_path / "no" / "file", "cannot write"),
    ):
        with pytest.raises(InputError, match=words), atomic_file(path):
            raise AssertionError("the work began")
