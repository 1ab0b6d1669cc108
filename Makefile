# Everything is set up in .venv by the first target that needs it; nothing is written outside this folder.
SHELL := /bin/sh
PYTHON ?= $(shell command -v python3 || command -v python)
VENV := .venv
RUN := $(VENV)/bin
READY := $(VENV)/ready
PIP := $(RUN)/python -m pip --disable-pip-version-check install --quiet --no-cache-dir -c constraints.txt
WORKERS ?= 2
CASES ?= cases
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint format bench bench-overhead bench-read bench-cases bench-checks docs clean

help: ## list the targets
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do printf '  %-16s %s\n' "$$name" "$$text"; done

setup: $(READY) ## make .venv and install the project with pinned versions

demo: $(READY) ## break a small network in several ways and name each (the main job)
	@echo "demo: lossdoctor demo"
	@$(RUN)/lossdoctor demo

test: $(READY) ## run the quick test suite
	@echo "test: pytest without the slow tests, $(WORKERS) at a time"
	@$(RUN)/python -m pytest -m "not slow" -n $(WORKERS)

test-all: $(READY) ## run every test, the slow ones too
	@echo "test-all: pytest with the slow tests, $(WORKERS) at a time"
	@$(RUN)/python -m pytest -n $(WORKERS)

lint: $(READY) ## check style (ruff), types (mypy) and imports (import-linter)
	@echo "lint: ruff check"
	@$(RUN)/ruff check .
	@echo "lint: ruff format --check"
	@$(RUN)/ruff format --check .
	@echo "lint: mypy --strict"
	@$(RUN)/mypy
	@echo "lint: import-linter"
	@$(RUN)/lint-imports

format: $(READY) ## let ruff rewrite what it can
	@$(RUN)/ruff check --fix .
	@$(RUN)/ruff format .

bench: $(READY) ## plant faults in the recipes and score the diagnoses
	@echo "bench: lossdoctor bench --seeds 5"
	@$(RUN)/lossdoctor bench --seeds 5

bench-overhead: $(READY) ## measure what watching costs a run
	@echo "bench-overhead: probes on and off in alternating blocks"
	@$(RUN)/python -m lossdoctor.bench.overhead

bench-read: $(READY) ## measure what reading a log costs, against the stock readers
	@echo "bench-read: a million scalars, a million rows"
	@$(RUN)/python -m lossdoctor.bench.read

bench-cases: $(READY) ## confirm real failed scripts and compare with their mended twins (CASES names their folder)
	@echo "bench-cases: every script watched, confirmed, treated to its end"
	@$(RUN)/python -m lossdoctor.bench.cases $(CASES)

bench-checks: $(READY) ## score `lossdoctor check` on real scripts, mended and healthy ones (CASES names their folder)
	@echo "bench-checks: every script checked, one after the other"
	@$(RUN)/python -m lossdoctor.bench.checks $(CASES)

docs: $(READY) ## write the generated pages of docs/ again
	@echo "docs: docs/generate.py"
	@$(RUN)/python docs/generate.py

clean: ## remove .venv, caches and recorded runs
	@echo "clean: removing .venv, caches and .lossdoctor"
	@rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .lossdoctor build dist
	@find src tests docs -name __pycache__ -type d -prune -exec rm -rf {} +

# torch is asked for first and alone: named by another package, pip may choose a build for another device.
$(VENV)/torch: constraints.txt
	@test -n "$(PYTHON)" || { echo "setup: no python3 found; install Python 3.10 or newer"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "setup: $(PYTHON) is older than 3.10; name a newer one with 'make PYTHON=...'"; exit 1; }
	@echo "setup: making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { echo "setup: $(PYTHON) cannot make a virtual environment; install its venv module (Debian: python3-venv)"; exit 1; }
	@echo "setup: installing torch (about 200 MB, the longest part)"
	@$(PIP) torch==2.13.0
	@touch $@

$(READY): $(VENV)/torch pyproject.toml
	@echo "setup: installing lossdoctor and its tools"
	@$(PIP) -e ".[dev]"
	@touch $@
	@echo "setup: done"
