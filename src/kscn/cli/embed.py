"""`kscn embed`: what an encoder makes of images, as an array."""

from pathlib import Path

import click

from kscn.atomicfile import atomic_file
from kscn.cli import options
from kscn.cli.loading import load_data, say_left_out
from kscn.cli.terminal import say
from kscn.errors import InputError


@click.command("embed", short_help="Write what an encoder makes of images.")
@click.argument("data")
@click.option(
    "--encoder",
    required=True,
    help="An .onnx file, or timm:NAME.",
)
@options.output("The .npy file to write: float32, one row per image.", required=True)
@options.device
@click.option(
    "--no-cache", is_flag=True, help="Neither read embeddings from the cache nor keep them."
)
@options.skip_broken
def command(
    data: str, encoder: str, output: Path, device: str, no_cache: bool, skip_broken: bool
) -> None:
    """Write the embeddings of the images DATA, a folder of any images or an array of them.

    Rows are in the order of the files' names. `kscn fit --encoder` does the same on its way; this
    is for other programs. How images are prepared stands in a .toml file beside the .onnx file, or
    comes from timm.
    """
    if output.suffix.lower() != ".npy":
        raise InputError(f"{output} should end in .npy; that is what is written.")
    with atomic_file(output) as file:
        import numpy as np

        from kscn.cli.progress import FitProgress
        from kscn.features.encoders import load_encoder
        from kscn.runtime.device import chosen

        loaded = load_encoder(encoder).to(chosen(device))
        images = load_data(data, skip_broken=skip_broken, any_size=True)
        say_left_out(images)
        with FitProgress() as bar:
            embeddings = loaded.embed(images.samples, cache=not no_cache, progress=bar.embedding)
        np.save(file, embeddings)
    n, dim = embeddings.shape
    say(f"wrote {n:,} embeddings of {dim:,} numbers to {output}", output=output)
