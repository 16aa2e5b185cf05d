"""Colours of clusters: ten that people with any colour vision tell apart, then generated ones."""

import colorsys

# M. A. Petroff, "Accessible color sequences for data visualization" (2021): chosen by simulated
# colour-vision deficiency and by taste, readable on white and on near-black.
TEN = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6",
    "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
_GOLDEN = 0.61803398875  # a turn of the hue after which no two of many hues are close


def colours(count: int) -> list[str]:
    """One colour per cluster, as #rrggbb."""
    more = max(0, count - len(TEN))
    return [*TEN[:count], *(_generated(i) for i in range(more))]


def _generated(number: int) -> str:
    hue = (0.1 + number * _GOLDEN) % 1
    lightness = (0.42, 0.58, 0.70)[number % 3]
    rgb = colorsys.hls_to_rgb(hue, lightness, 0.55)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)
