"""Images become vectors before a fit or a prediction, by the encoder of an estimator."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kscn.constraints import TEXT, check_table
from kscn.errors import InputError, reason
from kscn.estimators import checks as check
from kscn.features.encoders import Encoder, Preprocessing, load_encoder
from kscn.features.encoders.pictures import EmbeddedSource, Pictures
from kscn.runtime.group import Group, place

# Records of progress at most, however many images there are.
_RECORDS = 100


def encoded_for_fit(estimator: Any, X: Any, group: Group) -> tuple[Any, Encoder]:
    """The embeddings of this process's images for a new fit, and the encoder."""
    encoder = load_encoder(estimator.encoder).to(check.device(estimator.device))
    if estimator._refines:
        raise InputError(
            "refine=True cannot be used with an encoder, which is not trained any further; leave "
            "it at 'auto'."
        )
    pictures = Pictures(X)
    estimator._check_params(len(pictures.source), 1)  # before the hours that it may take
    own = group.part(pictures.source)
    first, _ = place(own)
    embedded = encoder.embed(
        pictures.source, range(first, first + len(own)), progress=_progress(estimator)
    )
    return group.holding(EmbeddedSource(embedded, pictures.source)), encoder


def _progress(estimator: Any) -> Any:
    """Call the callbacks with how far it is."""
    told = -1

    def progress(done: int, total: int) -> None:
        nonlocal told
        if done * _RECORDS // total > told:
            told = done * _RECORDS // total
            for callback in estimator.callbacks:
                callback(estimator, {"stage": "embed", "round": done, "rounds": total})

    return progress


def encoded_for_use(estimator: Any, X: Any) -> EmbeddedSource:
    """The embeddings of images for a fitted estimator."""
    encoder, pictures = encoder_of(estimator), Pictures(X)
    return EmbeddedSource(encoder.embed(pictures.source), pictures.source)


def has_encoder(estimator: Any) -> bool:
    """Whether a fitted estimator takes images through an encoder."""
    return getattr(estimator, "_encoder_of_fit", None) is not None


def encoder_of(estimator: Any) -> Encoder:
    """The encoder of a fitted estimator; that of a model file is looked for when it is needed."""
    device = check.device(estimator.device)
    if estimator.image_encoder_ is None:
        estimator.image_encoder_ = same_encoder(estimator.encoder, estimator._encoder_of_fit)
    return estimator.image_encoder_.to(device)


def same_encoder(given: Any, about: Mapping[str, Any]) -> Encoder:
    """The encoder that was given, if it is the one that the model was fitted with."""
    told = f"{about['name']} (sha256 {about['sha256'][:12]})"
    if given is None:
        raise InputError(
            f"this model was fitted with the encoder {told}; give it by set_params(encoder=...)."
        )
    place = os.fspath(given) if isinstance(given, (str, os.PathLike)) else ""
    if place.lower().endswith(".onnx") and not os.path.exists(place):
        raise InputError(
            f"the encoder {told} is no longer at {reason(place)}; say where it is by --encoder, in "
            "Python by set_params(encoder=...)."
        )
    # Not what a file beside it says now: what it said when the model was fitted.
    recorded = dict(about["preprocessing"])
    found = load_encoder(given, **recorded)  # an Encoder keeps its own, see below
    if found.sha256 != about["sha256"]:
        raise InputError(
            f"encoder={found.name} (sha256 {found.sha256[:12]}) is not the encoder that this model "
            f"was fitted with, {told}; give that one, or fit again."
        )
    if found.preprocessing.table() != recorded:
        found = Encoder(found.network, Preprocessing.of_table(recorded, "the model file"))
    return found


def plain_encoder(encoder: Any) -> str | None:
    """By what a model file or a run finds an encoder again; None for a module of the caller's."""
    if isinstance(encoder, Encoder):
        encoder = encoder.name if encoder.network.findable else None
    if not isinstance(encoder, (str, os.PathLike)):
        return None
    name = os.fspath(encoder)
    return os.path.abspath(os.path.expanduser(name)) if name.lower().endswith(".onnx") else name


def checked_about(about: Any) -> dict[str, Any] | None:
    """What a model file says of its encoder, or a ValueError."""
    if about is not None:
        check_table(about, {"name": TEXT, "sha256": TEXT, "preprocessing": {}}, "its encoder")
        Preprocessing.of_table(about["preprocessing"], "its preprocessing")
    return about
