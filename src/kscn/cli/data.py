"""`kscn data`: the data sets that go by name, and the embeddings that are kept."""

import click

from kscn.cli.terminal import say, table


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
    """Show where embeddings of encoders are kept, so that no image is computed twice.

    They are removed by themselves, the oldest first, when they take more than
    20 GiB; the environment variable KSCN_EMBEDDING_BYTES sets another limit, KSCN_CACHE another
    place.
    """
    from kscn.features.encoders import cache

    place = cache.place()
    size = f"{place.stat().st_size / 1e6:,.1f} MB of" if place.exists() else "no"
    if clear:
        place.unlink(missing_ok=True)
        say(f"removed {size} embeddings from {place}")
    else:
        say(f"{size} embeddings in {place}; `kscn data cache --clear` removes them")
