"""Images become vectors before a fit or a prediction, by the encoder of an estimator."""

import os
from collections.abc import Mapping
from typing import Any

from kscn.constraints import TEXT, check_table
from kscn.errors import InputError
from kscn.estimators import checks as check
from kscn.features.encoders import Encoder, Preprocessing, load_encoder
from kscn.features.encoders.pictures import EmbeddedSource, Pictures
from kscn.runtime.group import Group, place


def encoded_for_fit(estimator: Any, X: Any, group: Group) -> tuple[Any, Encoder]:
    """The embeddings of this process's images for a new fit, and the encoder."""
    encoder, pictures = load_encoder(estimator.encoder), Pictures(X)
    estimator._check_params(len(pictures.source), 1)  # before the hours that it may take
    own = group.part(pictures.source)
    first, _ = place(own)

    told = -1

    def progress(done: int, total: int) -> None:
        nonlocal told
        if 100 * done // total > told:  # a hundred records at most, however many images there are
            told = 100 * done // total
            for callback in estimator.callbacks:
                callback(estimator, {"stage": "embed", "round": done, "rounds": total})

    encoder = encoder.to(check.device(estimator.device))
    rows = range(first, first + len(own))
    embedded = encoder.embed(pictures.source, rows, progress=progress)
    return group.holding(EmbeddedSource(embedded, pictures.source)), encoder


def encoded_for_use(estimator: Any, X: Any) -> EmbeddedSource:
    """The embeddings of images for a fitted estimator."""
    encoder, pictures = encoder_of(estimator), Pictures(X)
    return EmbeddedSource(encoder.embed(pictures.source), pictures.source)


def has_encoder(estimator: Any) -> bool:
    """Whether a fitted estimator takes images through an encoder."""
    return getattr(estimator, "_encoder_of_fit", None) is not None


def encoder_of(estimator: Any) -> Encoder:
    """The encoder of a fitted estimator; that of a model file is looked for when it is needed."""
    if estimator.image_encoder_ is None:
        estimator.image_encoder_ = same_encoder(estimator.encoder, estimator._encoder_of_fit)
    return estimator.image_encoder_.to(check.device(estimator.device))


def same_encoder(given: Any, about: Mapping[str, Any]) -> Encoder:
    """The encoder that was given, if it is the one that the model was fitted with."""
    fitted_with = f"{about['name']} (sha256 {about['sha256'][:12]})"
    file = isinstance(given, (str, os.PathLike)) and str(given).lower().endswith(".onnx")
    if given is None or (file and not os.path.exists(given)):
        gone = f" is no longer at {given}; say where it is" if file else "; give it"
        raise InputError(
            f"this model was fitted with the encoder {fitted_with}{gone} by --encoder, in Python "
            "by set_params(encoder=...)."
        )
    # Not what a file beside it says now: what it said when the model was fitted.
    found = load_encoder(given, **about["preprocessing"])
    if found.sha256 != about["sha256"]:
        raise InputError(
            f"encoder={found.name} (sha256 {found.sha256[:12]}) is not the encoder that this model "
            f"was fitted with, {fitted_with}; give that one, or fit again."
        )
    preprocessing = Preprocessing.of_table(about["preprocessing"], "the model file")
    return Encoder(found.network, preprocessing)  # an encoder that was given has its own


def checked_about(about: Any) -> dict[str, Any] | None:
    """What a model file says of its encoder, or a ValueError."""
    if about is not None:
        check_table(about, {"name": TEXT, "sha256": TEXT, "preprocessing": {}}, "its encoder")
        Preprocessing.of_table(about["preprocessing"], "its preprocessing")
    return about
