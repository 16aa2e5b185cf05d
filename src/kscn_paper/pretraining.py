"""The autoencoder of a `KSCN` as it was before clustering, which a fitted model no longer has."""

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kscn.errors import InputError
from kscn_paper import methods

if TYPE_CHECKING:
    import numpy as np
    from torch import nn


class KeepPretrained:
    """Callback of `KSCN` that keeps a copy of the network at the end of its pretraining."""

    def __init__(self) -> None:
        self.autoencoder: nn.Module | None = None

    def __call__(self, estimator: Any, record: Mapping[str, Any]) -> None:
        """Copy after every epoch of pretraining, any of which may be the last."""
        stage = record["stage"]
        # Without pretraining, the search for a start is the first to report.
        if stage == "pretrain" or (self.autoencoder is None and stage != "fit"):
            self.autoencoder = copy.deepcopy(estimator.autoencoder_)


def repeat(
    parameters: Mapping[str, Any],
    samples: Any,
    labels: "np.ndarray",
    history: Sequence[Mapping[str, Any]],
    callbacks: Sequence[Any] = (),
) -> Any:
    """A `KSCN` with the network that a run had before clustering, by doing its first stage again.

    The same seed and settings give the same network; what the run's history says of the error is
    compared, because another machine or other data would not.

    Parameters
    ----------
    parameters : mapping
        Of the estimator, as the run recorded them.
    samples : Source
        What the run was fitted on.
    labels : ndarray of shape (n,)
        The run's clusters: there is no need to search for a start that is not used.
    history : sequence of mapping
        Of the run.
    callbacks : sequence of callable
        Hear of the progress.
    """
    changed = {"epochs": 0, "init": labels, "callbacks": tuple(callbacks)}
    try:
        if parameters.get("autoencoder", "auto") not in ("auto", "cae", "sae"):
            raise TypeError("a network of the user's own")
        model = methods.repeated("kscn-s", {**parameters, **changed})
    except TypeError:
        raise InputError(
            "the pretraining of this run cannot be repeated from its settings; give a saved model "
            "with --pretrained."
        ) from None
    model.fit(samples)
    before, after = _last_error(history), _last_error(model.history_)
    if before and after and abs(after - before) > 1e-3 * before:
        warnings.warn(
            f"the repeated pretraining ended at an error of {after:.5g} and that of the run at "
            f"{before:.5g}; other data, another machine or another number of threads was used.",
            stacklevel=2,
        )
    return model


def _last_error(history: Sequence[Mapping[str, Any]]) -> float | None:
    errors = [record["reconstruction"] for record in history if record.get("stage") == "pretrain"]
    return errors[-1] if errors else None


def codes(autoencoder: "nn.Module", scaling: "nn.Module", samples: Any) -> "np.ndarray":
    """What an autoencoder makes of samples, (n, d), before any map onto a latent.

    `scaling` leads from stored values to the network's, as the fitted model has it.
    """
    import numpy as np

    from kscn.data import as_source
    from kscn.nn import IdentityLatent, network
    from kscn.runtime.latents import Encoder, encode
    from kscn.runtime.minibatches import Minibatches

    source = as_source(samples)
    device = next(autoencoder.parameters()).device
    shape = network.input_shape(autoencoder, source.shape)
    batches = Minibatches(source, scaling.to(device), shape, 256, device)  # type: ignore[arg-type]
    return np.asarray(encode(batches, Encoder(autoencoder, IdentityLatent())))
