"""Cluster a folder of images of your own, on the command line and in Python.

    python examples/image_folder.py [FOLDER] [-k 10]

Without FOLDER, a small one is made of the digits that come with scikit-learn. Needs the extra
`images`. Images may have any size and mode; here they become 16 x 16 pixels.
"""

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from kscn import data, load_model

SIZE = 16  # pixels a side


def main() -> None:
    """Cluster with `kscn fit`, then sort the images into folders with `kscn sort`."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", type=Path, nargs="?")
    options.add_argument("-k", "--clusters", type=int, default=10)
    options.add_argument("--images", type=int, default=300, help="how many images to make")
    given = options.parse_args()

    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or make_folder(Path(scratch) / "images", given.images)
        run = Path(scratch) / "run"
        # The command line: labels.csv has the name of every image and its cluster.
        kscn("fit", folder, "-k", given.clusters, "-o", run, "--size", SIZE, "--seed", 0)
        with (run / "labels.csv").open(newline="") as file:
            labels = {row["file"]: int(row["label"]) for row in csv.DictReader(file)}

        # The same from Python: the model is the one of the run.
        samples = data.load(folder, size=SIZE).samples
        model = load_model(run / "model")
        assert dict(zip(samples.names, model.predict(samples).tolist(), strict=True)) == labels

        kscn("sort", run, "-o", Path(scratch) / "sorted")


def make_folder(folder: Path, count: int) -> Path:
    """Write digits as grey PNG files of 8 x 8 pixels."""
    folder.mkdir()
    for i, pixels in enumerate(np.asarray(data.load("digits").samples)[:count]):
        Image.fromarray(np.round(pixels * (255 / 16)).astype(np.uint8)).save(folder / f"{i:05}.png")
    return folder


def kscn(*args: object) -> None:
    """Run the command as a shell would."""
    subprocess.run([sys.executable, "-m", "kscn", *map(str, args)], check=True)


if __name__ == "__main__":
    main()
