"""Data for a command: opened with progress on the terminal, and what is to be said of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kscn.cli.terminal import complain
from kscn.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from kscn.data import Dataset

_NAMED = 3  # files on the terminal


def load_data(data: str, **options: Any) -> "Dataset":
    """Open data (see `kscn.data.load`), with progress in case it is fetched or decoded first."""
    from kscn.cli.progress import working
    from kscn.data import load

    if options.get("size") is None and not options.get("skip_broken"):
        return fetching(load, data, **options)
    with working(f"decoding the images of {data}"):
        return load(data, **options)


def fetching(open_data: Callable[..., "Dataset"], *args: Any, **options: Any) -> "Dataset":
    """What a function opens, with progress in case it is fetched first."""
    from kscn.cli.progress import FetchProgress

    with FetchProgress() as progress:
        return open_data(*args, progress=progress, **options)


def embedded(model: Any, loaded: "Dataset") -> "tuple[Any, Dataset]":
    """A model and samples for it: of a run with an encoder, embeddings that stand for images."""
    from kscn.cli.progress import FitProgress
    from kscn.estimators.embedding import encoder_of, has_encoder
    from kscn.features.encoders.pictures import EmbeddedSource

    if not has_encoder(model):
        return model, loaded
    with FitProgress() as bar:
        vectors = encoder_of(model).embed(loaded.samples, progress=bar.embedding)
    samples = EmbeddedSource(vectors, loaded.samples)
    return model.on_embeddings(), replace(loaded, samples=samples)


def known_scores(loaded: "Dataset", labels: "np.ndarray") -> dict[str, float] | None:
    """How labels agree with the classes that came with the data, if there are any that score."""
    from kscn import metrics

    try:
        return None if loaded.labels is None else metrics.scores(loaded.labels, labels)
    except InputError:  # all unlabelled, say
        return None


def say_left_out(loaded: "Dataset") -> None:
    """Say which files of a folder cannot be read, where they are left out."""
    left_out = getattr(loaded.samples, "left_out", {})
    if left_out:
        named = ", ".join(list(left_out)[:_NAMED]) + ", ..." * (len(left_out) > _NAMED)
        total = len(left_out) + len(loaded.samples)
        complain(f"left out {len(left_out)} of {total} images, which cannot be read: {named}")


def say_what_to_expect(loaded: "Dataset") -> None:
    """Say what clusters of colour images go by, where that is hardly what was meant."""
    from kscn.report.pictures import is_image

    shape = tuple(loaded.samples.shape)
    if len(shape) == 3 and is_image(shape) and 3 in (shape[0], shape[2]):
        complain(
            "these are colour images: if they are photographs, clusters of their pixels go by "
            "colour and layout, not by what they show; pass a pretrained network by --encoder"
        )
