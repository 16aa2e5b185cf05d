"""Files that appear under their name when they are complete, whatever already has that name."""

import errno
import os
import stat
import subprocess
import sys
import threading

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


def test_links_in_a_circle_are_refused(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(InputError, match=r"cannot write .*/a: "):
        write(tmp_path / "a")


def test_a_pipe_stays_a_pipe_and_gets_the_content(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with atomic_file(pipe) as file:
        file.write(b"new")
        assert file.tell() == 3  # what is written may look where it is, as in a regular file
    reader.join()
    assert got == [b"new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_pipe_gets_nothing_of_what_is_not_complete(tmp_path):
    pipe, got = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with pytest.raises(KeyError), atomic_file(pipe) as file:
        file.write(b"half")
        raise KeyError
    reader.join()
    assert got == [b""]


def test_a_device_stays_a_device(tmp_path):
    write("/dev/null")
    (tmp_path / "link").symlink_to("/dev/null")
    write(tmp_path / "link")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_full_device_is_named():
    with pytest.raises(InputError, match="cannot write /dev/full: No space left"):
        write("/dev/full")


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
        (tmp_path / "no" / "file", "cannot write"),
    ):
        with pytest.raises(InputError, match=words), atomic_file(path):
            raise AssertionError("the work began")
