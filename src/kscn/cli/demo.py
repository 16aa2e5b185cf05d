"""`kscn demo`: the main job on images that ship with a dependency, drawn in the terminal."""

import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.chosen import duration, told
from kscn.cli import options
from kscn.cli.fit import BEST
from kscn.cli.fitting import fit_run, new_config, new_model
from kscn.cli.summary import fact_lines
from kscn.cli.terminal import say, styled, table

if TYPE_CHECKING:
    import numpy as np
    from rich.text import Text

CLUSTERS, SEED = 10, 0
LINEAR_DIMENSION = 4  # of the k-subspaces on pixels that ours is compared with
_CAPTION = 13  # columns of text left of the images
_MOST = 12  # typical members shown on a wide terminal
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
    images = digits.samples[:] / digits.scale
    say(
        *cluster_rows(model, digits.samples, images, digits.labels),
        *fact_lines(told(result)),
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
    room = shutil.get_terminal_size().columns - _CAPTION - 2 * (width + gap - 1)
    shown = min(_MOST, max(1, (room + 1) // width))
    heads = f"{'':<{_CAPTION}}{'mean':<{width + 2}}{'most typical':<{shown * width + 2}}oddest"
    yield styled(heads, "dim")
    for cluster in range(CLUSTERS):
        members = np.flatnonzero(model.labels_ == cluster)
        if not len(members):
            continue
        typical = members[np.argsort((nearest / second)[members])][:shown]
        oddest = members[nearest[members].argmax()]
        digit = np.bincount(labels[members]).argmax()
        purity = np.mean(labels[members] == digit)
        colour = "green" if purity > 0.9 else "yellow" if purity > 0.7 else "red"
        captions = [
            styled(f"{f'cluster {cluster}':<{_CAPTION}}", "bold"),
            styled(f"{f'{len(members)} images':<{_CAPTION}}", ""),
            styled(f"{f'mostly {digit}':<{_CAPTION}}", ""),
            styled(f"{f'{purity:.0%} of them':<{_CAPTION}}", colour),
        ]
        groups = ([images[members].mean(axis=0)], images[typical], [images[oddest]])
        drawn = [side_by_side(group) for group in groups]
        for caption, *pieces in zip(captions, *drawn, strict=True):
            yield caption + styled(" " * gap, "").join(pieces)
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

    lines = []
    rows = list(zip(*images, strict=True))  # those of one height, in every image
    for uppers, lowers in zip(rows[:-1:2], rows[1::2], strict=True):
        pairs = zip(uppers, lowers, strict=True)
        drawn = [Text().join(map(character, upper, lower)) for upper, lower in pairs]
        lines.append(Text(" ").join(drawn))
    return lines


def _grey(value: float) -> str:
    return f"color({_FIRST_GREY + min(_GREYS - 1, int(value * _GREYS))})"


def comparison(result: dict[str, Any], images: "np.ndarray", labels: "np.ndarray") -> Any:
    """Our scores beside those of methods on the pixels; the labels are used here only."""
    from sklearn.cluster import KMeans

    from kscn import KSubspaces, metrics
    from kscn.cli.progress import working

    rivals = {
        "k-subspaces": KSubspaces(CLUSTERS, subspace_dim=LINEAR_DIMENSION, random_state=SEED),
        "k-means": KMeans(CLUSTERS, n_init=10, random_state=SEED),
    }
    scored = [(BEST, result["scores"], result["seconds"])]
    for name, rival in rivals.items():
        started = time.perf_counter()
        with working(f"{name} on the same pixels"):
            rival.fit(images.reshape(len(images), -1))
        seconds = time.perf_counter() - started
        scored.append((name, metrics.scores(labels, rival.labels_), seconds))
    made = table("against the true digits", "ACC", "NMI", "ARI", "time")
    for name, scores, spent in scored:
        cells = [f"{scores[key]:.1%}" for key in ("acc", "nmi", "ari")]
        made.add_row(name, *cells, duration(spent), style="bold" if name == BEST else "")
    return made
