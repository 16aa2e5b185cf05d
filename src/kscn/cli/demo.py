"""`kscn demo`: the main job on images that ship with a dependency, drawn in the terminal."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.chosen import duration, told
from kscn.cli import options
from kscn.cli.fit import choose
from kscn.cli.fitting import fit_run, new_config
from kscn.cli.summary import fact_lines
from kscn.cli.terminal import Terminal, table

if TYPE_CHECKING:
    import numpy as np

CLUSTERS, SEED = 10, 0
LINEAR_DIMENSION = 4  # of the k-subspaces on pixels that ours is compared with
_CAPTION = 13  # columns of text left of the images
_MOST = 12  # typical members shown on a wide terminal
# Characters for (upper, lower) pixel: neither, lower, upper, both.
_BLOCKS, _ASCII = " ▄▀█", " .'#"
_FIRST_GREY, _GREYS = 232, 24  # the grey ramp of the 256-colour palette


@click.command("demo", short_help="Cluster handwritten digits and look at the result.")
@options.output(
    "The run directory to write; an earlier demo in it is replaced.",
    default=Path("run/demo"),
)
def command(output: Path) -> None:
    """Cluster 1,797 handwritten digits without labels and look at the result. No network needed."""
    from kscn.cli.progress import load_data

    terminal = Terminal.of()
    digits = load_data("digits")
    assert digits.labels is not None
    choice = choose(digits, "digits", CLUSTERS, None, None, SEED, {})
    terminal.say(
        terminal.style("1,797 handwritten digits, no labels: ", bold=True)
        + f"find {CLUSTERS} groups.",
        "",
    )
    config = new_config(digits, "digits", choice)
    result = fit_run(digits, choice, config, output, overwrite=True)
    images = digits.samples[:] / digits.scale
    terminal.say(
        *cluster_lines(terminal, choice.model, digits.samples, images, digits.labels),
        *fact_lines(terminal, told(result)),
        "",
        *comparison_lines(terminal, choice.method, result, images, digits.labels),
        "",
        f"The run is in {output}/. Next:",
        f"  {f'kscn report {output}':<38} one page that shows what was found",
        f"  {f'kscn evaluate {output}':<38} which digits are taken for which",
        f"  {'kscn fit YOUR_DATA -k 10 -o run/mine':<38} a .npy file, a folder of images, ...",
    )


def cluster_lines(
    terminal: Terminal, model: Any, samples: Any, images: "np.ndarray", labels: "np.ndarray"
) -> list[str]:
    """A row of images per cluster: its mean, its most typical members, its oddest one.

    Typical is what lies many times nearer to its own subspace than to any other; odd is what
    lies far from its own. Both are measured where the subspaces are, in the latent space.
    """
    import numpy as np

    found = model.labels_
    energy = (model.transform(samples) ** 2).sum(axis=1)
    nearest, second = np.sort(model.residuals(samples) / energy[:, None], axis=1).T[:2]
    width, gap = images.shape[2] + 1, "   "
    room = terminal.width - _CAPTION - 2 * (width + len(gap) - 1)
    shown = min(_MOST, max(1, (room + 1) // width))
    head = f"{'':<{_CAPTION}}{'mean':<{width + 2}}{'most typical':<{shown * width + 2}}oddest"
    lines = [terminal.style(head, dim=True)]
    for cluster in range(CLUSTERS):
        members = np.flatnonzero(found == cluster)
        if not len(members):
            continue
        typical = members[np.argsort((nearest / second)[members])][:shown]
        oddest = members[nearest[members].argmax()]
        shown_images = ([images[members].mean(axis=0)], images[typical], [images[oddest]])
        blocks = [strip(terminal, several) for several in shown_images]
        digit = np.bincount(labels[members]).argmax()
        purity = np.mean(labels[members] == digit)
        colour = "green" if purity > 0.9 else "yellow" if purity > 0.7 else "red"
        caption = [
            terminal.style(f"{f'cluster {cluster}':<{_CAPTION}}", bold=True),
            f"{f'{len(members)} images':<{_CAPTION}}",
            f"{f'mostly {digit}':<{_CAPTION}}",
            terminal.style(f"{f'{purity:.0%} of them':<{_CAPTION}}", fg=colour),
        ]
        rows = zip(caption, *blocks, strict=True)
        lines += [*(text + gap.join(row) for text, *row in rows), ""]
    return lines


def strip(terminal: Terminal, images: "Iterable[np.ndarray]") -> list[str]:
    """Grey images (h, w) with values from 0 to 1 side by side, in h / 2 lines of text."""
    reset = "\x1b[0m" if terminal.colours else ""
    drawn = [_thumbnail(terminal, image) for image in images]
    return [f"{reset} ".join(lines) + reset for lines in zip(*drawn, strict=True)]


def _thumbnail(terminal: Terminal, image: "np.ndarray") -> list[str]:
    """An image with two pixels, one above the other, in every character.

    In colour the half block shows both in 24 greys; without colour the pair is drawn in black and
    white by half blocks, and where not even those can be written, by ASCII.
    """
    marks = _BLOCKS if terminal.blocks else _ASCII

    def character(upper: float, lower: float) -> str:
        if not terminal.colours:
            return marks[2 * (upper >= 0.5) + (lower >= 0.5)]
        up, low = (_FIRST_GREY + min(_GREYS - 1, int(v * _GREYS)) for v in (upper, lower))
        return click.style("▀", fg=up, bg=low, reset=False)

    pairs = zip(image[:-1:2], image[1::2], strict=True)
    return ["".join(map(character, *pair)) for pair in pairs]


def comparison_lines(
    terminal: Terminal,
    method: str,
    result: dict[str, Any],
    images: "np.ndarray",
    labels: "np.ndarray",
) -> list[str]:
    """Our scores beside those of methods on the pixels; the labels are used here only."""
    from sklearn.cluster import KMeans

    from kscn import KSubspaces, metrics
    from kscn.cli.progress import working

    rivals = {
        "k-subspaces": KSubspaces(CLUSTERS, subspace_dim=LINEAR_DIMENSION, random_state=SEED),
        "k-means": KMeans(CLUSTERS, n_init=10, random_state=SEED),
    }
    scored = [(method, result["scores"], result["seconds"])]
    for name, rival in rivals.items():
        started = time.perf_counter()
        with working(f"{name} on the same pixels"):
            rival.fit(images.reshape(len(images), -1))
        seconds = time.perf_counter() - started
        scored.append((name, metrics.scores(labels, rival.labels_), seconds))
    rows = [
        [name, *(f"{scores[key]:.1%}" for key in ("acc", "nmi", "ari")), duration(spent)]
        for name, scores, spent in scored
    ]
    head, ours, *theirs = table(["against the true digits", "ACC", "NMI", "ARI", "time"], rows)
    return [terminal.style(head, dim=True), terminal.style(ours, bold=True), *theirs]
