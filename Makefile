# Every target first makes the virtual environment in .venv, again only if the pins have changed: with what serving needs,
# and for tests and tools with the rest (scripts/install).
#
#   make serve                          the server, on http://127.0.0.1:1337
#   make serve ARGS="--model my.gguf"   ARGS goes to the command of the target
#   make install CMAKE_ARGS="-DGGML_CUDA=on"   llama.cpp for an accelerator (docs/accelerators.md)
#   make install LLAMA_COMPILER=system         llama.cpp compiled by this machine's compiler

SHELL := /usr/bin/env bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
ARGS ?=
MINUTES ?= 60
BIN := .venv/bin
# Compile modules once, not in each of the hundreds of processes that the tests start.
unexport PYTHONDONTWRITEBYTECODE
# Tests wait for other processes part of the time: one process more than cores.
TEST_PROCESSES ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$(( n < 4 ? n + 1 : 4 )))
PYTEST = $(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder
# A file is in a folder `long` beside those of its package if it waits for most of its time (for peers that are silent, for
# servers that die or restart), or trains, measures or sends thousands of calls. A small test of the same behaviour is outside.
LONG_TESTS := tests/chaos tests/clients tests/conformance tests/page $(shell find tests -name long -type d)
# Files of tests that draw a part by day: calls from the API's documents, sizes of operations, cuts of answers, properties.
# The longest are first, so that none is alone at the end.
LONGEST_DRAWN := tests/integration/http/dialects/test_schemathesis.py tests/unit/chat/test_history.py tests/unit/chat/test_call_form.py
DRAWN_TESTS = $(LONGEST_DRAWN) $(filter-out $(LONGEST_DRAWN),$(shell grep -rlE 'mark.drawn|drawn_grid|from hypothesis' tests/contract tests/integration tests/simulation tests/unit --include='test_*.py'))

export PYTHON CMAKE_ARGS LLAMA_COMPILER

.PHONY: help install install-dev page serve unit test test-long test-clients test-page test-cluster package test-package check audit format bench conformance fuzz chaos soak model model-eye model-eval docs lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

install: ## the virtual environment with what serving needs
	@scripts/install

install-dev: ## the virtual environment with all pinned packages
	@scripts/install dev

page: ## the page for browsers, if node and npm are installed
	@scripts/build-page

serve: install page ## the server (ARGS: as jan-serve serve)
	@exec $(BIN)/jan-serve serve $(ARGS)

unit: install-dev ## the tests that start no process, in less than a minute (ARGS: as pytest)
	$(PYTEST) tests/unit $(ARGS)

test: install-dev ## the tests, but for those of test-long (ARGS: as pytest)
	@scripts/build-page
	$(PYTEST) $(addprefix --ignore=,$(LONG_TESTS)) $(ARGS)

# These wait for most of their time, so that one process more fits.
test-long: install-dev ## tests that take minutes each: chaos, clients of other projects, suites of JSON Schema, the page, more draws (ARGS: as pytest)
	@scripts/install-clients || echo "==> the clients could not be installed: their tests are skipped" >&2
	@scripts/build-page
	TEST_DRAWS=40 $(PYTEST) --numprocesses $$(( $(TEST_PROCESSES) + 1 )) -m "long or drawn or hypothesis" $(LONG_TESTS) $(DRAWN_TESTS) $(ARGS)

test-clients: install-dev ## clients of other projects; those in JavaScript need node and npm
	@scripts/install-clients
	@scripts/install-lmdeploy
	cd tests/clients/node && npm ci --no-audit --no-fund --loglevel=error
	cd tests/clients/claude_code && npm ci --no-audit --no-fund --loglevel=error || echo "==> Claude Code could not be installed: its tests are skipped" >&2
	$(BIN)/python -m pytest tests/clients $(ARGS)

test-page: install-dev ## the page in a headless Chromium, which must be installed (ARGS: as pytest)
	@scripts/build-page --required
	$(BIN)/python -m pytest tests/page $(ARGS)

test-cluster: ## jan-serve cluster on a real Ray, installed in .venv-cluster (ARGS: as pytest)
	@scripts/install cluster
	.venv-cluster/bin/python -m pytest tests/cluster $(ARGS)

package: install ## the wheel and the sdist, in dist/ (others: packaging/README.md)
	packaging/build-wheel

test-package: package ## the wheel in a new environment
	packaging/test-wheel

check: install-dev ## lint, format, types, import rules, sizes, derived documents
	@scripts/check

audit: install-dev ## known weaknesses of the pinned packages, of services on the network
	@scripts/audit

format: install-dev ## format the code and sort imports
	$(BIN)/ruff check --fix-only --select I,UP .
	$(BIN)/ruff format .

docs: install-dev ## write docs/cli.md, docs/settings.md, docs/templates.md and the packages' bill of materials
	$(BIN)/python scripts/gen.py
	$(BIN)/python -m tests.unit.chat.template_table
	$(BIN)/python scripts/sbom.py

bench: install-dev ## measurements (ARGS: as python -m benchmarks)
	$(BIN)/python -m benchmarks $(ARGS)

conformance: install-dev ## the long conformance suites (ARGS: as pytest)
	$(BIN)/python -m pytest tests/conformance $(ARGS)

fuzz: install-dev ## damaged inputs at what strangers reach (ARGS: as python -m tests.fuzz, for example "http --minutes 20")
	@$(if $(findstring --guided,$(ARGS)),$(BIN)/python -m pip --disable-pip-version-check install --quiet --requirement tests/fuzz/requirements.txt)
	PYTHONPATH=app:. $(BIN)/python -m tests.fuzz $(ARGS)

chaos: install-dev ## a server among faults of all kinds, on Linux (ARGS: as python -m tests.chaos, for example "--seed 7 --minutes 10")
	PYTHONPATH=app:. $(BIN)/python -m tests.chaos $(ARGS)

soak: install-dev ## steady load while models come and go, on Linux (MINUTES, 60; ARGS: as python -m tests.chaos.soak)
	PYTHONPATH=app:. $(BIN)/python -m tests.chaos.soak --minutes $(MINUTES) $(ARGS)

model: ## train the built-in model again, for an hour and a half to two (ARGS: as python -m models.recipe)
	@test -x .venv-model/bin/python || $${PYTHON:-python3} -m venv .venv-model
	.venv-model/bin/python -m pip install --quiet --requirement models/recipe/requirements.txt
	.venv-model/bin/python -m models.recipe --output build/jan-tiny $(ARGS)

model-eye: ## teach the built-in model to see, for a good hour: writes it and its projector (ARGS: as python -m models.recipe.eye)
	@test -x .venv-model/bin/python || $${PYTHON:-python3} -m venv .venv-model
	.venv-model/bin/python -m pip install --quiet --requirement models/recipe/requirements.txt
	.venv-model/bin/python -m models.recipe.eye --output build/jan-tiny-eye $(ARGS)

model-eval: install-dev ## measure the built-in model (ARGS: as python -m models.recipe.evaluate)
	$(BIN)/python -m models.recipe.evaluate $(ARGS)

lock: ## rewrite constraints.txt (needs uv)
	scripts/lock $(ARGS)

clean: ## remove files of the tools, but not .venv
	rm -rf build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
