# `make demo` and `make test` are all a newcomer needs: both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.installed-dev

.PHONY: setup demo test check docs clean
.DEFAULT_GOAL := demo

setup: $(DEV)

# What the demo needs: the library and its report. A missing or broken environment is made anew; new
# requirements are installed into the old one. torch comes first and alone, so that the pinned build
# is in place before anything asks for "torch"; hatchling comes with it, so that the build of kscn
# itself is pinned as well.
$(STAMP): pyproject.toml constraints.txt
	@echo "setting up $(VENV), once; this takes a minute"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0 hatchling
	@$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[report]'
	@touch $@

# And what the tests and checks need.
$(DEV): $(STAMP)
	@$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[dev]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/kscn demo

# One worker per core: with one more, they take each other's time. Bytecode is kept,
# whatever the environment says: it saves as much as many a test takes.
WORKERS = $(shell $(PYTHON) -c 'import os; print(os.cpu_count() or 1)')
test: setup
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow"

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Warnings are errors; the code blocks of the pages are run by `make test`.
docs: setup
	@$(BIN)/python -m pip install --quiet -c constraints.txt --no-build-isolation -e '.[docs]'
	$(BIN)/sphinx-build -q -W --keep-going -b html -d build/doctrees docs build/docs
	@echo "open build/docs/index.html"

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
