# modelless: `make up` serves, `make test` tests. Both set everything up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: up down test lint check format bench clean help

help:             ## what there is
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

up: $(VENV)/.run  ## install, make the example models on the first run, serve on 127.0.0.1:8000
	@$(BIN)/modelless up --example digits $(ARGS)

down: $(VENV)/.run  ## stop what `modelless up --detach` started
	@$(BIN)/modelless down

# Those that start a whole cluster wait most of the time; 5 means that there were none.
test: $(VENV)/.dev  ## all tests that this machine has the services for
	@$(BIN)/pytest -n 2 --dist loadfile -m "not integration" $(ARGS) || [ $$? -eq 5 ]
	@$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m integration $(ARGS) $(if $(filter tests%,$(ARGS)),,tests/integration) || [ $$? -eq 5 ]

lint: $(VENV)/.dev  ## format, lint and strict types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

check: lint test   ## everything that must hold before a commit

format: $(VENV)/.dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(VENV)/.dev  ## the numbers of docs/decisions, on this machine
	@$(BIN)/python -m tests.bench $(ARGS)

$(VENV)/.pip:
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "modelless needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.pip pyproject.toml constraints.txt
	@echo "Installing modelless into $(VENV) (a few minutes the first time)"
	@$(PIP) install -c constraints.txt -e '.[torch]'
	@touch $@

$(VENV)/.dev: $(VENV)/.pip pyproject.toml constraints.txt
	@echo "Installing modelless and its test tools into $(VENV) (a few minutes the first time)"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@ $(VENV)/.run

clean:            ## remove the environment (the state directory stays)
	rm -rf $(VENV)
