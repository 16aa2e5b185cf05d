"""`kscn export`: a checked ONNX file, or one sentence and no file."""

import numpy as np
import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def test_the_file_labels_as_predict_does(kscn, finished, files, planes, tmp_path):
    result = kscn("export", finished, tmp_path / "model.onnx")
    assert result.exit_code == 0, result.output
    assert "the clusters of 120 samples agree" in result.output
    assert kscn("predict", finished, files / "x.npy", "-o", tmp_path / "y.csv").exit_code == 0
    expected = np.loadtxt(tmp_path / "y.csv", delimiter=",", skiprows=1, dtype=int)[:, 1]
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    np.testing.assert_array_equal(session.run(["label"], {"samples": planes[0]})[0], expected)


def test_without_the_data_the_check_uses_random_samples(kscn, finished, tmp_path):
    import shutil

    run = shutil.copytree(finished, tmp_path / "run")
    config = run / "config.toml"
    config.write_text(config.read_text().replace("x.npy", "gone.npy"))
    result = kscn("export", run, tmp_path / "model.onnx")
    assert result.exit_code == 0, result.output
    assert "64 random samples" in result.output
