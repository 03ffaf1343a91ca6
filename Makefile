# Sevenfold: the environment, the demo, the tests. `make help` lists the targets.
#
# The packages come from the index pip is set up with. The default torch for Linux may bring several GB of GPU
# libraries; to take a CPU build, point pip at an index or a folder of wheels that has one before the first `make`:
#     PIP_EXTRA_INDEX_URL=<index of CPU builds> make run
#     PIP_FIND_LINKS=<folder of wheels> make run
# Any other setting of pip (PIP_INDEX_URL, PIP_CONSTRAINT, PIP_NO_INDEX ...) is passed on the same way.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
STAMP := $(VENV)/.installed
ROOMS := assets pipelines quality storage training

.DEFAULT_GOAL := help
.PHONY: help run test ui install lint types clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(STAMP) ## run the demo: one full round of the loop on the embedded data
	@$(BIN)/sevenfold demo

test: $(STAMP) ## run all tests, JOBS at a time (choose some with ARGS="tests/storage -x")
	@$(BIN)/pytest -n $(JOBS) --dist loadfile $(ARGS)

ui: $(STAMP) ## open the demo in Dagster's web UI on 127.0.0.1:3000 (your own project: `sevenfold ui` in its folder)
	@test -f demo/sevenfold.toml || { echo "There is no demo yet: make run"; exit 1; }
	@cd demo && ../$(BIN)/sevenfold ui

install: $(STAMP) ## create .venv with everything in it, nothing else

lint: $(STAMP) ## ruff: rules and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

# The rooms lie at the top level but are imported as sevenfold.<room>; links show the checker that layout.
types: $(STAMP) ## mypy over the import package
	@mkdir -p .types/sevenfold
	@for path in sevenfold/*.py sevenfold/py.typed; do ln -sfn ../../$$path .types/$$path; done
	@for room in $(ROOMS); do ln -sfn ../../$$room .types/sevenfold/$$room; done
	@MYPYPATH=.types $(BIN)/mypy --package sevenfold

clean: ## remove .venv and everything generated (never a lake)
	rm -rf $(VENV) .types build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Installed again only when pyproject.toml changes; source changes need nothing, the install is editable.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Sevenfold needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo missing)." >&2; \
	  echo "Name a newer one: make PYTHON=python3.12 $(or $(MAKECMDGOALS),run)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "'$(PYTHON)' cannot create environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing the packages that pyproject.toml names into $(VENV) (2 to 10 minutes the first time) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
	@echo "Installed."
