# Everything a fresh Debian or Ubuntu machine needs is set up here: Debian packages by apt-get, Python packages
# into .venv from the pinned, hashed requirements.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PHOENIX := .venv-phoenix
TEST_PACKAGES := prometheus prometheus-alertmanager chromium chromium-driver haproxy

.DELETE_ON_ERROR:
.PHONY: help demo test test-phoenix soak fuzz lint audit bench format dashboards pictures requirements clean

help:
	@echo "make demo          the exporter against a simulator, with no Azure around"
	@echo "make test          lint, types and all tests, as CI runs them"
	@echo "make test-phoenix  the demo's traces in a real backend; installs 850 MB into .venv-phoenix"
	@echo "make fuzz          search for inputs that break it; FUZZ_SECONDS=300, FUZZ_SEED=a number to repeat"
	@echo "make soak          random histories beside a model, then five minutes of faults of every kind;"
	@echo "                   SOAK_HISTORIES, SOAK_SECONDS and SOAK_SEED say otherwise"
	@echo "make lint          ruff and mypy alone"
	@echo "make audit         ask for known vulnerabilities of what the program needs; says so where it cannot"
	@echo "make bench         measure memory, CPU and times, beside what they should be"
	@echo "make format        let ruff mend what it can"
	@echo "make dashboards    write the dashboards from their description"
	@echo "make pictures      and draw them, with a simulated hour or two, for docs/images"
	@echo "make requirements  pin the newest versions of all dependencies"
	@echo "make clean         remove everything that is made"

demo: $(VENV)/.runtime
	$(BIN)/python -m exporter demo

test: lint audit $(VENV)/.packages
	$(BIN)/python -m pytest -n auto

test-phoenix: $(VENV)/.dev $(PHOENIX)/.installed
	PHOENIX=$(PHOENIX)/bin/phoenix $(BIN)/python -m pytest tests/phoenix/check_demo.py

fuzz: $(VENV)/.dev
	FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_SEED=$(FUZZ_SEED) $(BIN)/python -m tests.faults.fuzz_run

SOAK_HISTORIES ?= 100000
soak: $(VENV)/.dev
	$(BIN)/python -m tests.model.run --histories $(SOAK_HISTORIES) --seed $(or $(SOAK_SEED),1)
	$(BIN)/python -m tests.faults.soak

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.growth docs/images/cost.png

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

audit: $(VENV)/.dev
	$(BIN)/python -m scripts.audit requirements/runtime.txt

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dashboards: $(VENV)/.dev
	$(BIN)/python -m dashboards.build

pictures: dashboards $(VENV)/.packages
	$(BIN)/python -m tests.dashboards.picture

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed; name it: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || scripts/debian-packages python3-venv
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements/runtime.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.packages: scripts/debian-packages | $(VENV)/bin/python
	scripts/debian-packages $(TEST_PACKAGES)
	@touch $@

$(PHOENIX)/.installed: requirements/phoenix.txt | $(VENV)/bin/python
	$(BIN)/python -m venv $(PHOENIX)
	$(PHOENIX)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

PIN := $(BIN)/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe \
       --no-emit-index-url --no-emit-trusted-host --no-emit-find-links
requirements: $(VENV)/.dev
	$(PIN) --strip-extras --output-file requirements/runtime.txt pyproject.toml
	$(PIN) --strip-extras --constraint requirements/runtime.txt --output-file requirements/dev.txt requirements/dev.in pyproject.toml
	$(PIN) --no-strip-extras --output-file requirements/phoenix.txt requirements/phoenix.in

clean:
	rm -rf $(VENV) $(PHOENIX) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
