"""`kscn serve`: label new samples over HTTP."""

from pathlib import Path

import click

from kscn.cli import options
from kscn.errors import InputError
from kscn.extras import require
from kscn.runs.directory import read_run
from kscn.runs.opened import open_model


@click.command("serve", short_help="Answer POST /predict with the model of a run.")
@options.run
@options.device
@click.option("--host", default="127.0.0.1", help="The address to listen on.")
@options.port(8000, "The port; 0 takes any free one.")
@click.option(
    "--token",
    envvar="KSCN_TOKEN",
    show_envvar=True,
    help="Ask every request for it, as Authorization: Bearer TOKEN.",
)
@click.option(
    "--max-mb", type=options.POSITIVE, default=16, help="The largest body of a request, in MiB."
)
@click.option(
    "--white",
    type=options.POSITIVE,
    help="What a white pixel is in the data of the run, for images sent as files.",
)
@options.encoder
def command(
    run: Path,
    device: str,
    host: str,
    port: int,
    token: str | None,
    max_mb: float,
    white: float | None,
    encoder: str | None,
) -> None:
    """Label new samples by the model of RUN, the directory `kscn fit` wrote.

    POST /predict takes JSON ({"samples": [...]}), a .npy file (application/octet-stream), or PNG
    and JPEG images (as the body, or as files of a form; of any size where the run has an encoder or
    a --size), and answers with the label, its probability and the residual of every sample. GET
    /health and /openapi.json tell the rest. It listens on this machine only; anywhere else it needs
    a token, and belongs behind a proxy. Ctrl-C ends it.
    """
    opened = read_run(run)
    if token is not None and (not token or not token.isascii() or not token.isprintable()):
        raise InputError("the token must be one or more printable ASCII characters; choose one.")
    require_web()

    from kscn.runtime.device import chosen
    from kscn.web import server
    from kscn.web.predicting import Predictor
    from kscn.web.serving import LOCAL, MEGABYTE, prediction_app

    if token is None and host not in LOCAL:
        raise InputError(
            f"with --host {host}, anybody who reaches the port is served; set --token, or leave "
            "--host out to listen on this machine only."
        )
    chosen(device)  # which is refused before anybody is served
    model = open_model(opened, encoder, device)
    shape = tuple(opened.config["data"]["shape"])
    predictor = Predictor(model, shape, white, opened.preparation())
    app = prediction_app(predictor, token=token, most_bytes=int(max_mb * MEGABYTE))
    listening = server.bind(host, port)
    address = server.address(listening)
    click.echo(f"serving {run} at {address} (POST {address}/predict); Ctrl-C ends it")
    server.run(app, listening)


def require_web() -> None:
    """Say how to install what the web commands need, if it is not there."""
    for module in ("fastapi", "uvicorn", "python_multipart", "PIL"):
        require(module, "serve", "this")
