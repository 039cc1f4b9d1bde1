# The commands for developers and newcomers; `make` lists them. The first command that needs the virtual environment
# creates it.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV = .venv
BIN = $(VENV)/bin
# The number of test processes. It exceeds the usual two cores, because most tests spend much time waiting for servers.
PROCESSES ?= 5
# The unit tests run in three processes, each with a third of the modules: some tests wait for child processes.
UNIT = unit-1 unit-2 unit-3
INSTALL = $(BIN)/pip install --disable-pip-version-check --editable
LOCK = CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/pip-compile --quiet --upgrade --generate-hashes --strip-extras \
    --allow-unsafe --no-emit-index-url --no-emit-find-links
# A second virtual environment, with the lowest versions of the dependencies that setup.cfg allows.
LOWEST = .venv-min
# Save compiled modules: tests start hundreds of our processes, and each would compile them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo check lint types unit $(UNIT) test test-all test-min test-browser test-packages format reference evidence \
    docs dist lock release coverage bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

$(VENV)/demo-installed: setup.cfg setup.py pyproject.toml
	@echo "Installing the packages for the demo into $(VENV). The largest one is a MongoDB server."
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[demo]'
	@touch $@

$(VENV)/installed: $(VENV)/demo-installed
	$(INSTALL) '.[demo,test,lint]'
	@touch $@

$(VENV)/docs-installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[docs]'
	@touch $@

$(VENV)/dist-installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[dist]'
	@touch $@

$(LOWEST)/installed: setup.cfg pyproject.toml tests/support/lowest.py
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) -m tests.support.lowest > $(LOWEST)/lowest.txt
	$(LOWEST)/bin/pip install --disable-pip-version-check --constraint $(LOWEST)/lowest.txt --editable '.[test]'
	@touch $@

$(VENV)/browser-installed: $(VENV)/installed
	$(INSTALL) '.[browser]'
	@touch $@

demo: $(VENV)/demo-installed  ## watch a real migration, from start to COMMITTED, under live writes
	@$(BIN)/python -m syncsvc.sandbox.demo

check: $(VENV)/installed  ## check style and types, and run the tests that need no server
	@$(MAKE) --no-print-directory --output-sync --jobs 4 types $(UNIT) lint

lint: $(VENV)/installed
	$(BIN)/black --check --quiet syncsvc verifier tests packaging
	$(BIN)/ruff check --quiet syncsvc verifier tests packaging

types: $(VENV)/installed
	$(BIN)/mypy

unit: $(UNIT)

$(UNIT): $(VENV)/installed
	$(BIN)/python -m pytest --quiet --share $(@:unit-%=%)/$(words $(UNIT)) tests/unit

test: $(VENV)/installed  ## run the tests, on real servers that the tests start
	$(BIN)/python -m pytest -n $(PROCESSES)

test-all: $(VENV)/installed  ## run the tests with all combinations, and with more random writes, DDL and kills; SHARE=1/2 runs one half
	$(BIN)/python -m pytest -n $(PROCESSES) --full $(if $(SHARE),--share $(SHARE))

test-min: $(LOWEST)/installed  ## run some tests with the lowest versions of all dependencies
	$(LOWEST)/bin/python -m pytest --quiet tests/unit tests/integration/test_main_job.py

test-browser: $(VENV)/browser-installed  ## run the tests of the pages; they need Chromium (apt-get install chromium)
	$(BIN)/python -m pytest --quiet tests/browser

test-packages: $(VENV)/installed dist  ## build the packages and the image, and migrate with each in a new system; needs root
	$(BIN)/python -m pytest --quiet tests/packages

format: $(VENV)/installed  ## sort the imports and format the code
	$(BIN)/ruff check --quiet --fix --select I syncsvc verifier tests packaging
	$(BIN)/black --quiet syncsvc verifier tests packaging

reference: $(VENV)/installed  ## write the generated parts of docs, and the OpenAPI files
	$(BIN)/python -m tests.support.reference

evidence: reference  ## write the tables in docs/evidence and docs/benchmarks from the recorded results

docs: $(VENV)/docs-installed  ## build the documentation in build/docs and build/man; warnings are errors
	$(BIN)/python -m sphinx --quiet --nitpicky --fail-on-warning --keep-going docs build/docs
	$(BIN)/python -m sphinx --quiet --builder man --fail-on-warning docs build/man

dist: $(VENV)/dist-installed  ## build all packages in dist, from the last commit
	packaging/build $(BIN)

lock: $(VENV)/dist-installed  ## lock the newest versions of the dependencies for the packages and the image
	$(LOCK) --output-file packaging/requirements.txt setup.cfg
	grep -o 'setuptools == .*' setup.cfg | $(LOCK) --output-file packaging/build-requirements.txt -

release: $(VENV)/installed  ## make a release candidate: make release VERSION=0.2.0
	$(BIN)/python packaging/release.py $(VERSION)

coverage: $(VENV)/installed  ## run the tests, and list the lines that they do not reach
	$(BIN)/python -m pytest -n $(PROCESSES) --cov --cov-report=term

bench: $(VENV)/installed  ## measure the copy, change events, verification and downtime
	$(BIN)/python -m tests.bench

clean:  ## remove all virtual environments, builds, caches and benchmark results
	rm -rf $(VENV) $(LOWEST) build dist *.egg-info .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis \
	    bench-results.json
