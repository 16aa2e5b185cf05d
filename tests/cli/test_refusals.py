"""Bad input to every command: one sentence that names it, exit code 2, and nothing written."""

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("fastapi")
pytest.importorskip("onnx")
LINEAR = "--method k-subspaces"


@pytest.fixture(scope="module")
def paths(files, planes, finished, sized, photos, tmp_path_factory):
    """What the calls below are about, by name."""
    place = tmp_path_factory.mktemp("bad")
    samples, labels = planes
    arrays = {
        "flat": np.arange(10.0),
        "none": np.zeros((0, 3)),
        "equal": np.ones((20, 3)),
        "two": np.eye(2, 5),
        "eye": np.eye(9, 5),
        "words": np.array(["a", "b"]),
        "wide": np.ones((5, 9), np.float32),
        "short": samples[:50],
        "turned": samples[::-1],
        "few": labels[:7],
        "nan_labels": np.full(120, np.nan),
    }
    arrays["nan"] = np.random.default_rng(0).standard_normal((30, 4))
    arrays["nan"][17, 2] = np.nan
    for name, array in arrays.items():
        np.save(place / f"{name}.npy", array)
    (place / "text.npy").write_text("no array")
    (place / "binary.txt").write_bytes(b"\xff\xfe\x00\x01")
    header = bytes([0, 0, 8, 3]) + (1000).to_bytes(4, "big") + (8).to_bytes(4, "big") * 2
    (place / "half-idx3-ubyte").write_bytes(header + bytes(1000))
    (place / "images").mkdir()
    for i in range(12):
        pixels = np.random.default_rng(i).integers(0, 255, (8, 8), dtype=np.uint8)
        Image.fromarray(pixels).save(place / "images" / f"{i:02}.png")
    (place / "images" / "07.png").write_bytes(b"\x89PNG broken")
    (place / "full").mkdir()
    (place / "full" / "a").touch()
    found = {path.stem: path for path in place.iterdir()}
    runs = {"run": finished, "photos_run": sized, "photos": photos}
    return found | runs | {"x": files / "x.npy", "y": files / "y.npy", "place": place}


REFUSED = [
    ("fit {place}/nothing.npy", "nothing.npy"),
    ("fit {text}", "text.npy"),
    ("fit {half-idx3-ubyte}", "half-idx3-ubyte"),
    ("fit {images}", "07.png"),
    ("fit {photos}", "--size"),
    ("fit {photos} --size 16", "--skip-broken"),
    ("fit {x} --size 8", "is no folder of images"),
    ("fit {nan}", "NaN"),
    ("fit {flat}", "1D"),
    ("fit {none}", "empty"),
    ("fit {equal}", "are equal"),
    ("fit {two}", "2"),
    ("fit {words}", "words.npy"),
    ("fit {eye} --subspace-dim 5 " + LINEAR, "5"),
    ("fit {eye} --init magic " + LINEAR, "magic"),
    ("fit {eye} --n-init 0 " + LINEAR, "n_init"),
    ("fit {eye} --max-iter 0 " + LINEAR, "max_iter"),
    ("fit {eye} --batch-size 0", "batch_size"),
    ("fit {eye} --seed -1", "random_state"),
    ("fit {eye} -o {text}", "cannot write"),
    ("fit {eye} -o {text}/below", "cannot write"),
    ("predict {place} {x} -o {place}/out.csv", "not a kscn run"),
    ("predict {run} nothing.npy -o {place}/out.csv", "nothing.npy"),
    ("predict {run} {wide} -o {place}/out.csv", "9"),
    ("predict {run} {x} -o {place}", "is a directory"),
    ("predict {run} {x} -o {x}/below", "cannot write"),
    ("predict {run} {x} -o {x}", "is the data itself"),
    ("evaluate {run} --labels {few}", "has 7 labels and the run has 120 samples"),
    ("evaluate {run} --labels {nan_labels}", "NaN"),
    ("evaluate {run} --labels {text}", "cannot read labels from"),
    ("evaluate {run} --labels {binary}", "cannot read labels from"),
    ("evaluate {run} --labels {place}", "cannot read labels from"),
    ("evaluate {run} --labels {place}/nothing.npy", "does not exist"),
    ("evaluate {run} --data digits", "has 1,797 samples"),
    ("evaluate {run}", "has no labels; give the true classes with --labels"),
    ("report {run} --data {short} -o {place}/page.html", "has 50 samples"),
    ("report {run} --data {turned} -o {place}/page.html", "not the samples of the run"),
    ("report {run} --data nothing.npy -o {place}/page.html", "does not exist"),
    ("report {run} --labels {few} -o {place}/page.html", "has 7 labels"),
    ("report {run} -o {place}", "is a directory"),
    ("report {run} -o {place}/no/page.html", "cannot write"),
    ("explore {run} --data nothing.npy", "does not exist"),
    ("explore {run} --data digits", "1,797"),
    ("explore {place}", "not a kscn run"),
    ("sort {run} -o {place}/new", "no folder of images"),
    ("sort {photos_run} -o {full}", "not empty"),
    ("sort {photos_run} -o {photos}/sorted", "lies inside"),
    ("serve {place}", "not a kscn run"),
    ("serve {run} --token é", "printable ASCII"),
    ("serve {run} --token a --host no.such.host.invalid", "cannot listen on"),
    ("export {run} {place}/model.pt", "should end in .onnx"),
    ("export {run} {place}/no/model.onnx", "cannot write"),
    ("export {run} {place}/model.onnx --data {short}", "has 50 samples"),
    ("embed {photos} --encoder x.onnx -o {place}/e.csv", "should end in .npy"),
    ("embed {photos} --encoder x.pt -o {place}/e.npy", "give an .onnx file"),
    ("data get nonsense", "nonsense"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=[call for call, _ in REFUSED])
def test_bad_input_gets_one_sentence_and_writes_nothing(one_sentence, kscn, paths, call, words):
    place = paths["place"]
    if call.startswith("fit"):
        call += " -k 3" + ("" if " -o " in call else " -o {place}/new")
    before = sorted(place.rglob("*"))
    told = one_sentence(kscn(*(part.format(**paths) for part in call.split())))
    assert words.lower() in told.lower()
    assert sorted(place.rglob("*")) == before
