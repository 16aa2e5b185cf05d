"""Model files: what goes in comes out, faults are named, and a kill never costs the old model."""

import json
import os

import numpy as np
import pytest
import torch

from kscn import modelfile
from kscn.errors import InputError, ModelFileError
from kscn.estimators import load_model
from kscn.modelfile import MANIFEST_NAME, TENSORS_NAME, read_model, write_model


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model"
    write_model(path, "KSubspaces", {"n_clusters": 2}, {"bases": np.arange(12.0).reshape(2, 3, 2)})
    return path


def edit_manifest(model, **changes):
    manifest = json.loads((model / MANIFEST_NAME).read_text())
    (model / MANIFEST_NAME).write_text(json.dumps(manifest | changes))


def test_what_is_written_is_read(tmp_path):
    tensors = {
        "bases": torch.randn(3, 5, 2, requires_grad=True),
        "offsets": np.asfortranarray(np.random.default_rng(0).random((4, 6))),
        "every_second": np.arange(10, dtype=np.int32)[::2],
        "scalar": np.float32(2.5),
        "big_endian": np.arange(3, dtype=">f8"),
        "empty": np.zeros((0, 4), dtype=np.float32),
        "flags": np.array([True, False]),
    }
    params = {"subspace_dim": [1, 2], "trim": 0.1, "seed": None, "name": "é"}
    write_model(tmp_path / "deep" / "er" / "model", "KSubspaces", params, tensors)
    read = read_model(tmp_path / "deep" / "er" / "model")
    assert (read.kind, read.params) == ("KSubspaces", params)
    assert read.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        expected = tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else tensor
        assert read.tensors[name].shape == expected.shape
        assert read.tensors[name].dtype == expected.dtype.newbyteorder("=")
        np.testing.assert_array_equal(read.tensors[name], expected)


def test_a_new_model_replaces_the_old_and_leaves_nothing_beside_it(model):
    write_model(model, "KSubspaces", {"n_clusters": 3}, {"bases": np.zeros((3, 2, 1))})
    assert read_model(model).params == {"n_clusters": 3}
    assert os.listdir(model.parent) == ["model"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_a_link_and_the_model_is_written_where_it_points(tmp_path, there):
    far, link = tmp_path / "far" / "model", tmp_path / "link"
    link.symlink_to("far/model")
    if there:
        write_model(far, "KSubspaces", {"n_clusters": 2}, {})
    write_model(link, "KSubspaces", {"n_clusters": 3}, {})
    assert link.is_symlink()
    assert read_model(far).params == read_model(link).params == {"n_clusters": 3}
    assert os.listdir(tmp_path / "far") == ["model"]
    os.rename(far, tmp_path / "far" / ".model.new-1234")
    with pytest.raises(ModelFileError, match="was interrupted"):
        read_model(link)


def test_a_damaged_model_can_be_saved_again(model):
    (model / MANIFEST_NAME).write_text("{")
    write_model(model, "KSubspaces", {"n_clusters": 3}, {})
    assert read_model(model).params == {"n_clusters": 3}


@pytest.mark.parametrize("name", ["_write_synced", "sync_directory", "replace_directory"])
def test_a_full_disk_keeps_the_old_model_and_says_so(model, monkeypatch, name):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(modelfile, name, full)
    with pytest.raises(ModelFileError, match="No space left on device"):
        write_model(model, "KSubspaces", {"n_clusters": 9}, {})
    assert os.listdir(model.parent) == ["model"]
    assert read_model(model).params == {"n_clusters": 2}


def test_a_failing_swap_puts_the_old_model_back(model, monkeypatch):
    rename = os.rename

    def rename_all_but_the_new(source, target):
        if ".new-" in str(source):
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", rename_all_but_the_new)
    with pytest.raises(ModelFileError, match="Input/output error"):
        write_model(model, "KSubspaces", {"n_clusters": 9}, {})
    assert read_model(model).params == {"n_clusters": 2}


def test_a_kill_between_the_renames_is_explained(model):
    model.rename(model.with_name(".model.old-1234abcd"))
    with pytest.raises(
        ModelFileError, match=r"interrupted and .*\.model\.old-1234abcd is complete"
    ):
        read_model(model)


def test_other_peoples_files_are_not_replaced(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.tex").write_text("ten years")
    (tmp_path / "file").write_text("text")
    with pytest.raises(ModelFileError, match="other files than a kscn model"):
        write_model(tmp_path / "notes", "KSubspaces", {}, {})
    with pytest.raises(ModelFileError, match="other files than a kscn model"):
        write_model(tmp_path / "file", "KSubspaces", {}, {})
    with pytest.raises(ModelFileError, match="cannot write the model"):
        write_model(tmp_path / "file" / "below", "KSubspaces", {}, {})
    assert (tmp_path / "notes" / "thesis.tex").read_text() == "ten years"
    assert (tmp_path / "file").read_text() == "text"


def test_unsuitable_parameters_and_arrays_are_refused(tmp_path):
    with pytest.raises(InputError, match="JSON"):
        write_model(tmp_path / "m", "K", {"callback": print}, {})
    with pytest.raises(InputError, match="JSON"):
        write_model(tmp_path / "m", "K", {"tol": float("nan")}, {})
    with pytest.raises(InputError, match="fewer parameters"):
        write_model(tmp_path / "m", "K", {"names": ["x" * 2**20] * 16}, {})
    with pytest.raises(InputError, match="'words' of a model must be numeric"):
        write_model(tmp_path / "m", "K", {}, {"words": np.array(["a"])})
    assert os.listdir(tmp_path) == []


def truncate(model):
    content = (model / TENSORS_NAME).read_bytes()
    (model / TENSORS_NAME).write_bytes(content[:-8])


def flip_a_bit(model):
    content = bytearray((model / TENSORS_NAME).read_bytes())
    content[-1] ^= 1
    (model / TENSORS_NAME).write_bytes(content)


def sealed(model, content):
    """Other bytes in the place of the tensors, with a manifest that vouches for them."""
    (model / TENSORS_NAME).write_bytes(content)
    digest = modelfile.sha256_of(model / TENSORS_NAME)
    edit_manifest(model, tensors_bytes=len(content), tensors_sha256=digest)


def with_table(model, text, data=bytes(96)):
    sealed(model, len(text).to_bytes(8, "little") + text.encode() + data)


def array(*offsets, shape=(2, 3, 2), dtype="F64"):
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def with_arrays(**arrays):
    return lambda model: with_table(model, json.dumps(arrays))


def other_bytes_of_one_name(model):
    first, second = (json.dumps(array(*at, shape=[6])) for at in ((0, 48), (48, 96)))
    with_table(model, f'{{"bases": {first}, "bases": {second}}}')


def deep_brackets(model):
    (model / MANIFEST_NAME).write_text("[" * 100_000)


def endless_number(model):
    (model / MANIFEST_NAME).write_text('{"format": ' + "9" * 100_000 + "}")


def huge_manifest(model):
    with (model / MANIFEST_NAME).open("wb") as file:
        file.truncate(2**40)  # sparse


def huge_header(model):
    sealed(model, (2**40).to_bytes(8, "little") + b"{}")


def pipe_as_tensors(model):
    (model / TENSORS_NAME).unlink()
    os.mkfifo(model / TENSORS_NAME)


def pipe_as_manifest(model):
    (model / MANIFEST_NAME).unlink()
    os.mkfifo(model / MANIFEST_NAME)


def infinite_number(model):
    edit_manifest(model, params={"x": 1.5})
    text = (model / MANIFEST_NAME).read_text()
    (model / MANIFEST_NAME).write_text(text.replace("1.5", "1e999"))


NO_MANIFEST = "is damaged or not of kscn"
UNREADABLE = "not a readable safetensors file"


def empty_but_wide(model):
    write_model(model, "KSubspaces", {}, {"bases": np.zeros((2**40, 0), dtype=np.float32)})


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (truncate, "model.safetensors is cut off or another file: it has"),
        (flip_a_bit, "model.safetensors is damaged: its checksum differs"),
        (lambda m: sealed(m, b"this is not a safetensors file"), UNREADABLE),
        (lambda m: (m / TENSORS_NAME).unlink(), "model.safetensors is missing"),
        (lambda m: (m / MANIFEST_NAME).unlink(), "it has no manifest.json"),
        (lambda m: (m / MANIFEST_NAME).write_bytes(b'{"format": "ksc'), NO_MANIFEST),
        (lambda m: (m / MANIFEST_NAME).write_bytes(b"\xff\xfe\x00"), NO_MANIFEST),
        (lambda m: (m / MANIFEST_NAME).write_text("[1]"), "it is .1., not a table"),
        (lambda m: edit_manifest(m, format="onnx"), "format is .*, not 'kscn-model'"),
        (lambda m: edit_manifest(m, format_version=2), "format version 2 and this kscn reads"),
        (lambda m: edit_manifest(m, params=None), "params is missing, not a table"),
        (lambda m: edit_manifest(m, kind="KMedians"), "'KMedians', which this version"),
        (lambda m: edit_manifest(m, kind="K" * 10_000), "kind is .*, not the name of a class"),
        (lambda m: edit_manifest(m, kind="../../x"), "kind is .*, not the name of a class"),
        (lambda m: edit_manifest(m, format_version="9" * 10_000), "format_version is '9999"),
        (lambda m: edit_manifest(m, params={"x": float("nan")}), NO_MANIFEST),
        (deep_brackets, NO_MANIFEST),
        (endless_number, NO_MANIFEST),
        (huge_manifest, "manifest.json has more than 16777216 bytes"),
        (lambda m: edit_manifest(m, tensors_bytes=-1), "tensors_bytes is -1"),
        (huge_header, UNREADABLE),
        (lambda m: with_table(m, "[" * 50_000), UNREADABLE),
        (with_arrays(bases=array(0, 2**50)), UNREADABLE),
        (with_arrays(bases=array(96, 0)), UNREADABLE),
        (with_arrays(bases=array(0, 96), overlapping=array(0, 96)), UNREADABLE),
        (with_arrays(bases=array(0, 48, shape=[6])), UNREADABLE),  # a hole at the end
        (with_arrays(bases=array(48, 96, shape=[6])), UNREADABLE),  # and at the beginning
        (other_bytes_of_one_name, UNREADABLE),
        (with_arrays(bases=array(0, 96, shape=[2**62, 2**62])), UNREADABLE),
        (with_arrays(bases=array(0, 96, shape=[-12])), UNREADABLE),
        (with_arrays(bases=array(0, 96, shape=[float("nan")])), UNREADABLE),
        (with_arrays(bases={"dtype": "F64", "data_offsets": [0, 96]}), UNREADABLE),
        (with_arrays(bases=array(0, 96, shape=["2", 3, 2])), UNREADABLE),
        (with_arrays(bases=array(0, 96, dtype=["F64"])), UNREADABLE),
        (with_arrays(bases=array(0, 96, shape=[48], dtype="BF16")), UNREADABLE),
        (with_arrays(bases=array(0, 96, shape=[96], dtype="F8_E4M3")), UNREADABLE),
        (with_arrays(bases=array(0, 96, shape=[12], dtype="C64")), "'bases' is of complex64"),
        (lambda m: edit_manifest(m, params={"x": 1e308}), "does not describe a KSubspaces"),
        (infinite_number, NO_MANIFEST),
        (empty_but_wide, r"'bases' is of float32 and of shape \(1099511627776, 0\)"),
        (pipe_as_tensors, "model.safetensors is missing"),
        (pipe_as_manifest, "it has no manifest.json"),
    ],
)
def test_every_fault_is_one_sentence_that_names_the_file(model, damage, words):
    damage(model)
    with pytest.raises(ModelFileError, match=words) as caught:
        load_model(model)
    assert str(model) in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert "\n" not in str(caught.value)


def test_paths_that_are_not_directories(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(ModelFileError, match="is not a kscn model"):
        read_model(tmp_path / "file")
    with pytest.raises(ModelFileError, match="does not exist"):
        read_model(tmp_path / "nothing")


def test_the_largest_model_is_a_limit_that_can_be_raised(model, monkeypatch):
    size = (model / TENSORS_NAME).stat().st_size
    monkeypatch.setenv("KSCN_MAX_BYTES", str(size - 1))
    with pytest.raises(ModelFileError, match=f"above the limit of {size - 1}; .*KSCN_MAX_BYTES"):
        read_model(model)
    monkeypatch.setenv("KSCN_MAX_BYTES", str(size))
    assert read_model(model).kind == "KSubspaces"
    monkeypatch.setenv("KSCN_MAX_BYTES", "lots")
    with pytest.raises(InputError, match="KSCN_MAX_BYTES is 'lots'"):
        read_model(model)


def test_names_in_the_manifest_open_no_other_file(model):
    secret = model.parent / "secret.safetensors"
    (model / TENSORS_NAME).rename(secret)
    edit_manifest(model, tensors_file="../secret.safetensors", path=str(secret))
    with pytest.raises(ModelFileError, match=r"model\.safetensors is missing"):
        read_model(model)


def test_a_model_that_may_not_be_read_is_named(model, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(ModelFileError, match=r"cannot read the model .*Permission denied"):
        read_model(model)
