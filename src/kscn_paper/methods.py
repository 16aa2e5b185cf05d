"""Every method by its name: ours and the rivals, with the settings of a data set."""

import json
from typing import Any

from kscn.errors import InputError
from kscn.estimators import methods as ours
from kscn_paper import rivals

NAMES = (*ours.NAMES, *rivals.NAMES, *rivals.COMPOSITES)
WITH_PRESETS = ("kscn-s", "kscn-g")
# The network on whose features an affinity method works has seen all images, as the paper's has.
PRETRAINED_ON = {"mnist-test": "mnist", "fashion-mnist-test": "fashion-mnist"}


def make(
    method: str, n_clusters: int, *, dataset: str, preset: str = "tuned", **parameters: Any
) -> Any:
    """An estimator of one of `NAMES`, not fitted; `parameters` count more than the data set's.

    Only kscn-s and kscn-g have presets.
    """
    if method not in NAMES:
        raise InputError(f"{method!r} is no method; give one of {', '.join(NAMES)}.")
    if method in WITH_PRESETS:
        from kscn import KSCN
        from kscn_paper import presets

        settings = presets.of(preset, dataset) | parameters
        settings.setdefault("update", "svd" if method == "kscn-s" else "grassmann")
        return KSCN.from_preset(preset, n_clusters, **settings)
    if method in ours.NAMES:
        return ours.make(method, n_clusters, **parameters)
    if method in rivals.COMPOSITES and dataset in PRETRAINED_ON:
        from kscn import data

        parameters = {"pretrain_on": data.load(PRETRAINED_ON[dataset]).samples} | parameters
    return rivals.make(method, n_clusters, **parameters)


def recorded(model: Any, dataset: str) -> dict[str, Any]:
    """The parameters of a fitted estimator as plain values; "auto" is what it was decided to be."""
    from kscn_paper.rivals.self_expression import dsc_start

    parameters = {name: v for name, v in model.get_params().items() if name != "callbacks"}
    found: dict[str, Any] = plain(parameters | getattr(model, "settings_", {}))
    if getattr(model, "init", None) is dsc_start:
        found["init"] = "dsc"
    if found.get("pretrain_on") is not None:
        found["pretrain_on"] = PRETRAINED_ON.get(dataset, "other samples")
    return found


def plain(values: Any) -> Any:
    """As JSON brings it back; the type of what that cannot hold."""
    return json.loads(
        json.dumps(
            values, default=lambda v: v.tolist() if hasattr(v, "tolist") else type(v).__name__
        )
    )
