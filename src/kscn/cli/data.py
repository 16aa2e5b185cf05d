"""`kscn data`: the data sets that go by name, images of one size, embeddings that are kept."""

import click

from kscn.cli.terminal import printable, say, table


@click.group("data")
def command() -> None:
    """List and fetch the data sets that go by name; bring images to one size; kept embeddings."""


@command.command("list")
def list_command() -> None:
    """Show every named data set and where it would come from."""
    from kscn.data.catalog import describe

    listed = table("name", "samples", "shape", "classes", "state", "from")
    for entry in describe():
        shape = " x ".join(map(str, entry.shape))
        state = "ready" if entry.cached else "to fetch"
        listed.add_row(
            entry.name, f"{entry.samples:,}", shape, str(entry.classes), state, entry.origin
        )
    listed.columns[-1].justify = "left"
    say(listed)


@command.command("get")
@click.argument("name")
def get_command(name: str) -> None:
    """Fetch the data set NAME into the cache and print where it is."""
    from kscn.cli.progress import FetchProgress
    from kscn.data.catalog import get

    with FetchProgress() as progress:
        path = get(name, progress)
    click.echo(path)


@command.command("resize")
@click.argument("folder")
@click.option("-o", "--output", required=True, help="A new folder for them.")
@click.option("--size", required=True, type=int, help="Pixels a side; 32 to 96 serve most sets.")
@click.option("--grey", is_flag=True, help="Write grey images instead of coloured ones.")
@click.option(
    "--range",
    "values",
    type=(float, float),
    metavar="LOW HIGH",
    help="Values that become black and white in images of 16 or 32 bits; found by default.",
)
def resize_command(
    folder: str, output: str, size: int, grey: bool, values: tuple[float, float] | None
) -> None:
    """Write the images of FOLDER as PNG files of one size, for kscn fit.

    FOLDER and its sub-folders, whose names are kept, may hold images of any size and mode. They are
    turned upright and scaled, and the longer side is cut at both ends to make them square.
    """
    from kscn.cli.progress import working
    from kscn.data.resizing import resize_images

    with working(f"resizing the images of {folder}"):
        count, used = resize_images(folder, output, size, grey, values)
    click.echo(f"wrote {count:,} images of {size} x {size} to {output.rstrip('/')}/")
    if used:
        low, high = (f"{value:.7g}" for value in used)
        click.echo(
            f"images of more than 8 bits: {low} became black and {high} white; for new images "
            f"give --range {low} {high}"
        )


@command.command("cache")
@click.option("--clear", is_flag=True, help="Remove all of them.")
def cache_command(clear: bool) -> None:
    """Show the embeddings that encoders made, which are kept so that no image is computed twice.

    They are removed by themselves, those not used for longest first, when they take more than
    20 GiB; the environment variable KSCN_EMBEDDING_BYTES sets another limit, KSCN_CACHE another
    place.
    """
    from kscn.features.encoders import cache

    if clear:
        say(f"removed {cache.clear() / 1e6:,.1f} MB of embeddings from {cache.place()}")
        return
    entries = cache.entries()
    if not entries:
        say(f"no embeddings in {cache.place()}")
        return
    listed = table("encoder", "sha256", "images", "MB")
    for name, sha256, images, size in entries:
        listed.add_row(printable(name), sha256[:12], f"{images:,}", f"{size / 1e6:,.1f}")
    total = sum(size for *_, size in entries)
    say(
        listed,
        f"{total / 1e6:,.1f} MB of at most {cache.limit() / 1e6:,.0f} in {cache.place()}; "
        "`kscn data cache --clear` removes them",
    )
