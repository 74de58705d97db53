# modelless: `make up` serves, `make test` tests. Both set everything up first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: up down test quick quick-lint quick-types quick-gateway quick-control quick-others campaign lint check format bench bench-calibration bench-fronts bench-lone bench-overload bench-peers chaos clients conformance clean help

help:             ## what there is
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 20

up: $(VENV)/.run  ## install, make the example models on the first run, serve on 127.0.0.1:8000
	@$(BIN)/modelless up --example digits $(ARGS)

down: $(VENV)/.run  ## stop what `modelless up --detach` started
	@$(BIN)/modelless down

# Three processes for two cores: many tests wait, for other processes or for a deployment to start.
JOBS ?= 3
test: $(VENV)/.dev  ## all tests that this machine has the services for
	@$(BIN)/pytest --cache-clear -n $(JOBS) $(ARGS) || $(BIN)/python -m tests.again $$?

# Types and three parts of the tests beside each other; what each says is shown when it is done.
quick: $(VENV)/.dev  ## lint, types and the quick tests, in at most 90 s on two idle cores
	@$(MAKE) --no-print-directory -j 4 -O -k quick-lint quick-types quick-gateway quick-control quick-others

QUICK := MODELLESS_TEST_EXAMPLES=0.25 $(BIN)/pytest -q -r fE -m "not slow and not integration and not gpu and not campaign"
quick-lint:
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .

quick-types:
	@$(BIN)/mypy

quick-gateway:
	@$(QUICK) tests/controlplane/gateway

quick-control:
	@$(QUICK) tests/controlplane --ignore tests/controlplane/gateway

quick-others:
	@$(QUICK) tests --ignore tests/controlplane --ignore tests/integration --ignore tests/gpu --ignore tests/corpus

# With names as it goes: it takes long, and one that is cut short has told what failed.
campaign: $(VENV)/.dev  ## properties, with 20 times as many examples, and all that `make test` leaves out
	@MODELLESS_TEST_EXAMPLES=20 $(BIN)/pytest -v -n $(JOBS) -m "hypothesis and not integration" $(ARGS)
	@$(BIN)/pytest -v -m "campaign or integration" tests/integration/clusters $(ARGS)
	@$(BIN)/pytest -v -m "campaign and not hypothesis" tests --ignore tests/integration/clusters $(ARGS)

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

bench-calibration: $(VENV)/.dev  ## whether predicted latencies come true, and what admission makes of them
	@$(BIN)/python -m tests.bench.profiling.calibration $(ARGS)

bench-lone: $(VENV)/.dev  ## what one query in flight takes, beside an empty answer
	@$(BIN)/python -m tests.bench.serving.lone $(ARGS)

bench-overload: $(VENV)/.dev  ## what is answered in time when more is asked than can be served
	@$(BIN)/python -m tests.bench.serving.overload $(ARGS)

chaos: $(VENV)/.dev  ## faults on a real installation under load, and what became of each query
	@$(BIN)/python -m tests.bench.chaos $(ARGS)

$(VENV)/.pip:
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "modelless needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# Next to a clone that is called modelless, that folder would be taken for the package: what setuptools
# finds for a package in place comes after the folder of a program. A place on the path does not.
define found_first
	@mkdir -p $(VENV)/packages && ln -sfn ../../controlplane/client $(VENV)/packages/modelless
	@echo '$(CURDIR)/$(VENV)/packages' > $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/modelless-packages.pth
endef

$(VENV)/.run: $(VENV)/.pip pyproject.toml constraints.txt
	@echo "Installing modelless into $(VENV) (a few minutes the first time)"
	@$(PIP) install -c constraints.txt -e '.[torch,sklearn-export,text]'
	$(found_first)
	@touch $@

$(VENV)/.dev: $(VENV)/.pip pyproject.toml constraints.txt
	@echo "Installing modelless and its test tools into $(VENV) (a few minutes the first time)"
	@$(PIP) install -c constraints.txt -e '.[dev]'
	$(found_first)
	@touch $@ $(VENV)/.run

# Each has the pins of its own. uv needs a tenth of pip's time for them.
CLIENTS := triton kserve schemathesis kubernetes openai
clients: .clients/.done  ## clients that others wrote, each in an environment of its own, for tests

.clients/uv/.done:
	@$(PYTHON) -m venv .clients/uv
	@.clients/uv/bin/pip --disable-pip-version-check --quiet install 'uv==0.13.*'
	@touch $@

.clients/.done: $(VENV)/.pip .clients/uv/.done $(CLIENTS:%=tests/clients/%.txt)
	@for name in $(CLIENTS); do \
		.clients/uv/bin/uv --quiet venv --clear --python $(BIN)/python .clients/$$name && \
		.clients/uv/bin/uv --quiet pip install --python .clients/$$name -r tests/clients/$$name.txt \
		|| exit 1; done
	@touch $@

bench-peers: $(VENV)/.dev .clients/.done .clients/.peers  ## us beside mosec; MLPerf LoadGen and perf_analyzer
	@$(BIN)/python -m tests.bench.peers $(ARGS)

PEERS := mosec loadgen
.clients/.peers: .clients/.done $(PEERS:%=tests/bench/peers/%.txt)
	@for name in $(PEERS); do \
		.clients/uv/bin/uv --quiet venv --clear --python $(BIN)/python .clients/$$name && \
		.clients/uv/bin/uv --quiet pip install --python .clients/$$name -r tests/bench/peers/$$name.txt \
		|| exit 1; done
	@touch $@

bench-fronts: $(VENV)/.dev .clients/.done .clients/granian/.done  ## what a request costs several HTTP servers
	@$(BIN)/python -m tests.bench.fronts $(ARGS)

.clients/granian/.done: .clients/.done tests/bench/fronts/granian.txt
	@.clients/uv/bin/uv --quiet venv --clear --python $(BIN)/python .clients/granian
	@.clients/uv/bin/uv --quiet pip install --python .clients/granian -r tests/bench/fronts/granian.txt
	@touch $@

conformance: $(VENV)/.dev clients  ## those clients against the whole product, in full
	@CI=true MODELLESS_TEST_EXAMPLES=10 $(BIN)/pytest tests/integration/one_worker/test_clients.py $(ARGS)

clean:            ## remove the environment (the state directory stays)
	rm -rf $(VENV) .clients
