"""`kscn fit`: cluster a data set and write a run directory."""

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kscn.cli import options
from kscn.cli.fitting import assist, fit_run, new_config, new_model
from kscn.cli.loading import load_data, say_left_out, say_what_to_expect
from kscn.cli.summary import next_lines, run_summary
from kscn.cli.terminal import say
from kscn.errors import InputError, ModelFileError, reason
from kscn.runs.directory import CONFIG, read_unfinished
from kscn.runs.opened import check_data, load_like, resumed_encoder

if TYPE_CHECKING:
    from kscn.runtime.group import Group

# The data, the model and what config.toml is to hold.
Job = tuple[Any, Any, dict[str, Any]]

BEST = "best"
METHODS = (BEST, "kscn-s", "kscn-g", "k-subspaces")
PRESETS = ("tuned", "paper")
# What a new run cannot do without, and how it is called on the command line.
_NEEDED = {"data": "argument 'DATA'", "clusters": "option '-k'", "output": "option '-o'"}


@click.command("fit", short_help="Cluster a data set and write a run directory.")
@click.argument("data", required=False)
@click.option("-k", "--clusters", type=options.COUNT, help="How many clusters to find.  [required]")
@options.output("The run directory to write.  [required]")
@click.option(
    "--resume",
    type=options.PATH,
    metavar="RUN",
    help="Go on with a run that did not finish, instead of all other arguments but --device and "
    "--encoder.",
)
@click.option("--method", type=click.Choice(METHODS), help="By default best, for data of any kind.")
@click.option(
    "--preset", type=click.Choice(PRESETS), help="Settings of kscn-s and kscn-g; by default tuned."
)
@click.option(
    "--subspace-dim",
    type=options.dimensions,
    metavar="P|P,P,...|auto",
    help="k-subspaces, kscn: dimension.",
)
@click.option(
    "--trim",
    type=float,
    help="k-subspaces, kscn: share of each cluster's farthest members to leave out of its update.",
)
@click.option(
    "--init",
    help="How a start is made; k-subspaces: auto, neighbours or k-means; "
    "kscn: k-subspaces, drawn, neighbours or k-means.",
)
@click.option(
    "--n-init",
    type=int,
    help="k-subspaces, kscn: independent chains of the search for a start; 1 is a single start.",
)
@click.option(
    "--refine",
    is_flag=True,
    help="best: refine even if samples are few, and keep the result in any case.",
)
@click.option("--affine", is_flag=True, help="k-subspaces: they need not pass through the origin.")
@click.option("--max-iter", type=int, help="k-subspaces: iterations at most.")
@click.option("--pretrain-epochs", type=int, help="kscn: epochs of the autoencoder alone.")
@click.option("--epochs", type=int, help="kscn, best: epochs of network and subspaces.")
@click.option("--weight", type=float, help="kscn: weight of the subspaces beside reconstruction.")
@click.option("--learning-rate", type=float, help="kscn, best: step size of Adam.")
@click.option("--batch-size", type=int, help="Samples read at once; kscn, best: also per step.")
@click.option(
    "--device", help="Where to compute: cpu, cuda, cuda:1; by default a GPU where there is one."
)
@click.option(
    "--seed", type=int, help="For the same result again. Drawn and recorded if not given."
)
@options.size
@options.skip_broken
@click.option(
    "--encoder",
    help="best: a pretrained network that images go through first, an .onnx file or timm:NAME.",
)
@click.option(
    "--overwrite",
    is_flag=True,
    help="Remove the run in the output directory as soon as the samples have passed all checks.",
)
def command(resume: Path | None, **values: Any) -> None:
    """Cluster DATA into K clusters and write a run directory.

    DATA is a file (.npy .npz .csv .parquet .h5, idx), a folder of images (of any sizes and modes
    with --size or --encoder), or a name from `kscn data list`. Known labels never reach the fit;
    they only score its result. K is all that the method needs to be told; it tries many clusterings
    and says which it took, why, and how sure it is. Options that begin with the name of another
    method need that --method. Photographs need an --encoder.

    Many processes share the work when torchrun starts them: torchrun --nproc-per-node 4 -m kscn
    fit ... A run that was stopped or killed goes on with --resume.
    """
    from kscn.cli.processes import joined

    # What was not set is left to the preset and the estimator's own defaults.
    given = {name: v for name, v in values.items() if v is not None and v is not False}
    if resume is not None and set(given) - {"device", "encoder"}:
        raise click.UsageError(
            "--resume takes no other arguments but --device and --encoder: those of the run count."
        )
    for name, words in _NEEDED.items():
        if resume is None and name not in given:
            raise click.UsageError(f"Missing {words}.")
    overwrite = given.pop("overwrite", False)
    output = given.pop("output") if resume is None else resume
    advice = f"go on with `kscn fit --resume {output}`, in any number of processes."
    with joined(advice) as group:
        if resume is None:
            loaded, model, config = _new(group, given)
        else:
            loaded, model, config = _resumed(resume, given)
        if group.rank > 0:
            assist(loaded, model, output)
            return
        resumed = resume is not None
        result = fit_run(loaded, model, config, output, overwrite=overwrite, resume=resumed)
        say(*run_summary(config, result), "", *next_lines(output, config, result))


def _new(group: "Group", given: dict[str, Any]) -> Job:
    """The data, the model and the config of a new run."""
    data, clusters, method = given.pop("data"), given.pop("clusters"), given.pop("method", BEST)
    images: dict[str, Any] = {n: given.pop(n) for n in ("size", "skip_broken") if n in given}
    if "encoder" in given:
        if "size" in images:
            raise InputError(
                "--size cannot be used with --encoder, which brings images to its own size; leave "
                "it out."
            )
        from kscn.features.encoders import load_encoder

        images["any_size"] = True
        given["encoder"] = load_encoder(given["encoder"])
    # A seed of our own, so that config.toml can repeat the run even when none was given.
    given["random_state"] = group.shared(given.pop("seed", secrets.randbelow(2**31)))
    loaded = load_data(data, **images)
    model = new_model(loaded, clusters, method, given)
    if group.rank == 0:
        say_left_out(loaded)
        if "encoder" not in given:
            say_what_to_expect(loaded)
    return loaded, model, new_config(loaded, data, model, method)


def _resumed(path: Path, given: dict[str, Any]) -> Job:
    """The data, the model and the config of a run that did not finish."""
    from kscn.estimators import methods

    run = read_unfinished(path)
    described, method = run.config["data"], run.config["run"]["method"]
    encoder = resumed_encoder(run, given.pop("encoder", None))
    skip_broken = described.get("skip_broken", False)
    loaded = load_like(run, described["source"], skip_broken=skip_broken)
    check_data(run, loaded)
    try:
        model = methods.repeated(method, run.config["parameters"])
    except (KeyError, TypeError) as error:
        raise ModelFileError(
            f"{path} cannot go on: its {CONFIG} holds other settings than {method} takes "
            f"({reason(error)}); begin anew with --overwrite."
        ) from None
    if encoder is not None:
        given["encoder"] = encoder
    return loaded, model.set_params(**given), run.config
