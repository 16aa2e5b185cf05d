"""`kscn data`: the data sets that go by name, images of one size, embeddings that are kept."""

import click

from kscn.cli.terminal import Terminal, table


@click.group("data")
def command() -> None:
    """List and fetch the data sets that go by name; bring images to one size; kept embeddings."""


@command.command("list")
def list_command() -> None:
    """Show every named data set and where it would come from."""
    from kscn.data.catalog import describe

    entries = describe()
    rows = [
        [
            entry.name,
            f"{entry.samples:,}",
            " x ".join(map(str, entry.shape)),
            str(entry.classes),
            "ready" if entry.cached else "to fetch",
        ]
        for entry in entries
    ]
    lines = table(["name", "samples", "shape", "classes", "state"], rows, indent="")
    width = max(map(len, lines))
    # The origin is text of any length, so it follows the table instead of being a column of it.
    origins = ["from", *(entry.origin for entry in entries)]
    pairs = zip(lines, origins, strict=True)
    Terminal.of().say(*(f"{line:<{width}}  {origin}" for line, origin in pairs))


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

    terminal = Terminal.of()
    if clear:
        terminal.say(f"removed {cache.clear() / 1e6:,.1f} MB of embeddings from {cache.place()}")
        return
    entries = cache.entries()
    if not entries:
        terminal.say(f"no embeddings in {cache.place()}")
        return
    rows = [
        [name, sha256[:12], f"{images:,}", f"{size / 1e6:,.1f}"]
        for name, sha256, images, size in entries
    ]
    total = sum(size for *_, size in entries)
    terminal.say(
        *table(["encoder", "sha256", "images", "MB"], rows, indent=""),
        f"{total / 1e6:,.1f} MB of at most {cache.limit() / 1e6:,.0f} in {cache.place()}; "
        "`kscn data cache --clear` removes them",
    )
