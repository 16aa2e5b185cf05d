"""The command as a whole: help, version, exit codes, no tracebacks."""

import warnings

import pytest

from kscn import __version__
from kscn.cli import COMMANDS
from kscn.errors import KscnError


def test_help_names_every_command(kscn):
    result = kscn("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in result.output
        assert kscn(name, "--help").exit_code == 0


def test_version(kscn):
    assert kscn("--version").output == f"kscn, version {__version__}\n"


def test_the_module_runs_like_the_script(cold_start):
    process = cold_start("--version")
    assert process.communicate()[0] == f"kscn, version {__version__}\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    "args", [["nonsense"], ["fit"], ["fit", "x.npy", "-k", "0", "-o", "r"], ["info", "--nonsense"]]
)
def test_usage_errors_exit_with_2_and_point_to_help(kscn, args):
    result = kscn(*args)
    assert result.exit_code == 2
    assert "Error:" in result.stderr
    assert "--help" in result.stderr


def failing_with(error):
    def fail(path):
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        (KscnError("X is bad; do Y."), "kscn: X is bad; do Y.", 2),
        (PermissionError(13, "Permission denied", "a/b"), "kscn: a/b: Permission denied", 2),
        (OSError(28, "No space left on device"), "kscn: No space left on device", 2),
        (MemoryError("8 GiB"), "kscn: not enough memory (8 GiB)", 2),
        (KeyboardInterrupt(), "kscn: interrupted; nothing already on disk was lost", 130),
        (RuntimeError("two\nlines"), "kscn: unexpected RuntimeError: two lines", 1),
    ],
)
def test_every_fault_is_one_line_and_an_exit_code(kscn, monkeypatch, error, words, code):
    monkeypatch.setattr("kscn.cli.info.read_run", failing_with(error))
    result = kscn("info", "run")
    assert result.exit_code == code
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_debug_shows_the_traceback(kscn, monkeypatch):
    monkeypatch.setattr("kscn.cli.info.read_run", failing_with(KscnError("bad")))
    monkeypatch.setenv("KSCN_DEBUG", "1")
    assert isinstance(kscn("info", "run").exception, KscnError)


def test_warnings_are_one_line_without_the_place_in_the_code(kscn, monkeypatch):
    def warn_and_fail(path):
        warnings.warn("two\nlines", stacklevel=1)
        raise KscnError("bad")

    monkeypatch.setattr("kscn.cli.info.read_run", warn_and_fail)
    assert kscn("info", "run").stderr == "kscn: warning: two lines\nkscn: bad\n"


def test_ctrl_c_while_the_command_itself_is_imported(cold_start):
    process = cold_start(
        code="import os, signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'click': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from kscn.__main__ import main; main()"
    )
    _, errors = process.communicate(timeout=30)
    assert errors == "kscn: interrupted; nothing already on disk was lost\n"
    assert process.returncode == 130


def test_a_reader_that_goes_away_is_no_error_message(finished, cold_start):
    process = cold_start(
        code=f"import sys; sys.argv = ['kscn', 'info', {str(finished)!r}]\n"
        "import os; read, write = os.pipe(); os.close(read); os.dup2(write, 1)\n"
        "from kscn.cli import main; main()"
    )
    _, errors = process.communicate()
    assert errors == ""


def test_runs_that_are_no_runs(one_sentence, kscn, tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "other").mkdir()
    for command in (("info",), ("evaluate",), ("report",), ("sort", "-o", tmp_path / "new")):
        name, *more = command
        assert "does not exist" in one_sentence(kscn(name, tmp_path / "nothing", *more))
        assert "not a kscn run" in one_sentence(kscn(name, tmp_path / "file", *more))
        assert "not a kscn run" in one_sentence(kscn(name, tmp_path / "other", *more))
