"""`python -m kscn_paper`: measure the paper's methods, and write what the docs have of them."""

import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import click

from kscn.atomicfile import atomic_file
from kscn.errors import KscnError
from kscn_paper import methods, readings, runs
from kscn_paper import tables as tables_of

_PATH = click.Path(path_type=Path)
_results = click.option(
    "--results", type=_PATH, default=Path("results/paper"), help="Where the measured figures are."
)
_docs = click.option(
    "--docs", type=_PATH, default=Path("docs/the-paper"), help="Where the pages are written."
)


@click.group()
def cli() -> None:
    """The paper, reproduced."""


@cli.command("run")
@click.argument("method", metavar="METHOD", type=click.Choice(methods.NAMES))
@click.argument("dataset", metavar="DATA")
@click.option("--seed", "chosen", type=click.IntRange(0), multiple=True, help="May be repeated.")
@click.option("--seeds", type=click.IntRange(1), default=1, help="0, 1, 2, ... without --seed.")
@click.option(
    "--preset", type=click.Choice(["tuned", "paper"]), default="tuned", help="Of kscn-s, kscn-g."
)
@click.option(
    "--set", "given", metavar="NAME=VALUE", multiple=True, help="A parameter, its value in JSON."
)
@_results
def run(
    method: str,
    dataset: str,
    chosen: tuple[int, ...],
    seeds: int,
    preset: str,
    given: tuple[str, ...],
    results: Path,
) -> None:
    """Fit METHOD to DATA, score it by the labels, and add the run to RESULTS/runs.jsonl.

    METHOD is kscn-s, kscn-g, best, k-subspaces or a rival, DATA a name of `kscn data list`. What
    is there already is not run again. A run with --set is in no table.
    """
    settings = dict(_setting(text) for text in given)
    for seed in chosen or range(seeds):
        record, fresh = runs.run(
            results / runs.FILE, method, dataset, seed, preset=preset, given=settings
        )
        scores = "  ".join(f"{k.upper()} {100 * v:.1f}" for k, v in record["scores"].items())
        how = f"{record['seconds']:.0f} s" if fresh else "already there"
        click.echo(f"{dataset} {method} seed {seed}   {scores}   {how}")


def _setting(text: str) -> tuple[str, Any]:
    """A parameter and its value; what is no JSON is a word."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@cli.command("tables")
@_results
@_docs
def tables(results: Path, docs: Path) -> None:
    """Write the tables, ours beside the paper's, and how published figures were picked."""
    page = tables_of.page(runs.read(results / runs.FILE), _figures(results / "claims.json"))
    _write(docs / "tables.md", page)
    _write(docs / "published.md", _text("published.md"))


@cli.command("readings")
@_results
@_docs
def readings_command(results: Path, docs: Path) -> None:
    """Write what the paper leaves open, and what each reading is worth."""
    cells = _figures(results / "paper_readings.json")["cells"]
    _write(docs / "readings.md", readings.page(cells))


@cli.command("figures")
@click.argument("datasets", metavar="[DATA]...", nargs=-1)
@click.option("--seed", type=int, default=0)
@_results
@_docs
def figures_command(datasets: tuple[str, ...], seed: int, results: Path, docs: Path) -> None:
    """Fit kscn-s to DATA, by default both sets of test images, and draw its latent and subspaces.

    The pictures go to DOCS/../_static, what is measured on the way to RESULTS/figures.json, and the
    page with both of them to DOCS/figures.md.
    """
    from kscn_paper import figures

    path = results / "figures.json"
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for dataset in datasets or readings.PAPER:
        found[dataset] = figures.draw(dataset, docs.parent / "_static", seed)
        _write(path, json.dumps(found, indent=1) + "\n")
    if {*readings.PAPER} <= {*found}:
        _write(docs / "figures.md", figures_page(found))


def figures_page(found: dict[str, dict[str, float]]) -> str:
    """The page of the pictures, with what was measured while they were drawn."""
    words = {name.removesuffix("-test").replace("-", "_"): part for name, part in found.items()}
    return _text("figures.md").format(**words)


def _text(name: str) -> str:
    return (files(__package__) / "pages" / name).read_text(encoding="utf-8")


def _figures(path: Path) -> dict[str, Any]:
    """What a script below benchmarks/paper has measured."""
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["figures"]
    return figures


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(text.encode())
    click.echo(f"wrote {path}")


def main() -> None:
    """Run the command; a fault of the input is one sentence and exit code 2."""
    try:
        cli(standalone_mode=True)
    except (KscnError, FileNotFoundError) as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
