# Every target sets up what it needs in .venv; nothing has to be installed by hand but Python and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The same without PyTorch, for whoever works on the control plane; the whole includes it.
CONTROL_STAMP := $(VENV)/.installed-control
CONTROL_EXTRAS := controller,brain,scheduler,runtime,local,sim,test
# More than there are cores: tests of real processes wait much of their time.
PYTEST_WORKERS ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((2 * n)))

# Each writes files that follow from the code, or with --check compares them.
GENERATORS := "-m penstock.api.openapi" "-m penstock.cli.reference" \
  "-m penstock.scheduler.dashboards" charts/generate.py client/generate.py docs/reference/generate.py \
  docs/what-happens-when/generate.py

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z-]*:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The two distributions of this repository; the extra `local` of the first needs the second.
PROJECTS := pyproject.toml cluster/pyproject.toml

# The lock file pins every version; pip checks that nothing it pins is missing or too new.
$(STAMP): $(PROJECTS) requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Penstock needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (once; needs the network)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint requirements.lock \
	  --editable ./cluster --editable '.[all,dev]'
	@touch $@

$(CONTROL_STAMP): $(PROJECTS) requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -e $(STAMP) || { echo "setting up $(VENV) without PyTorch (once; needs the network)"; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	    --constraint requirements.lock \
	    --editable ./cluster --editable '.[$(CONTROL_EXTRAS)]'; }
	@touch $@

.PHONY: setup
setup: $(STAMP) ## Create .venv with everything in it

.PHONY: setup-control
setup-control: $(CONTROL_STAMP) ## The same without PyTorch: enough for make test-fast

.PHONY: demo
demo: $(STAMP) ## Train a real job end to end on an embedded cluster (about 5 minutes)
	@$(BIN)/penstock demo

# What to run: a folder, a file, with options of pytest. Default: all.
T ?=

.PHONY: test
test: $(STAMP) ## Run the whole test suite, or T="PATH [OPTIONS]" of it
	@$(BIN)/python -m pytest -n $(if $(T),0,$(PYTEST_WORKERS)) --dist worksteal $(T)

# Rooms and folders that decide: no PyTorch, no database, no cluster, no browser.
FAST := tests/base tests/brain/algorithms tests/brain/control tests/brain/model tests/crds \
  tests/house tests/scheduler/placement tests/scheduler/planner tests/scheduler/policies tests/sim \
  tests/throughput

.PHONY: test-cluster
test-cluster: $(CONTROL_STAMP) ## The tests of the embedded cluster alone, without PyTorch
	@$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal cluster/tests

.PHONY: test-fast
test-fast: $(CONTROL_STAMP) ## The tests of decisions, under two minutes, without PyTorch
	@$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal -m 'not slow' $(FAST)

.PHONY: test-gpu
test-gpu: $(STAMP) ## The tests marked gpu alone, where there is a CUDA device
	@$(BIN)/python -m pytest -m gpu $(T)

.PHONY: check
check: $(STAMP) ## Lint, types, layer contracts, generated files
	@$(MAKE) --no-print-directory -j 2 check-types check-rest

.PHONY: check-types check-rest
check-types:
	@$(BIN)/mypy
check-rest:
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/penstock crds --check
	@for one in $(GENERATORS); do $(BIN)/python $$one --check || exit 1; done

.PHONY: generated
generated: $(STAMP) ## Regenerate all files that follow from the code
	@$(BIN)/penstock crds --write
	@for one in $(GENERATORS); do $(BIN)/python $$one || exit 1; done

.PHONY: docs
docs: $(STAMP) ## Build the documentation as a site, build/docs/index.html
	@$(BIN)/python -m sphinx -b html -W --keep-going -q docs build/docs

.PHONY: format
format: $(STAMP) ## Format the code and sort its imports
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# Whoever installs for themselves is held to the versions of requirements.lock, a file of constraints
# that any index may meet. Images are held to files as well, by their hashes: pip can do that only
# where each requirement is listed, so each image has a list of its own.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
  --no-emit-index-url --no-annotate --no-header
COMPILE_IMAGE = $(COMPILE) --generate-hashes --constraint requirements.lock

.PHONY: lock
lock: $(STAMP) ## Pin the newest versions that the project's ranges allow, with hashes for the images
	@$(BIN)/python -m pip install --quiet uv
	@$(COMPILE) --extra all --extra dev --no-emit-package penstock-cluster \
	  pyproject.toml --output-file requirements.lock
	@$(COMPILE_IMAGE) --extra controller --extra brain --extra scheduler \
	  pyproject.toml --output-file requirements/control.lock
	@$(COMPILE_IMAGE) --extra runtime --extra gpu \
	  pyproject.toml --output-file requirements/runtime.lock
	@$(COMPILE_IMAGE) --extra runtime --extra gpu --extra examples \
	  pyproject.toml --output-file requirements/examples.lock
	@echo hatchling | $(COMPILE_IMAGE) - --output-file requirements/build.lock

.PHONY: sbom
sbom: $(STAMP) ## Write what is installed here as a bill of materials, build/sbom.cdx.json
	@mkdir -p build
	@$(BIN)/python -m penstock.base.bill_of_materials > build/sbom.cdx.json

.PHONY: clean
clean: ## Remove everything that the other targets made
	rm -rf $(VENV) .penstock build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
