"""A newcomer's walk: from a folder of photographs as they are to sorted folders and a report."""


def test_four_commands_from_a_folder_to_sorted_folders_and_a_report(photos, kscn, tmp_path):
    """Every command but the first is one that the command before it has told."""
    run = tmp_path / "my run"
    for given, missing in (((), "--size 64"), (("--size", 64), "--skip-broken")):
        refused = kscn("fit", photos, "-k", 2, "-o", run, *given)
        assert refused.exit_code == 2 and missing in refused.stderr

    fit = kscn("fit", photos, "-k", 2, "-o", run, "--size", 64, "--skip-broken", "--seed", 0)
    assert fit.exit_code == 0, fit.output
    assert "13 samples of 3 x 64 x 64" in fit.stdout
    assert "2 files that cannot be read, see left-out.csv" in fit.stdout
    for command in ("report", "explore", "sort"):
        assert f"kscn {command} '{run}'" in fit.stdout

    report = kscn("report", run)
    assert report.exit_code == 0, report.output
    assert "glass, clear.png" in (run / "report.html").read_text()

    sorting = kscn("sort", run, "-o", tmp_path / "sorted")
    assert sorting.exit_code == 0, sorting.output
    folders = sorted((tmp_path / "sorted").iterdir())
    assert [folder.name for folder in folders] == ["cluster-0", "cluster-1"]
    found = sorted(file.name for folder in folders for file in folder.iterdir())
    left_out = {"broken.jpg", "empty.png", "notes.txt"}
    assert found == sorted({file.name for file in photos.iterdir()} - left_out)
