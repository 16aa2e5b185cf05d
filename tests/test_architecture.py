"""Dependencies point one way, from the command line down to the mathematics, and imports are light.

cli -> web -> report, export -> runs -> estimators -> choice -> training -> checks -> model,
neighbours, runtime -> nn, features, subspaces, data -> atomicfile, constraints,
extras, metrics, modelfile, parallel -> errors. `kscn_paper` imports kscn, never the other way.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import kscn

ROOT = Path(kscn.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
PAPER = sorted((ROOT.parent / "kscn_paper").rglob("*.py"))
TESTS = sorted(Path(__file__).parent.rglob("*.py"))
# Statements that src/kscn may have: lowered when it shrinks, never raised.
LIMIT = 9_297

LAYERS = [
    {"errors"},
    {
        "atomicfile",
        "constraints",
        "extras",
        "metrics",
        "modelfile",
        "parallel",
    },
    {"nn", "features", "subspaces", "data"},
    {"model", "runtime", "neighbours"},
    {"checks"},
    {"training"},
    {"choice"},
    {"estimators"},
    {"runs"},
    {"report", "export"},
    {"web"},
    {"cli"},
]
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}

# The modules that promise to lean on little: all that they may import besides the standard library.
LEAN = {
    "errors": set(),
    "atomicfile": {"kscn.errors"},
    "constraints": {"kscn.errors"},
    "extras": {"kscn.errors"},
    "metrics": {"numpy", "scipy", "sklearn", "kscn.errors"},
    "modelfile": {"numpy", "safetensors", "kscn.errors", "kscn.atomicfile", "kscn.constraints"},
    "subspaces": {"torch", "sklearn", "kscn.errors", "kscn.parallel", "kscn.subspaces"},
}


def part_of(file):
    """First level below kscn: 'subspaces' for src/kscn/subspaces/bases.py."""
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def imported_modules(file):
    """Every module that a file imports, at the top or inside a function, by absolute name."""
    return list(_imported(file))


def _imported(file):
    package = file.relative_to(ROOT.parent).parent.parts
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from kscn import data` imports kscn.data.
            names = [f"kscn.{alias.name}" for alias in node.names]
            yield from names if module == "kscn" else [module]


def ids(file):
    return str(file.relative_to(ROOT.parent)).removeprefix("kscn/")


@pytest.mark.parametrize(
    "file", [f for f in FILES if f.parent != ROOT or part_of(f)[0] != "_"], ids=ids
)
def test_no_arrow_points_up(file):
    part = part_of(file)
    assert part in HEIGHT, f"kscn.{part} has no place in the layers; give it one in this test"
    for module in imported_modules(file):
        if module.startswith("kscn.") and (target := module.split(".")[1]) in HEIGHT:
            assert HEIGHT[target] <= HEIGHT[part], (
                f"kscn.{part} imports {module}, which is above it"
            )


@pytest.mark.parametrize("file", [f for f in FILES if part_of(f) in LEAN], ids=ids)
def test_lean_modules_import_only_what_they_promise(file):
    allowed = LEAN[part_of(file)] | set(sys.stdlib_module_names)
    for module in imported_modules(file):
        name = ".".join(module.split(".")[: 2 if module.startswith("kscn") else 1])
        assert name in allowed, f"{file.name} imports {module}"


@pytest.mark.parametrize("file", FILES, ids=ids)
def test_the_library_knows_nothing_of_the_paper_reproduced(file):
    modules = [name for name in imported_modules(file) if name.startswith("kscn_paper")]
    assert not modules


@pytest.mark.parametrize("file", PAPER, ids=ids)
def test_the_paper_reproduced_needs_no_server(file):
    assert not [name for name in imported_modules(file) if name.startswith("kscn.web")]


def test_the_code_does_not_grow():
    """Statements, without docstrings."""
    nodes = [n for file in FILES for n in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    strings = [n for n in nodes if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    assert sum(isinstance(node, ast.stmt) for node in nodes) - len(strings) <= LIMIT


def test_no_test_patches_a_constant():
    """What a test needs small is an argument or a parameter: a constant is not for tests to set."""
    for file in TESTS:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "setattr":
                names = [a.value for a in node.args if isinstance(a, ast.Constant)]
                constants = [n for n in names if re.fullmatch(r"(.*\.)?[A-Z][A-Z_0-9]*", str(n))]
                assert not constants, f"{file.name}:{node.lineno} sets {constants[0]}"


def modules_loaded_by(code):
    """Top-level modules that are loaded after `code` ran in a fresh interpreter."""
    report = "import sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split()[-1000:])


HEAVY = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "plotly", "PIL", "pandas", "rich"}


@pytest.mark.parametrize(
    "code",
    [
        "import kscn; assert kscn.__version__; assert 'KSubspaces' in dir(kscn)",
        "from kscn.cli import cli; cli.main(['--version'], standalone_mode=False)",
        "from kscn.cli import cli; cli.main(['--help'], standalone_mode=False)",
    ],
)
def test_import_and_help_are_light(code):
    assert not modules_loaded_by(code) & HEAVY


def test_using_the_library_needs_no_optional_package():
    loaded = modules_loaded_by("from kscn import KSubspaces, load_model, data, metrics")
    # Not in the list: pandas and pyarrow, which scikit-learn imports by itself where they are.
    assert not loaded & {"matplotlib", "plotly", "PIL", "h5py", "rich", "click"}


def test_every_public_name_resolves():
    for name in kscn.__all__:
        assert getattr(kscn, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = kscn.nonsense


def test_estimators_have_few_parameters():
    most = {"KSubspaces": 14, "KSCN": 27, "KSCNPlus": 12}
    for name, count in most.items():
        assert len(getattr(kscn, name)().get_params()) <= count


CORE = [
    file
    for file in FILES
    if part_of(file) in {"estimators", "training", "choice", "runtime", "model"}
]


@pytest.mark.parametrize("file", CORE, ids=ids)
def test_modules_and_functions_of_the_core_are_short(file):
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 80, node.name


@pytest.mark.parametrize(("estimator", "most"), [("KSCN", 8), ("KSubspaces", 6)])
def test_a_fit_can_be_followed_through_the_files_that_the_docs_name(estimator, most):
    page = (ROOT.parents[1] / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    walk = re.search(rf"- `{estimator}.fit`, {most} files:(.*?`)\.$", page, re.S | re.M)[1]
    names = re.findall(r"`([\w/]+)\.py`", walk)
    assert len(names) == most
    reached = {names[0]}
    for name in names:
        assert name in reached, f"{name} is not reached from the files before it"
        modules = imported_modules(ROOT / f"{name}.py")
        reached |= {module.removeprefix("kscn.").replace(".", "/") for module in modules}
        reached |= {"subspaces/update"} if "kscn.subspaces" in modules else set()


LOOPS = [file for file in FILES if part_of(file) in {"training", "choice"}]


@pytest.mark.parametrize("file", [f for f in LOOPS if f.name != "driver.py"], ids=ids)
def test_loops_know_nothing_of_files_or_estimators(file):
    modules = set(imported_modules(file))
    assert not {"os", "pathlib", "kscn.modelfile", "kscn.atomicfile"} & modules
    assert not any(module.startswith("kscn.estimators") for module in modules)
