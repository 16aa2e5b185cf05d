"""How Sphinx builds these pages; `make docs` builds them with warnings as errors."""

import re

from docutils import nodes
from latex2mathml.converter import convert

from kscn import __version__

project = "kscn"
author = "the kscn developers"
copyright = "the kscn developers"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"kscn {version}"
html_static_path = ["_static"]
html_math_renderer = "mathml"  # browsers draw it by themselves, also without a network

myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

# Text in single backticks is code in this project's docstrings.
default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types are in the docstrings, in words
autodoc_inherit_docstrings = False
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

_CODE = re.compile(r"(`+[^`]+`+)")


def _escape_mathematics(app, what, name, obj, options, lines):
    """Docstrings write norms as |z| and attributes as labels_; both mean something to Sphinx."""
    for number, line in enumerate(lines):
        parts = _CODE.split(line)
        parts[::2] = [
            re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", part.replace("\\_", "_").replace("|", r"\|"))
            for part in parts[::2]
        ]
        lines[number] = "".join(parts)


def _inline_math(writer, node):
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _display_math(writer, node):
    writer.body.append(convert(node.astext(), display="block"))
    raise nodes.SkipNode


def setup(app):
    """Register the mathematics, and the hook after napoleon's, which sees docstrings as written."""
    app.add_html_math_renderer("mathml", (_inline_math, None), (_display_math, None))
    app.connect("autodoc-process-docstring", _escape_mathematics, priority=600)
