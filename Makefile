# Two commands for a newcomer: 'make demo' and 'make test'. The rest is for those who change the code.

# The first Python of 3.11 or newer on this machine, unless PYTHON is given.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	if $$p -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$p; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
DEMO := demo
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PEERS := evalys accasim
# Fits are small: more threads than this only spin.
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test coverage peers $(PEERS) lint types format lock bench clean

help:
	@echo "make demo    install hindcast into $(VENV), run the whole road on a synthetic trace, say where the report is"
	@echo "make test    install what the tests need and run them"
	@echo "make coverage  the tests, and which branches they miss"
	@echo "make lint    style and layering (ruff)      make types   mypy, strict"
	@echo "make format  rewrite in the house style     make bench   speed and memory, printed, never asserted"
	@echo "make lock    renew requirements/*.lock      make clean   remove $(VENV) and what was built"
	@echo "make peers   the independent tools that tests compare with, in environments of their own"

demo: $(VENV)/.installed
	$(BIN)/hindcast demo -o $(DEMO)

test: $(VENV)/.installed-test peers
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(PYTEST_ARGS)

# Independent tools that tests compare with; they need older libraries, hence an environment each.
peers: $(PEERS)

$(PEERS): $(VENV)/.installed-test
	@test $(VENV)/$@/.installed -nt requirements/$@.lock || { \
	  echo "Installing $@ into $(VENV)/$@ (once) ..." && $(BIN)/python -m venv --clear $(VENV)/$@ && \
	  $(VENV)/$@/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes \
	    -r requirements/$@.lock && touch $(VENV)/$@/.installed; } || \
	  { rm -rf $(VENV)/$@; echo "$@ could not be installed: its test will be skipped" >&2; }

coverage: $(VENV)/.installed-test peers
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile --cov --cov-report=term:skip-covered

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-test
	$(BIN)/mypy

format: $(VENV)/.installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-test
	$(BIN)/python -m pytest tests/benchmarks --benchmark-enable --benchmark-only

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then echo "hindcast needs Python 3.11 or newer with its venv module; none was found." \
	  "Install one (Debian and Ubuntu: apt install python3 python3-venv) or say 'make PYTHON=/path/to/python3'." >&2; exit 1; fi
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements/demo.lock pyproject.toml | $(BIN)/python
	@echo "Installing hindcast and what it needs into $(VENV) (once) ..."
	$(PIP) install --require-hashes -r requirements/demo.lock
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.installed-test: requirements/test.lock $(VENV)/.installed
	@echo "Installing what the tests need into $(VENV) (once) ..."
	$(PIP) install --require-hashes -r requirements/test.lock
	@touch $@

lock:
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --upgrade --quiet \
	  --custom-compile-command "make lock" pyproject.toml requirements/build.in -o requirements/demo.lock
	$(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --quiet \
	  --custom-compile-command "make lock" --constraint requirements/demo.lock --extra lightgbm --extra dask --extra gym --extra additive --group test --group check \
	  pyproject.toml requirements/build.in -o requirements/test.lock
	for peer in $(PEERS); do $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --quiet --custom-compile-command "make lock" requirements/$$peer.in -o requirements/$$peer.lock; done

clean:
	rm -rf $(VENV) $(DEMO) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
