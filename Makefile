# Everything a fresh Debian or Ubuntu machine needs is set up here: Debian packages by apt-get, Python packages
# into .venv from the pinned, hashed requirements.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PHOENIX := .venv-phoenix
LOWEST := .venv-lowest
DOCS := .venv-docs
INSTALL := -m pip install --quiet --disable-pip-version-check
# As constraints, too: before 23.3 pip does not apply a pin of urllib3 to urllib3[socks].
PINS = --require-hashes -r $< -c $<
TEST_PACKAGES := prometheus prometheus-alertmanager chromium chromium-driver haproxy groff-base systemd

# Programs that `go install` builds for packaging and for the tests that are not part of `make test`.
TOOLS ?= .tools
NFPM := v2.45.2
HELM := v3.22.0

.DELETE_ON_ERROR:
.PHONY: help help-all demo test pytest test-lowest coverage test-phoenix soak fuzz lint audit bench format package dist
.PHONY: bench-fleet test-deb test-image test-kubernetes test-otlp test-pacemaker renderings dashboards golden pictures recording
.PHONY: docs requirements clean test-grafana test-fleet test-receivers test-examples checks alerts

help:
	@echo "make demo          run the exporter against a simulator, without Azure; NOTIFY=URL sends messages, CONFIG=FILE adds a configuration"
	@echo "make test          lint, types and all tests, as CI runs them"
	@echo "make pytest        all tests, without lint and audit; TESTS=tests/web for some of them"
	@echo "make format        format the code and apply ruff's fixes"
	@echo "make docs          build the documentation as a site in build/site; fails on a broken link"
	@echo "make package       build the wheel and the source distribution in dist/, and check them"
	@echo "make help-all      all other targets"

help-all: help
	@echo
	@echo "Parts of make test:"
	@echo "make lint          ruff, and mypy for Linux and Windows"
	@echo "make checks        dependencies, documentation, dashboards, workflows and deployment files"
	@echo "make audit         look up known vulnerabilities of the dependencies; prints NOT AUDITED if OSV cannot be reached"
	@echo
	@echo "Tests and measurements that make test does not include, most of them in tests/slow:"
	@echo "make test-lowest   all tests, with the lowest versions of the dependencies that pyproject.toml allows"
	@echo "make coverage      which branches of the program the tests reach; TESTS=tests/web for some of the tests"
	@echo "make soak          random histories beside a model, five minutes of random faults and kills, and a siege;"
	@echo "                   change them with SOAK_HISTORIES, SOAK_SECONDS and SOAK_SEED"
	@echo "make fuzz          search for inputs that break the exporter; FUZZ_SECONDS=300, FUZZ_SEED=NUMBER to repeat a search"
	@echo "make bench         measure memory, CPU and delays; BENCH_BASE=DIRECTORY compares with another checkout"
	@echo "make bench-fleet   measure what dashboards and rules cost a Prometheus; FLEET_VMS='500 2000'"
	@echo "make test-fleet    fifty exporters with Prometheus and Alertmanager: approvals, alerts, messages and their delays"
	@echo "make test-receivers  messages to receivers that are slow, fail late or never answer; takes four minutes"
	@echo "make test-examples  the hooks in examples/, beside stand-ins of Slurm, Jenkins, Patroni and others"
	@echo "make test-deb      install, upgrade and purge the .deb in a clean Debian with systemd; cloud-init and Ansible"
	@echo "make test-image    build the container image with buildah, and run it"
	@echo "make test-kubernetes  the drain and the Helm chart with a real API server; Go builds it in 11 CPU minutes, once"
	@echo "make test-otlp     metrics and log records in an OpenTelemetry Collector and Prometheus 3, which Go builds"
	@echo "make test-pacemaker  the hook for Pacemaker in a cluster of one node, in a Debian with systemd"
	@echo "make test-phoenix  the demo's traces in a real backend; installs 850 MB into .venv-phoenix"
	@echo "make test-grafana  the tables of the dashboards in Grafana's own library; needs npm, installs 190 MB into build"
	@echo
	@echo "Generated files:"
	@echo "make alerts        the rule groups for Azure Monitor, from the rule files"
	@echo "make dashboards    the dashboards, from dashboards/source"
	@echo "make renderings    the renderings of the Helm chart that the tests read"
	@echo "make golden        the expected messages of all transitions; review the diff"
	@echo "make pictures      the dashboards, and pictures of them, of the page and of a message for docs/images"
	@echo "make recording     docs/images/demo.svg: half a minute of the demo's terminal"
	@echo "make requirements  pins of the newest versions of all dependencies; UPGRADE= keeps the pins that still fit"
	@echo "make dist          all files of a release: wheel, tarball, .deb and .rpm; needs Go"
	@echo "make clean         remove all generated and installed files"

demo: $(VENV)/.runtime
	$(BIN)/python -m exporter demo $(if $(CONFIG),--config.file '$(CONFIG)') $(if $(NOTIFY),--notify '$(NOTIFY)')

test: lint checks audit pytest

PARALLEL := -n auto --dist worksteal
pytest: $(VENV)/.dev $(VENV)/.packages
	$(BIN)/python -m pytest $(PARALLEL) $(TESTS)

test-lowest: $(LOWEST)/.installed $(VENV)/.packages
	$(LOWEST)/bin/python -m pytest $(PARALLEL)

# The tests of what is imported fail here, as coverage itself imports some of it: make test decides.
coverage: $(VENV)/.dev $(VENV)/.packages
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest $(PARALLEL) $(TESTS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

test-phoenix: $(VENV)/.dev $(PHOENIX)/.installed
	PHOENIX=$(PHOENIX)/bin/phoenix $(BIN)/python -m pytest tests/slow/phoenix/check_demo.py

test-fleet: $(VENV)/.dev $(VENV)/.packages
	$(BIN)/python -m pytest --log-cli-level=INFO tests/slow/fleet/check_phases.py tests/slow/fleet/check_fleet.py

test-receivers: $(VENV)/.dev
	$(BIN)/python -m pytest $(PARALLEL) tests/slow/check_receivers.py

test-examples: $(VENV)/.dev $(VENV)/.packages
	$(BIN)/python -m pytest $(PARALLEL) tests/slow/check_examples.py

# Versions are in package.json; there is no lock file, which would name a registry.
GRAFANA := build/grafana
test-grafana: $(VENV)/.dev $(VENV)/.packages $(GRAFANA)/.installed
	GRAFANA_MODULES=$(GRAFANA) $(BIN)/python -m pytest tests/slow/grafana/check_cells.py

$(GRAFANA)/.installed: tests/slow/grafana/package.json
	mkdir -p $(GRAFANA)
	cp $< $(GRAFANA)
	cd $(GRAFANA) && npm install --no-package-lock --no-audit --no-fund --ignore-scripts
	@touch $@

fuzz: $(VENV)/.dev
	FUZZ_SECONDS=$(FUZZ_SECONDS) FUZZ_SEED=$(FUZZ_SEED) $(BIN)/python -m tests.slow.fuzz

SOAK_HISTORIES ?= 100000
soak: $(VENV)/.dev
	$(BIN)/python -m tests.slow.histories --histories $(SOAK_HISTORIES) --seed $(or $(SOAK_SEED),1)
	SOAK_SECONDS=$(or $(SOAK_SECONDS),300) SOAK_SEED=$(or $(SOAK_SEED),1) $(BIN)/python -m tests.slow.soak.run
	SIEGE_SECONDS=$(SIEGE_SECONDS) $(BIN)/python -m tests.slow.siege

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.growth docs/images/cost.png

bench-fleet: $(VENV)/.dev $(VENV)/.packages
	$(BIN)/python -m benchmarks.queries $(FLEET_VMS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 --package exporter

audit: $(VENV)/.dev
	$(BIN)/python -m scripts.audit requirements/runtime.txt

# Dependencies, links, workflows, deployment files: what no program reads here.
checks: $(VENV)/.dev
	$(BIN)/python -m scripts.checks

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

dist: package $(TOOLS)/nfpm
	$(BIN)/python -m scripts.packages dist/*.whl $(TOOLS)/nfpm
	cd dist && sha256sum * > SHA256SUMS

# In roots of their own, booted by systemd. BUILT=yes tests the packages that are in dist/.
test-deb: $(if $(BUILT),$(VENV)/.dev,dist)
	scripts/debian-packages debootstrap systemd-container lintian
	TOOLS=$(abspath $(TOOLS)) $(BIN)/python -m pytest tests/slow/packaging/check_deb.py tests/slow/packaging/check_rollout.py

# Built by buildah on a Debian of its own; BASE=IMAGE takes another base.
test-image: $(VENV)/.dev
	scripts/debian-packages debootstrap buildah
	TOOLS=$(abspath $(TOOLS)) BASE=$(BASE) $(BIN)/python -m pytest tests/slow/packaging/check_image.py

test-pacemaker: $(VENV)/.dev
	scripts/debian-packages debootstrap systemd-container
	TOOLS=$(abspath $(TOOLS)) $(BIN)/python -m pytest tests/slow/packaging/check_pacemaker.py

# Beside a real API server; building it by Go takes 11 CPU minutes, once.
test-kubernetes: $(VENV)/.dev $(TOOLS)/helm $(TOOLS)/kube-apiserver
	scripts/debian-packages etcd-server
	TOOLS=$(abspath $(TOOLS)) $(BIN)/python -m pytest tests/slow/kubernetes/check_chart.py tests/slow/kubernetes/check_drain.py

# Beside an OpenTelemetry Collector and Prometheus 3; building them by Go takes 10 CPU minutes, once.
test-otlp: $(VENV)/.dev $(TOOLS)/prometheus3
	TOOLS=$(abspath $(TOOLS)) $(BIN)/python -m pytest tests/slow/otlp/check_receivers.py

$(TOOLS)/prometheus3: scripts/otlp-programs
	scripts/otlp-programs $(TOOLS)

renderings: $(VENV)/.dev $(TOOLS)/helm
	$(BIN)/python -m scripts.renderings $(TOOLS)/helm

$(TOOLS)/kube-apiserver: scripts/kubernetes-programs
	scripts/kubernetes-programs $(TOOLS)

$(TOOLS)/helm:
	GOBIN=$(abspath $(TOOLS)) go install helm.sh/helm/v3/cmd/helm@$(HELM)

$(TOOLS)/nfpm:
	GOBIN=$(abspath $(TOOLS)) go install github.com/goreleaser/nfpm/v2/cmd/nfpm@$(NFPM)

package: $(VENV)/.dev
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

alerts: $(VENV)/.dev
	$(BIN)/python -m scripts.alerts

dashboards: $(VENV)/.dev
	$(BIN)/python -m dashboards.build

golden: $(VENV)/.dev
	GOLDEN_WRITE=1 $(BIN)/python -m pytest -q tests/outputs/notifications/test_golden.py

recording: $(VENV)/.dev
	$(BIN)/python -m scripts.record_demo docs/images/demo.svg

pictures: dashboards $(VENV)/.packages
	$(BIN)/python -m scripts.pictures.dashboards
	$(BIN)/python -m scripts.pictures.page
	$(BIN)/python -m scripts.pictures.architecture

docs: $(DOCS)/.installed
	$(DOCS)/bin/mkdocs build --strict

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed; name it: make PYTHON=python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || scripts/debian-packages python3-venv
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements/runtime.txt | $(VENV)/bin/python
	@echo "Installing the libraries of the exporter into $(VENV), once; this can take a minute."
	$(BIN)/python $(subst --quiet,--progress-bar on,$(INSTALL)) $(PINS)
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
	$(PHOENIX)/bin/python $(INSTALL) --no-deps --require-hashes -r $<
	@touch $@

$(DOCS)/.installed: requirements/docs.txt | $(VENV)/bin/python
	$(BIN)/python -m venv $(DOCS)
	$(DOCS)/bin/python $(INSTALL) --require-hashes -r $<
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
	$(PIN) --constraint requirements/dev.txt --output-file requirements/build.txt requirements/build.in
	$(PIN) --constraint build/minimums.txt --constraint requirements/lowest.in \
	    --output-file requirements/lowest.txt requirements/dev.in pyproject.toml
	$(PIN) --output-file requirements/phoenix.txt requirements/phoenix.in
	$(PIN) --output-file requirements/docs.txt requirements/docs.in
	$(PIN) --output-file requirements/bundle.txt requirements/bundle.in

clean:
	rm -rf $(VENV) $(LOWEST) $(PHOENIX) $(DOCS) .tools build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
