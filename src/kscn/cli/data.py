"""`kscn data`: the data sets that go by name, and the embeddings that are kept."""

import click

from kscn.cli.terminal import printable, say, table


@click.group("data")
def command() -> None:
    """List and fetch the data sets that go by name; show the embeddings that are kept."""


@command.command("list")
def list_command() -> None:
    """Show every named data set, and whether it is in the cache."""
    from kscn.data.named import describe

    listed = table("name", "samples", "shape", "state")
    for name, samples, shape, here in describe():
        state = "ready" if here else "to fetch"
        listed.add_row(name, f"{samples:,}", " x ".join(map(str, shape)), state)
    say(listed)


@command.command("get")
@click.argument("name")
def get_command(name: str) -> None:
    """Fetch the data set NAME into the cache and print where it is."""
    from kscn.cli.progress import FetchProgress
    from kscn.data.named import get

    with FetchProgress() as progress:
        path = get(name, progress)
    click.echo(path)


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
