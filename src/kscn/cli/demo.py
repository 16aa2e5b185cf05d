"""`kscn demo`: the main job on images that ship with a dependency, drawn in the terminal."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.chosen import duration
from kscn.cli.fit import choose
from kscn.cli.fitting import fit_run
from kscn.cli.summary import chosen_lines
from kscn.cli.terminal import Terminal, table
from kscn.cli.thumbnails import strip, thumbnail

if TYPE_CHECKING:
    import numpy as np

CLUSTERS, SEED = 10, 0
LINEAR_DIMENSION = 4  # of the k-subspaces on pixels that ours is compared with
_CAPTION = 13  # columns of text left of the images
_MOST = 12  # typical members shown on a wide terminal


@click.command("demo", short_help="Cluster handwritten digits and look at the result.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("run/demo"),
    show_default=True,
    help="The run directory to write; an earlier demo in it is replaced.",
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
    model, _, result = fit_run(digits, "digits", choice, output, overwrite=True)
    images = digits.samples[:] / digits.scale
    terminal.say(
        *cluster_lines(terminal, model, digits.samples, images, digits.labels),
        *chosen_lines(terminal, result),
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
        blocks = [
            strip([thumbnail(terminal, images[members].mean(axis=0))], terminal),
            strip([thumbnail(terminal, images[i]) for i in typical], terminal),
            strip([thumbnail(terminal, images[oddest])], terminal),
        ]
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
        lines += [text + gap.join(row) for text, *row in rows]
        lines.append("")
    return lines


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
