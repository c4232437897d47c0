# make run    the quickstart, in an environment of its own
# make test   the tests, the same way; make test-slow those that take long
PYTHON ?= python3
VENV ?= .venv
BUILD ?= build
BIN := $(VENV)/bin
PACKAGES := actors algorithms privacy runs topology
PYTEST_ARGS ?=

.DELETE_ON_ERROR:
.PHONY: help run install test test-slow test-fast lint format types wheel pins clean

help:
	@echo "make run | test | test-slow | test-fast | lint | format | types | wheel | pins | clean"

run: $(VENV)/.installed
	$(BIN)/dualfed run quickstart

install: $(VENV)/.installed

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -c tests/pytest.ini --rootdir=. tests -m "not slow" $(PYTEST_ARGS)

# Clusters, storms of faults and longer runs, some of which need root.
test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -c tests/pytest.ini --rootdir=. tests -m slow $(PYTEST_ARGS)

test-fast: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -c tests/pytest.ini --rootdir=. tests -m "not slow and not ray" $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The root folder is the package, so a type checker sees it through a folder of links with the package's name.
types: $(VENV)/.installed-dev
	@rm -rf $(BUILD)/types && mkdir -p $(BUILD)/types/dualfed
	@for part in __init__.py __main__.py errors.py keys.py section.py wanted.py py.typed $(PACKAGES); do \
		ln -s "$(CURDIR)/$$part" "$(BUILD)/types/dualfed/$$part"; done
	cd $(BUILD)/types && MYPYPATH=. "$(abspath $(BIN))/python" -m mypy --config-file "$(CURDIR)/pyproject.toml" -p dualfed

wheel: $(VENV)/.installed-dev
	@rm -rf $(BUILD)/wheel build/lib build/bdist.*  # setuptools would pack what an earlier build left there
	$(BIN)/python -m build --wheel --outdir $(BUILD)/wheel .
	$(BIN)/python .ci/check_wheel.py $(BUILD)/wheel/*.whl

# Pins of what is installed now: our dependencies and theirs, and those of the tests.
pins: $(VENV)/.installed-dev
	$(BIN)/python .ci/write_constraints.py > constraints.txt.new
	mv constraints.txt.new constraints.txt

clean:
	rm -rf $(BUILD) dist dualfed.egg-info .mypy_cache .ruff_cache .pytest_cache

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $(VENV)/.installed $@
