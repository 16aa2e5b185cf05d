"""The report as one HTML file: template, style and script in one, and nothing from elsewhere.

The page forbids itself the network. Its own script is allowed by checksum, so text that came with
the data could not run even if it were not escaped, which all of it is.
"""

import base64
import hashlib
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from kscn.report.contents import Report

_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
    "script-src 'sha256-{script}'; base-uri 'none'; form-action 'none'"
)


def render(contents: Report) -> str:
    """The text of the page of what `kscn.report.contents.collect` found."""
    templates = files("kscn.report") / "templates"
    style, script = (
        (templates / name).read_text(encoding="utf-8") for name in ("report.css", "report.js")
    )
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        loader=PackageLoader("kscn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["percent"] = lambda share, digits=1: f"{100 * share:.{digits}f}%"
    return environment.get_template("report.html").render(
        report=contents,
        style=style,
        script=script,
        policy=_POLICY.format(script=checksum),
    )
