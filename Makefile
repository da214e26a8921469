# Everything a fresh Debian or Ubuntu machine needs is set up here: Debian packages by apt-get, Python packages
# into .venv from the pinned, hashed requirements.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PHOENIX := .venv-phoenix
LOWEST := .venv-lowest
INSTALL := -m pip install --quiet --disable-pip-version-check
# As constraints, too: before 23.3 pip does not apply a pin of urllib3 to urllib3[socks].
PINS = --require-hashes -r $< -c $<
TEST_PACKAGES := prometheus prometheus-alertmanager chromium chromium-driver haproxy

.DELETE_ON_ERROR:
.PHONY: help demo test pytest test-lowest coverage test-phoenix soak fuzz lint audit bench format package dashboards
.PHONY: pictures requirements clean

help:
	@echo "make demo          the exporter against a simulator, with no Azure around"
	@echo "make test          lint, types and all tests, as CI runs them"
	@echo "make pytest        all tests, without lint and audit"
	@echo "make test-lowest   all tests, with the lowest versions of the dependencies that pyproject.toml allows"
	@echo "make coverage      which branches of the program the tests reach; TESTS=tests/web for some of them"
	@echo "make test-phoenix  the demo's traces in a real backend; installs 850 MB into .venv-phoenix"
	@echo "make fuzz          search for inputs that break it; FUZZ_SECONDS=300, FUZZ_SEED=a number to repeat"
	@echo "make soak          random histories beside a model, then five minutes of faults of every kind;"
	@echo "                   SOAK_HISTORIES, SOAK_SECONDS and SOAK_SEED say otherwise"
	@echo "make lint          ruff and mypy alone, for Linux and Windows"
	@echo "make audit         ask for known vulnerabilities of what the program needs; says so where it cannot"
	@echo "make bench         measure memory, CPU and times, beside what they should be"
	@echo "make format        let ruff mend what it can"
	@echo "make package       build the wheel and the source distribution in dist/, and check them"
	@echo "make dashboards    write the dashboards from their description"
	@echo "make pictures      and draw them, with a simulated hour or two, for docs/images"
	@echo "make requirements  pin the newest versions of all dependencies; UPGRADE= keeps the pins that still fit"
	@echo "make clean         remove everything that is made"

demo: $(VENV)/.runtime
	$(BIN)/python -m exporter demo

test: lint audit pytest

pytest: $(VENV)/.dev $(VENV)/.packages
	$(BIN)/python -m pytest -n auto

test-lowest: $(LOWEST)/.installed $(VENV)/.packages
	$(LOWEST)/bin/python -m pytest -n auto

# The tests of what is imported fail here, as coverage itself imports some of it: make test decides.
coverage: $(VENV)/.dev $(VENV)/.packages
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest -n auto $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

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
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 --package exporter

audit: $(VENV)/.dev
	$(BIN)/python -m scripts.audit requirements/runtime.txt

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

package: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

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
	$(BIN)/python $(INSTALL) $(PINS)
	@touch $@

$(VENV)/.dev: requirements/dev.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python $(INSTALL) $(PINS)
	$(BIN)/python $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.packages: scripts/debian-packages | $(VENV)/bin/python
	scripts/debian-packages $(TEST_PACKAGES)
	@touch $@

$(LOWEST)/.installed: requirements/lowest.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python $(INSTALL) $(PINS)
	$(LOWEST)/bin/python $(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(PHOENIX)/.installed: requirements/phoenix.txt | $(VENV)/bin/python
	$(BIN)/python -m venv $(PHOENIX)
	$(PHOENIX)/bin/python $(INSTALL) --require-hashes -r $<
	@touch $@

# For every platform and every Python from 3.11 on.
UPGRADE := --upgrade
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11
PIN := $(COMPILE) --generate-hashes $(UPGRADE)
requirements: $(VENV)/.dev
	mkdir -p build
	$(COMPILE) --no-deps --resolution lowest-direct --output-file build/minimums.txt pyproject.toml
	$(PIN) --output-file requirements/runtime.txt pyproject.toml
	$(PIN) --constraint requirements/runtime.txt --output-file requirements/dev.txt requirements/dev.in pyproject.toml
	$(PIN) --constraint build/minimums.txt --output-file requirements/lowest.txt requirements/dev.in pyproject.toml
	$(PIN) --no-strip-extras --output-file requirements/phoenix.txt requirements/phoenix.in

clean:
	rm -rf $(VENV) $(LOWEST) $(PHOENIX) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
