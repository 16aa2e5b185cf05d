"""Runs that share their pretraining end as they would without, and damage costs only time."""

import numpy as np
import pytest

from kscn import KSCN
from kscn_paper import methods
from kscn_paper.runner import Reproduction
from kscn_paper.sharing import PretrainedOnce

SETTINGS = {
    "autoencoder_params": {"channels": [4, 3], "kernels": [3, 3], "batch_norm": True},
    "subspace_dim": 2, "latent_dim": 6, "pretrain_epochs": 2, "epochs": 2, "n_init": 1,
}  # fmt: skip


def fitted(make, images, **settings):
    return make(3, **{**SETTINGS, "random_state": 0, **settings}).fit(images)


def figures(model):
    """All that the alternation recorded, without times."""
    fits = [r for r in model.history_ if r["stage"] == "fit"]
    return [{k: v for k, v in r.items() if "seconds" not in k} for r in fits]


def stages(model):
    return [record["stage"] for record in model.history_]


@pytest.mark.parametrize("update", ["svd", "grassmann"])
def test_a_run_that_finds_its_pretraining_ends_as_one_that_does_it(load, cache, update):
    images = load("first").samples
    alone = fitted(KSCN.from_settings, images, update=update)
    fitted(PretrainedOnce.from_settings, images, update="svd")
    shared = fitted(PretrainedOnce.from_settings, images, update=update)
    assert "pretrained" in stages(shared) and "pretrain" not in stages(shared)
    assert figures(shared) == figures(alone)
    assert np.array_equal(shared.labels_, alone.labels_)


@pytest.mark.parametrize(
    "other",
    [{"random_state": 1}, {"pretrain_epochs": 3}, {"batch_size": 32}, {"learning_rate": 0.01}],
    ids=lambda other: next(iter(other)),
)
def test_another_pretraining_is_not_shared(load, cache, other):
    images = load("first").samples
    fitted(PretrainedOnce.from_settings, images)
    assert "pretrain" in stages(fitted(PretrainedOnce.from_settings, images, **other))
    assert len(list(cache.iterdir())) == 2


def test_other_samples_do_not_share(load, cache):
    fitted(PretrainedOnce.from_settings, load("first").samples)
    assert "pretrain" in stages(fitted(PretrainedOnce.from_settings, load("second").samples))


def test_a_damaged_network_is_made_again(load, cache):
    images = load("first").samples
    first = fitted(PretrainedOnce.from_settings, images)
    (kept,) = cache.iterdir()
    (kept / "model.safetensors").write_bytes(b"nothing")
    with pytest.warns(UserWarning, match="is made again because"):
        again = fitted(PretrainedOnce.from_settings, images)
    assert figures(again) == figures(first)
    assert "pretrained" in stages(fitted(PretrainedOnce.from_settings, images))


def test_pretraining_that_was_ended_early_is_not_kept(load, cache):
    def end(estimator, record):
        return record["stage"] == "pretrain"

    fitted(PretrainedOnce.from_settings, load("first").samples, callbacks=(end,))
    assert not cache.exists()


def test_without_pretraining_nothing_is_kept(load, cache):
    fitted(PretrainedOnce.from_settings, load("first").samples, pretrain_epochs=0)
    assert not cache.exists()


def test_both_updates_of_a_table_share(table, preset, load, tmp_path, cache):
    work = Reproduction([table], ["kscn-s", "kscn-g"], str(preset), [0], tmp_path / "out", load)
    records = [work.run(cell).record for cell in work.cells()]
    assert [r["config"]["method"] for r in records] == ["kscn-s", "kscn-s", "kscn-g", "kscn-g"]
    assert [r["pretrained_in_cache"] for r in records] == [False, False, True, True]


def test_the_settings_that_a_run_records_are_those_of_kscn(load):
    model = methods.configured("kscn-g", 3, preset="paper", dataset="mnist", shape=(28, 28))
    shared = PretrainedOnce.from_settings(**model.get_params())
    assert methods.settings(shared) == methods.settings(model)
    assert methods.defaults(shared) == methods.defaults(model)
