"""`kscn explore`: look through all samples of a run and correct its clusters, in a browser."""

from pathlib import Path

import click

from kscn.cli import options
from kscn.cli.loading import embedded, fetching
from kscn.cli.serve import require_web
from kscn.report import words
from kscn.runs.directory import read_run
from kscn.runs.opened import open_model, run_data


@click.command("explore", short_help="Browse and correct the clusters of a run.")
@options.run
@options.data
@options.port(0, "The port on 127.0.0.1; 0 takes any free one.")
@options.encoder
@click.option("--open/--no-browser", "show", default=False, help="Open the page in a browser.")
def command(run: Path, data: str | None, port: int, encoder: str | None, show: bool) -> None:
    """Serve a page on this machine to look through the clusters of RUN and to correct them.

    Clusters are browsed page by page over all samples, compared, named, merged and split, and
    samples are moved or flagged; the result is exported as .csv or .parquet. The run itself is
    never changed: every edit is a line of RUN/explore/edits.jsonl, and is there again next time.
    The printed address holds a secret that the page asks for. Ctrl-C ends it.
    """
    opened = read_run(run)
    labels = opened.labels()
    require_web()

    import secrets

    from kscn.cli.progress import working
    from kscn.web import server
    from kscn.web.explorer import Explorer
    from kscn.web.exploring import explorer_app, page_path

    model, loaded = embedded(open_model(opened, encoder), fetching(run_data, opened, data))
    with working(f"looking at {len(labels):,} samples"):
        sizes, note = opened.result["sizes"], words.confidence(opened.result)
        explorer = Explorer(opened.path, opened.config, labels, len(sizes), model, loaded, note)
    token = secrets.token_urlsafe(24)
    listening = server.bind("127.0.0.1", port)
    address = f"{server.address(listening)}{page_path(token)}?token={token}"
    app = explorer_app(explorer, token)
    click.echo(f"exploring {run} at {address} ; Ctrl-C ends it")
    if show:
        click.launch(address)
    try:
        server.run(app, listening)
    finally:
        explorer.close()
