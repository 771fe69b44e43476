# The daily chores of pytest-taguru. Each target sets up what it needs, once.
# `make help` lists them; `make PYTHON=python3.12 test` uses another Python, in its own environment.

PYTHON ?= python3
ifeq ($(PYTHON),python3)
VENV ?= .venv
else
VENV ?= .venv-$(notdir $(PYTHON))
endif
PYTEST_ARGS ?=

BIN := $(VENV)/bin
RUN_READY := $(VENV)/.ready-to-run
DEV_READY := $(VENV)/.ready-to-develop
# The versions that development uses; those who install the package are not held to them.
CONSTRAINED := --constraint constraints.txt

SERVER_VERSION := 0.9.7
SERVER := .tools/bin/taguru

# The server that the live parts use: TAGURU_TEST_BIN, else the one built here, else PATH.
USE_SERVER = if [ -z "$$TAGURU_TEST_BIN" ] && [ -x $(SERVER) ]; then \
	export TAGURU_TEST_BIN="$$PWD/$(SERVER)"; fi
# In the order of the files, also where the development dependencies have brought pytest-randomly.
IN_EXAMPLE = python="$$(cd "$(BIN)" && pwd)/python" && cd example_project && \
	"$$python" -m pytest -p no:randomly

.PHONY: help example live test lint check docs dist matrix constraints server clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1  /p' Makefile | awk -F '  ' '{ printf "make %-11s %s\n", $$1, $$2 }'

example: $(RUN_READY)  ## run the example suite from its recording, without a server
	@$(IN_EXAMPLE) --taguru-eval=eval.jsonl --taguru-replay=recording.jsonl
	@echo "The artifact is example_project/evaluation.json"

live: $(RUN_READY)  ## run the example suite against a real server, built first if there is none
	@if [ -z "$$TAGURU_TEST_BIN" ] && [ ! -x $(SERVER) ] && ! command -v taguru >/dev/null; \
	then $(MAKE) server; fi
	@$(USE_SERVER); $(IN_EXAMPLE) --taguru-eval=eval.jsonl
	@echo "The artifact is example_project/evaluation.json"
live: export TAGURU_EXAMPLE_LIVE = 1

test: $(DEV_READY)  ## run the whole test suite (TAGURU_REQUIRE_LIVE=1: a missing server is an error)
	@$(USE_SERVER); $(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(DEV_READY)  ## check style, formatting, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test  ## lint, then test

docs: $(DEV_READY)  ## build the documentation site into docs/_build/html; a warning is an error
	$(BIN)/sphinx-build -W --keep-going docs docs/_build/html

dist: $(DEV_READY)  ## build wheel and sdist into dist/, check them, run the example from the wheel
	@$(BIN)/python tools/check_dist.py

matrix:  ## the lowest and the newest pytest and Python, each in its own environment
	@.ci/matrix

constraints:  ## renew constraints.txt: the newest versions of all that development needs
	@$(PYTHON) tools/renew_constraints.py

server: $(SERVER)  ## build the real taguru server with cargo, into .tools/

$(SERVER):
	@command -v cargo >/dev/null || { echo "make server needs cargo (Rust), which is not on PATH"; exit 1; }
	CARGO_PROFILE_RELEASE_OPT_LEVEL=1 cargo install taguru --version $(SERVER_VERSION) \
	--locked --no-default-features --bin taguru --root .tools

clean:  ## remove environments, caches and artifacts, but not the server in .tools/
	rm -rf .venv .venv-* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf build dist docs/_build .coverage .coverage.* coverage.xml evaluation.json changes.jsonl
	rm -rf example_project/evaluation.json example_project/.pytest_cache
	find pytest_taguru tests example_project -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment with the project and nothing else.
$(RUN_READY): pyproject.toml $(wildcard constraints.txt)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	{ echo "Python 3.11 or newer is needed; another one can be named: make PYTHON=python3.12 ..."; exit 1; }
	@[ -x "$(BIN)/python" ] || { echo "Creating $(VENV)"; $(PYTHON) -m venv "$(VENV)"; }
	@echo "Installing pytest-taguru into $(VENV)"
	@"$(BIN)/python" -m pip --disable-pip-version-check install --quiet $(CONSTRAINED) --editable .
	@touch "$@"

# The same with what tests and checks need. Dependency groups came with pip 25.1.
$(DEV_READY): $(RUN_READY)
	@echo "Installing the development dependencies into $(VENV)"
	@"$(BIN)/python" -m pip --disable-pip-version-check install --quiet --upgrade "pip>=25.1"
	@"$(BIN)/python" -m pip --disable-pip-version-check install --quiet $(CONSTRAINED) --editable . --group dev
	@touch "$@"
