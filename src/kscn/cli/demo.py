"""`kscn demo`: the main job on images that ship with a dependency, drawn in the terminal."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.cli import options
from kscn.cli.fit import BEST, fit_run, new_config, new_model
from kscn.cli.summary import fact_lines
from kscn.cli.terminal import say, styled, table
from kscn.report import words

if TYPE_CHECKING:
    import numpy as np
    from rich.text import Text

CLUSTERS, SEED = 10, 0
_CAPTION = 13  # columns of text left of the images
_TYPICAL = 5  # members shown: what fits on 80 columns
_FIRST_GREY, _GREYS = 232, 24  # the grey ramp of the 256-colour palette


@click.command("demo", short_help="Cluster handwritten digits and look at the result.")
@options.output(
    "The run directory to write; an earlier demo in it is replaced.",
    default=Path("run/demo"),
)
def command(output: Path) -> None:
    """Cluster 1,797 handwritten digits without labels and look at the result. No network needed."""
    from kscn.cli.loading import load_data

    digits = load_data("digits")
    assert digits.labels is not None
    model = new_model(digits, CLUSTERS, BEST, {"random_state": SEED})
    say(styled(f"1,797 handwritten digits, no labels: find {CLUSTERS} groups.", "bold"), "")
    config = new_config(digits, "digits", model, BEST)
    result = fit_run(digits, model, config, output, overwrite=True)
    images = digits.samples[:] / 16
    say(
        *cluster_rows(model, digits.samples, images, digits.labels),
        *fact_lines({"confidence": words.confidence(result)}),
        "",
        comparison(result, images, digits.labels),
        "",
        f"The run is in {output}/. Next:",
        f"  {f'kscn report {output}':<38} one page that shows what was found",
        f"  {f'kscn evaluate {output}':<38} which digits are taken for which",
        f"  {'kscn fit YOUR_DATA -k 10 -o run/mine':<38} a .npy file, a folder of images, ...",
    )


def cluster_rows(
    model: Any, samples: Any, images: "np.ndarray", labels: "np.ndarray"
) -> Iterator[Any]:
    """A row of images per cluster: its mean, its most typical members, its oddest one.

    Typical is what lies many times nearer to its own subspace than to any other; odd is what
    lies far from its own. Both are measured where the subspaces are, in the latent space.
    """
    import numpy as np

    energy = (model.transform(samples) ** 2).sum(axis=1)
    nearest, second = np.sort(model.residuals(samples) / energy[:, None], axis=1).T[:2]
    width, gap = images.shape[2] + 1, 3
    heads = f"{'':<{_CAPTION}}{'mean':<{width + 2}}{'most typical':<{_TYPICAL * width + 2}}oddest"
    yield styled(heads, "dim")
    for cluster in range(CLUSTERS):
        members = np.flatnonzero(model.labels_ == cluster)
        if not len(members):
            continue
        typical = members[np.argsort((nearest / second)[members])][:_TYPICAL]
        oddest = members[nearest[members].argmax()]
        digit = np.bincount(labels[members]).argmax()
        purity = np.mean(labels[members] == digit)
        captions = {
            f"cluster {cluster}": "bold",
            f"{len(members)} images": "",
            f"mostly {digit}": "",
            f"{purity:.0%} of them": "green" if purity > 0.9 else "yellow",
        }
        groups = ([images[members].mean(axis=0)], images[typical], [images[oddest]])
        drawn = [side_by_side(group) for group in groups]
        for (caption, style), *pieces in zip(captions.items(), *drawn, strict=True):
            yield styled(f"{caption:<{_CAPTION}}", style) + styled(" " * gap, "").join(pieces)
        yield ""


def side_by_side(images: "Iterable[np.ndarray]") -> list["Text"]:
    """Grey images (h, w) with values from 0 to 1, in h / 2 lines of text.

    A character shows two pixels, one above the other: its upper half in one grey, its ground in
    the other. Without colours they are black or white.
    """
    from rich.text import Text

    from kscn.cli.terminal import console

    colours = console().color_system is not None

    def character(up: float, low: float) -> Text:
        if colours:
            return Text("▀", f"{_grey(up)} on {_grey(low)}")
        return Text(" ▄▀█"[2 * (up >= 0.5) + (low >= 0.5)])

    def line(uppers: Any, lowers: Any) -> Text:
        pairs = zip(uppers, lowers, strict=True)
        return Text(" ").join(Text().join(map(character, *pair)) for pair in pairs)

    rows = list(zip(*images, strict=True))  # those of one height, in every image
    return list(map(line, rows[:-1:2], rows[1::2]))


def _grey(value: float) -> str:
    return f"color({_FIRST_GREY + min(_GREYS - 1, int(value * _GREYS))})"


def comparison(result: dict[str, Any], images: "np.ndarray", labels: "np.ndarray") -> Any:
    """Our scores beside those of k-means on the pixels; the labels are used here only."""
    from sklearn.cluster import KMeans

    from kscn import metrics

    started = time.perf_counter()
    theirs = KMeans(CLUSTERS, n_init=10, random_state=SEED).fit_predict(images.reshape(-1, 64))
    seconds = time.perf_counter() - started
    made = table("against the true digits", "ACC", "NMI", "ARI", "time")
    for name, scores, spent, style in (
        (BEST, result["scores"], result["seconds"], "bold"),
        ("k-means", metrics.scores(labels, theirs), seconds, ""),
    ):
        cells = [f"{scores[key]:.1%}" for key in ("acc", "nmi", "ari")]
        made.add_row(name, *cells, words.duration(spent), style=style)
    return made
