"""`kscn sort`: the files of a run in one folder per cluster."""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import click

from kscn.cli import options
from kscn.cli.loading import fetching
from kscn.cli.terminal import say, table
from kscn.errors import InputError
from kscn.runs.directory import Run, read_run
from kscn.runs.opened import run_data

# What some system does not allow in the name of a folder, and how many bytes all of them do.
_FORBIDDEN = '<>:"/\\|?*'
_LONGEST = 200
_NO_CLUSTER = -1


@click.command("sort", short_help="Put the files of a run into one folder per cluster.")
@options.run
@options.output("A new folder for them.", required=True)
@click.option("--link", is_flag=True, help="Make symbolic links instead of copies.")
@click.option("--data", help="The images of the run, if they are no longer where they were.")
def command(run: Path, output: Path, link: bool, data: str | None) -> None:
    """Copy the images of RUN, the directory `kscn fit` wrote, into one folder per cluster.

    Clusters are as `kscn explore` left them: merges, splits and moved images count, and folders are
    called by the names that were given there, or else cluster-0, cluster-1, ... The images
    themselves stay where they are. OUTPUT appears when all of it is there, or not at all.
    """
    from kscn.cli.progress import working
    from kscn.runs.edits import read_grouping

    opened = read_run(run)
    files = _files(opened, data)
    _check_output(output, opened, data)
    grouping = read_grouping(run, opened.labels(), len(opened.result["sizes"]))
    labels = grouping.labels.tolist()
    folders = folder_names(set(labels), grouping.names)
    targets = [folders[label] for label in labels]
    placed = place(list(files), targets)
    with working(f"{'linking' if link else 'copying'} {len(files):,} files"):
        _write(dict(zip(placed, files.values(), strict=True)), output, link)
    folder_table = table("folder", "files")
    for name, files_in_it in Counter(targets).most_common():
        folder_table.add_row(name, f"{files_in_it:,}")
    wrote = f"wrote {'links to' if link else 'copies of'} {len(files):,} files to {output}"
    say(folder_table, wrote)


def _files(run: Run, data: str | None) -> dict[str, Path]:
    """The file of every sample by its name, or why there is none."""
    samples: Any = fetching(run_data, run, data).samples
    if samples.names is None:
        raise InputError(
            f"{run.path} was fitted on {run.config['data']['source']}, which is no folder of "
            "images; only files can be sorted."
        )
    return {name: samples.file(row) for row, name in enumerate(samples.names)}


def _check_output(output: Path, run: Run, data: str | None) -> None:
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise InputError(f"{output} exists and is not empty; give a new folder with -o.")
    source = Path(data or run.config["data"]["source"]).expanduser()
    if output.resolve().is_relative_to(source.resolve()):
        raise InputError(
            f"{output} lies inside {source}, where its files would be found as new images; give a "
            "folder outside of it with -o."
        )


def folder_names(clusters: Iterable[int], called: Mapping[int, str]) -> dict[int, str]:
    """A name for the folder of every cluster, all of them different on any system."""
    wanted = {cluster: _safe(called.get(cluster, "")) for cluster in clusters}
    names: dict[int, str] = {}
    used: set[str] = set()
    # Names of people go second: a cluster may be called like the number of another.
    for cluster in sorted(wanted, key=lambda cluster: (bool(wanted[cluster]), cluster)):
        plain = "no-cluster" if cluster == _NO_CLUSTER else f"cluster-{cluster}"
        names[cluster] = _free(wanted[cluster] or plain, used)
    return names


def _safe(name: str) -> str:
    """A name as a folder of any system may have it, "" if nothing is left of it."""
    kept = "".join("-" if c in _FORBIDDEN or not c.isprintable() else c for c in name)
    return kept.encode()[:_LONGEST].decode(errors="ignore").strip(". ")


def place(names: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Where each file goes, from the output: into its folder, under a name that is free there.

    The name of a file from a sub-folder begins with that of the sub-folder.
    """
    used: set[str] = set()
    placed = []
    for name, folder in zip(names, folders, strict=True):
        stem, suffix = os.path.splitext(name.replace("/", "-"))
        placed.append(_free(f"{folder}/{stem}", used, suffix))
    return placed


def _free(name: str, used: set[str], suffix: str = "") -> str:
    """A name that is not used yet, with a number behind it if need be; it is used from then on."""
    numbered = (f"{name}-{number}{suffix}" for number in count(2))
    free = next(one for one in chain([name + suffix], numbered) if one.casefold() not in used)
    used.add(free.casefold())
    return free


def _write(files: Mapping[str, Path], output: Path, link: bool) -> None:
    """Make the folders beside their final place, and give them their name when all is there."""
    final = Path(os.path.realpath(output))
    part = final.with_name(f".{final.name}.part-{os.getpid()}")
    try:
        part.mkdir(parents=True)
        for target, file in files.items():
            path = part / target
            path.parent.mkdir(exist_ok=True)
            if link:
                path.symlink_to(file.resolve())
            else:
                shutil.copy2(file, path)
        os.replace(part, final)
    finally:
        shutil.rmtree(part, ignore_errors=True)
