"""Draw `_static/data-way.svg`: the way of the data through the code, from a source to its uses.

Run `python docs/draw_data_way.py` to write the picture again. The packages that it names are
checked against the code by the tests.
"""

from pathlib import Path

PICTURE = Path(__file__).parent / "_static" / "data-way.svg"
WIDTH, HEIGHT, GAP, MARGIN = 300, 58, 26, 8  # of a box, between boxes, around all
# A step, what happens in it, and the packages of kscn in which it does.
STEPS = (
    ("Source", "files, folders and arrays, read in batches", ("data",)),
    ("Features or encoder", "samples become vectors", ("features", "nn")),
    ("Starts and measure", "many clusterings; the most consistent", ("neighbours", "stages")),
    ("Subspaces", "bases and assignments, in closed form", ("subspaces",)),
    ("Refinement", "network and subspaces in turn", ("stages",)),
)
USES = (
    ("Model file", ("modelfile",)),
    ("Report", ("report",)),
    ("Web pages", ("web",)),
    ("ONNX", ("export",)),
)
GREY, TEXT, ACCENT = "#94a4a2", "#7a8088", "#3f90da"


def packages():
    """All packages and modules that the picture names."""
    return sorted({name for *_, names in (*STEPS, *USES) for name in names})


def box(x, y, width, lines):
    """A frame with lines of text in its middle, the first one in bold."""
    middle = x + width / 2
    parts = [
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{HEIGHT}" rx="6" fill="none" '
        f'stroke="{GREY}"/>'
    ]
    first = y + HEIGHT / 2 + 4 - 8 * (len(lines) - 1)
    for number, line in enumerate(lines):
        style = 'font-weight="bold"' if number == 0 else 'font-size="11"'
        parts.append(
            f'<text x="{middle:.1f}" y="{first + 16 * number:.1f}" text-anchor="middle" '
            f'fill="{TEXT}" {style}>{line}</text>'
        )
    return parts


def arrow(x1, y1, x2, y2):
    """A line with a head at its end."""
    return (
        f'<line x1="{x1:.1f}" y1="{y1}" x2="{x2:.1f}" y2="{y2}" stroke="{ACCENT}" '
        'stroke-width="1.5" marker-end="url(#head)"/>'
    )


def draw():
    """The picture as text."""
    width = 2 * MARGIN + WIDTH + 140
    height = 2 * MARGIN + (len(STEPS) + 1) * (HEIGHT + GAP) - GAP
    left, middle = (width - WIDTH) / 2, width / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13" role="img">',
        "<title>The way of the data: " + ", ".join(name for name, *_ in STEPS) + ", and its uses"
        "</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="{ACCENT}"/></marker></defs>',
    ]
    for number, (name, what, names) in enumerate(STEPS):
        y = MARGIN + number * (HEIGHT + GAP)
        where = ", ".join(f"{one}/" for one in names)
        parts += box(left, y, WIDTH, (name, what, where))
        if number:
            parts.append(arrow(middle, y - GAP, middle, y - 2))
    y = MARGIN + len(STEPS) * (HEIGHT + GAP)
    share = (width - 2 * MARGIN) / len(USES)
    for number, (name, names) in enumerate(USES):
        x = MARGIN + number * share
        ending = ".py" if name == "Model file" else "/"
        parts += box(x + 4, y, share - 8, (name, names[0] + ending))
        parts.append(arrow(middle, y - GAP, x + share / 2, y - 2))
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
