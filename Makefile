# Everything a developer or a newcomer runs. The virtual environment is made when it is first needed.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV = .venv
BIN = $(VENV)/bin
# Processes that run all tests, more than two cores have: most tests wait for their servers much of the time.
PROCESSES ?= 3
# Tests start some hundred processes of ours, and none should compile them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test unit model lint format openapi coverage bench clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 12

$(VENV)/installed: setup.cfg setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[demo,test,lint]'
	@touch $@

demo: $(VENV)/installed  ## watch a real migration, from start to COMMITTED, under live writes
	@$(BIN)/python -m syncsvc.sandbox.demo

test: $(VENV)/installed  ## run all tests, on real servers that the tests start
	$(BIN)/python -m pytest -n $(PROCESSES)

unit: $(VENV)/installed  ## run the tests that need no server
	$(BIN)/python -m pytest tests/unit

model: $(VENV)/installed  ## run random writes, DDL and kills, with more seeds than the tests do
	$(BIN)/python -m tests.model --seeds 1-50

lint: $(VENV)/installed  ## check style, imports and types
	$(BIN)/black --check --quiet --line-length 100 syncsvc verifier tests
	$(BIN)/isort --check-only --quiet syncsvc verifier tests
	$(BIN)/flake8 syncsvc verifier tests
	$(BIN)/mypy

format: $(VENV)/installed  ## put the code into its form
	$(BIN)/isort --quiet syncsvc verifier tests
	$(BIN)/black --quiet --line-length 100 syncsvc verifier tests

openapi: $(VENV)/installed  ## write the descriptions of both APIs to docs
	$(BIN)/python -m tests.support.descriptions

coverage: $(VENV)/installed  ## run all tests and show what they do not reach
	$(BIN)/python -m pytest -n $(PROCESSES) --cov --cov-report=term

bench: $(VENV)/installed  ## measure copy and change events against a limit and a plain loop
	$(BIN)/python -m tests.bench

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist *.egg-info .coverage .mypy_cache .pytest_cache .hypothesis bench-results.json
