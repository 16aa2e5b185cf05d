"""Cluster handwritten digits with the estimators: fit, score, save, load, predict.

    python examples/digits.py [--samples 800] [--epochs 10]

The digits come with scikit-learn. Half of them are clustered, the other half is new to the model.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from kscn import KSCN, KSubspaces, data, load_model, metrics


def main() -> None:
    """Cluster with and without a network, and use the saved model on samples it has not seen."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--samples", type=int, default=800, help="how many digits to use")
    options.add_argument("--pretrain-epochs", type=int, default=30)
    options.add_argument("--epochs", type=int, default=10)
    given = options.parse_args()

    digits = data.load("digits")
    # In random order, because neighbours were written by the same hand.
    rows = np.random.default_rng(0).permutation(len(digits.samples))[: given.samples]
    images, labels = digits.samples.take(rows), digits.labels[rows]  # labels only score
    half = len(images) // 2

    quick = KSubspaces(n_clusters=10, subspace_dim=4, n_init=2, random_state=0).fit(images[:half])
    tell("k-subspaces of the pixels", labels[:half], quick.labels_)

    epochs = {"pretrain_epochs": given.pretrain_epochs, "epochs": given.epochs}
    model = KSCN(n_clusters=10, random_state=0, **epochs).fit(images[:half])
    tell("kSCN-S", labels[:half], model.labels_)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        model.save(path)
        loaded = load_model(path)
        tell("kSCN-S, loaded, on new digits", labels[half:], loaded.predict(images[half:]))

    oddest = model.score_samples(images[half:]).argmin()
    print(f"the new digit farthest from all subspaces is number {half + oddest}")
    print(f"latents have {model.transform(images[:1]).shape[1]} dimensions")


def tell(what: str, labels: np.ndarray, found: np.ndarray) -> None:
    """Print how well clusters agree with the true digits."""
    scores = metrics.scores(labels, found)
    print(f"{what:32}" + "  ".join(f"{name.upper()} {scores[name]:.1%}" for name in scores))


if __name__ == "__main__":
    main()
