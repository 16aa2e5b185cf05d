"""What reaches the terminal: no power over it for names, no message among the data."""

import shutil

import numpy as np
import pytest

from kscn import metrics
from kscn.cli.summary import confusion_table, size_table
from kscn.cli.terminal import printable, say, styled, table
from kscn.report.words import duration

# Clears the screen, renames the window, hides what follows, rings, turns writing around.
EVIL = "a\x1b[2J\x1b]0;owned\x07\x1b[8m\x9b31m\u202eb\r\n"
SHOWN = r"a\x1b[2J\x1b]0;owned\x07\x1b[8m\x9b31m\u202eb\r\n"


def test_control_characters_are_written_out():
    assert printable(EVIL) == SHOWN
    assert printable("\udcff") == r"\udcff"  # a name of bytes that are no UTF-8
    for fine in ("Zürich/猫 🐈", "नमस्\u200dते", "1\u00a0000", ""):
        assert printable(fine) == fine


def test_colours_are_our_own(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    say(styled(EVIL, "cyan"), EVIL)
    assert capsys.readouterr().out == f"\x1b[36m{SHOWN}\x1b[0m\n{SHOWN}\n"
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR")
    say(styled(EVIL, "cyan"))
    assert capsys.readouterr().out == f"{SHOWN}\n"


def test_tables_are_never_broken_at_the_width_of_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    made = table("name", "value")
    made.add_row("n" * 60, "1")
    say(made, "w" * 60)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"  {'name':<60}  value", f"  {'n' * 60}      1", "w" * 60]


def test_bars_are_to_scale_and_many_clusters_are_cut_short(capsys):
    say(*size_table([8, 4, 3]))
    bars = [line.split("%")[1].strip() for line in capsys.readouterr().out.splitlines()[1:]]
    assert bars == ["█" * 32, "█" * 16, "█" * 12]
    say(*size_table([5] * 30))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 22
    assert lines[-1] == "  ... and 10 more clusters with 50 samples"


def test_a_confusion_matrix_too_large_to_read_is_left_to_json():
    many = np.arange(100)
    words = confusion_table(metrics.confusion_matrix(many, many))
    assert "100 classes by 100 clusters" in words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.312, "0.31 s"), (12.44, "12.4 s"), (200, "3 min 20 s"), (3900, "1 h 5 min")],
)
def test_durations_are_for_people(seconds, text):
    assert duration(seconds) == text


@pytest.fixture(scope="module")
def named(files, kscn, tmp_path_factory):
    """A run on a file with such a name."""
    place = tmp_path_factory.mktemp("named")
    data = shutil.copy(files / "xy.npz", place / f"{EVIL.strip()}.npz")
    result = kscn("fit", data, "-k", 3, "-o", place / "run", "--method", "k-subspaces",
                  "--subspace-dim", 2, "--seed", 1)  # fmt: skip
    assert result.exit_code == 0, result.output
    assert_powerless(result.output, "owned")
    return place


def assert_powerless(text, *words):
    assert not set(text) - {"\n"} & set(map(chr, [*range(32), *range(127, 160), 0x202E]))
    for word in words:
        assert word in text


def test_names_of_data_and_classes(kscn, named):
    told = kscn("info", named / "run")
    assert told.exit_code == 0
    assert_powerless(told.output, r"a\x1b[2J")
    (named / "classes.txt").write_text("\n".join(["\x1b[2Jone", "two", "\x9b3three"] * 40))
    scored = kscn("evaluate", named / "run", "--labels", named / "classes.txt")
    assert scored.exit_code == 0
    assert_powerless(scored.output, r"\x1b[2Jone", r"\x9b3three")


@pytest.mark.parametrize(
    "call",
    [
        ("info", EVIL),
        ("fit", EVIL, "-k", 3, "-o", "run"),
        ("fit", "digits", "-k", EVIL, "-o", "run"),
        ("info", "run", EVIL),
        ("info", f"--{EVIL}"),
        (EVIL,),
    ],
)
def test_sentences_about_faults(kscn, call):
    result = kscn(*call)
    assert result.exit_code == 2
    assert_powerless(result.stderr)


def test_settings_of_a_run_from_elsewhere(kscn, finished, tmp_path):
    run = shutil.copytree(finished, tmp_path / "run")
    config = (run / "config.toml").read_text()
    config = config.replace("[parameters]", '[parameters]\nevil = "\\u001b[8m"')
    config = config.replace('created = "', 'created = "\\u001b[8m')
    (run / "config.toml").write_text(config)
    told = kscn("info", run, env={"FORCE_COLOR": "1"})
    assert told.exit_code == 0
    assert "\x1b[8m" not in told.output and told.output.count(r"\x1b[8m") == 2


@pytest.mark.parametrize("stdout", ["-", "/dev/stdout"])
def test_labels_on_stdout_are_not_mixed_with_messages(start, finished, files, planes, stdout):
    wrote = "import os; os.write(1, b'before\\n')"  # to the file that is its output
    process = start("predict", finished, files / "x.npy", "-o", stdout, before=wrote)
    output, errors = process.communicate()
    assert process.returncode == 0
    rows = [f"{i},{label}" for i, label in enumerate(planes[1])]
    assert output.splitlines() == ["before", "index,label", *rows]
    assert f"wrote 120 labels to {stdout}" in errors
