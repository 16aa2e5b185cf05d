"""The paper's figures of a fit: the latent before and after clustering, and its subspaces.

Needs the extra `paper` (matplotlib and openTSNE). Labels only colour, name and score.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from kscn import KSCN, data, extras, metrics
from kscn.errors import InputError
from kscn.report.spaces import space_of
from kscn_paper import methods

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEP = 2.0  # standard deviations from the mean to the ends of a direction
DIRECTIONS, NEAREST, FARTHEST = 3, 5, 3  # images of each subspace
# Ten colours that people with any colour vision tell apart: M. A. Petroff, "Accessible color
# sequences for data visualization" (2021).
COLOURS = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6",
    "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip


def draw(dataset: str, folder: Path, seed: int = 0, **parameters: Any) -> dict[str, float]:
    """Fit kSCN-S to images, write latent-NAME.png and subspaces-NAME.png, and score the fit.

    Returns
    -------
    dict
        The accuracy, and the smallest and the largest share of one class in a subspace, in per
        cent.
    """
    figures = extras.require("matplotlib.figure", "paper", "a figure")
    extras.require("openTSNE", "paper", "t-SNE")  # before the fit and not after it
    loaded = data.load(dataset)
    images = np.asarray(loaded.samples)
    classes, truth = np.unique(np.asarray(loaded.labels), return_inverse=True)
    words = loaded.label_names
    names = [str(number) if words is None else words[number] for number in classes]

    def made(**more: Any) -> KSCN:
        settings = {"random_state": seed, **parameters, **more}
        return methods.make("kscn-s", len(classes), dataset=dataset, **settings).fit(images)

    before = made(epochs=0)
    model = made(autoencoder=before.autoencoder_, pretrain_epochs=0)
    accuracy = 100 * metrics.clustering_accuracy(truth, model.labels_)
    latents = {
        "pretrained autoencoder": np.asarray(before._codes(images)),
        f"after clustering by kscn-s (ACC {accuracy:.1f} %)": model.transform(images),
    }
    places = {title: _embedded(points) for title, points in latents.items()}
    caption = f"{dataset}: t-SNE of {len(images):,} images, coloured by class"
    figure = figures.Figure(figsize=(10.4, 5.6), layout="constrained")
    latent_figure(figure, places, truth, names, caption)
    folder.mkdir(parents=True, exist_ok=True)
    _save(figure, folder / f"latent-{dataset}.png")
    members = np.zeros((len(classes), len(classes)))  # by cluster and class
    np.add.at(members, (model.labels_, truth), 1)
    shares = 100 * members.max(axis=1) / members.sum(axis=1).clip(min=1)
    titles = [
        f"subspace {j}: {own.sum():,.0f} images\n{share:.0f} % “{names[own.argmax()]}”"
        for j, (own, share) in enumerate(zip(members, shares, strict=True))
    ]
    figure = figures.Figure(figsize=(9.4, 0.52 * len(classes) + 0.8), layout="constrained")
    subspace_figure(figure, portraits(model, images), titles)
    _save(figure, folder / f"subspaces-{dataset}.png")
    return {"acc": accuracy, "least": float(shares.min()), "most": float(shares.max())}


def _save(figure: Figure, path: Path) -> None:
    """Write a figure in 256 colours: a third as large, and looks alike."""
    from PIL import Image  # comes with matplotlib

    figure.savefig(path, dpi=200)
    few = Image.open(path).convert("RGB").quantize(256, Image.Quantize.MEDIANCUT)
    few.save(path, optimize=True)


# The latent -------------------------------------------------------------------------------------


def _embedded(points: NDArray) -> NDArray:
    """t-SNE of points (n, d): their places in the plane, (n, 2)."""
    tsne = extras.require("openTSNE", "paper", "t-SNE")
    perplexity = min(30.0, (len(points) - 1) / 3)  # what so few points have room for
    made = tsne.TSNE(perplexity=perplexity, n_jobs=torch.get_num_threads(), random_state=0)
    return np.asarray(made.fit(np.asarray(points, dtype=np.float64)))


def latent_figure(
    figure: Figure,
    places: dict[str, NDArray],
    truth: NDArray,
    names: Sequence[str],
    caption: str,
) -> None:
    """Draw the same images in several spaces, title -> places (n, 2), coloured by class."""
    # In random order: drawn class by class, the last one would seem to lie above all others.
    order = np.random.default_rng(0).permutation(len(truth))
    shades = np.array([COLOURS[i % len(COLOURS)] for i in truth[order]])
    size = float(np.clip(9000 / len(truth), 1.2, 14))
    for axes, (title, xy) in zip(figure.subplots(1, len(places)), places.items(), strict=True):
        axes.scatter(*xy[order].T, s=size, c=shades, linewidths=0)
        for i, name in enumerate(names):
            own = xy[truth == i]
            middle = own[np.square(own - np.median(own, axis=0)).sum(axis=1).argmin()]
            axes.text(*middle, name, ha="center", fontweight="bold")
        axes.set(title=title, xticks=[], yticks=[], box_aspect=1)
    figure.supxlabel(caption, fontsize="small")


# The subspaces ----------------------------------------------------------------------------------


def portraits(model: KSCN, images: NDArray) -> dict[str, NDArray]:
    """What each subspace of a fitted model is made of: a heading -> images (k, m, h, w).

    The decoded mean code of the members; that mean moved to both ends of the directions of the
    subspace along which members vary most; members nearest to the subspace and farthest from it,
    relative to the length of the latent: a faint image is not a typical one.
    """
    space = space_of(model, images.shape[1:])
    residuals, latents = model.residuals(images), space.points(images)
    labels = residuals.argmin(axis=1)
    energy = latents.square().sum(dim=1).clamp(min=1e-30).numpy()
    distance = residuals[np.arange(len(labels)), labels] / energy
    count = min(DIRECTIONS, *model.subspace_dims_)
    rows: list[list[NDArray]] = []
    for cluster in range(model.n_clusters):
        members = np.flatnonzero(labels == cluster)
        if not len(members):
            raise InputError(f"subspace {cluster} has no members to draw.")
        axes, spread = space.directions(cluster, latents[members])
        steps = STEP * (axes * spread)[:, :count].mT  # (count, d)
        ends = torch.stack([-steps, steps], dim=1).flatten(0, 1)
        moved = torch.cat([torch.zeros_like(ends[:1]), ends])
        decoded = space.samples(moved, images[members])
        order = members[np.argsort(distance[members], kind="stable")]
        # Of so few members that there are not enough, some are shown again.
        near = images[np.resize(order[:NEAREST], NEAREST)]
        far = images[np.resize(order[::-1][:FARTHEST], FARTHEST)]
        rows.append([decoded[:1], *np.split(decoded[1:], count), near, far])
    heads = ["mean", *(f"direction {i + 1}: −, +" for i in range(count))]
    heads += ["nearest members", "farthest"]
    return {head: np.stack(part) for head, part in zip(heads, zip(*rows, strict=True), strict=True)}


def subspace_figure(figure: Figure, parts: dict[str, NDArray], titles: Sequence[str]) -> None:
    """Draw a row of grey images per subspace, and a heading over each kind of them."""
    high = float(parts["nearest members"].max())
    widths = [part.shape[1] for part in parts.values()]
    columns = figure.subplots(1, len(parts), width_ratios=widths)
    for axes, (head, part) in zip(columns, parts.items(), strict=True):
        white = np.pad(part, [(0, 0), (0, 0), (0, 2), (0, 2)], constant_values=high)
        k, m, height, width = white.shape
        mosaic = white.swapaxes(1, 2).reshape(k * height, m * width)
        axes.imshow(mosaic, cmap="gray", vmin=0, vmax=high, interpolation="nearest")
        axes.set_title(head, fontsize=7)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        if axes is columns[0]:
            axes.set_yticks(height * (np.arange(k) + 0.5), titles, fontsize=7)
            axes.tick_params(left=False)
    figure.supxlabel(
        f"The mean is moved by {STEP:g} standard deviations along the directions of the subspace "
        "in which members vary most; nearest and farthest by distance to the subspace.",
        fontsize="x-small",
    )
