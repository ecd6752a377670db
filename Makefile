# Every target does its own set-up: the environment is made from requirements.lock when that changes.
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SANDBOX ?= dev
SIMULATED ?= 8
REAL ?= 0
export PYTHONPATH := operator:sandbox

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(VENV)/installed.stamp: requirements.lock pyproject.toml
	@echo "Making $(VENV) from requirements.lock"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say which with PYTHON=…")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

.PHONY: install
install: $(VENV)/installed.stamp ## Make the development environment in .venv

.PHONY: demo
demo: install ## Train on three real nodes, kill one, and watch the job resume from its checkpoint
	@$(BIN)/python -m goodput_sandbox.demo

.PHONY: sandbox-up
sandbox-up: install ## Start a cluster with Kueue and the operator (SANDBOX=dev SIMULATED=8 REAL=0)
	@$(BIN)/python -m goodput_sandbox up --name $(SANDBOX) --simulated-nodes $(SIMULATED) \
		--real-nodes $(REAL) --operator

.PHONY: sandbox-down
sandbox-down: install ## Stop it, and leave nothing behind
	@$(BIN)/python -m goodput_sandbox down --name $(SANDBOX)

.PHONY: sandbox-status
sandbox-status: install ## What runs, where its kubeconfig is
	@$(BIN)/python -m goodput_sandbox status --name $(SANDBOX)

.PHONY: fmt
fmt: install ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: lint
lint: install ## ruff, and the layers of the package by import-linter
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports

.PHONY: typecheck
typecheck: install ## mypy --strict
	@$(BIN)/mypy

.PHONY: manifests
manifests: install ## Generate crds/ from the models in operator/goodput_operator/api
	@$(BIN)/python -m goodput_operator.api.crd

.PHONY: verify
verify: lint typecheck ## lint, typecheck, and whether generated files are up to date
	@$(BIN)/python -m goodput_operator.api.crd --check

.PHONY: test
test: verify test-unit test-integration ## Everything that must pass before a change lands

.PHONY: test-unit
test-unit: install ## The pure core and the edges: seconds, no cluster
	@$(BIN)/pytest tests/unit

.PHONY: test-integration
test-integration: install ## On a real control plane with Kueue, and on real nodes when root
	@$(BIN)/pytest tests/integration --durations=25

.PHONY: test-extended
test-extended: install ## Further variants of faults that test-integration has one of each
	@$(BIN)/pytest tests/integration -m extended

.PHONY: bench
bench: install ## Benchmarks of the pure core: ratios and counts
	@$(BIN)/python bench/placement.py

.PHONY: clean
clean: ## Remove the environment and what was built in the tree
	@rm -rf $(VENV) build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis
