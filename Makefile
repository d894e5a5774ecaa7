# zluda-stack: the targets people type. Everything is installed into the active virtual
# environment, or into .venv when none is active.
PYTHON ?= python3
VENV ?= $(if $(VIRTUAL_ENV),$(VIRTUAL_ENV),.venv)
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.zluda-stack-run
DEV_STAMP := $(VENV)/.zluda-stack-dev
PIP := $(BIN)/python -m pip --disable-pip-version-check

# The packages by hash first, then the project itself without any resolution or isolation, so
# that nothing floats.
INSTALL = $(PIP) install --quiet --require-hashes -r requirements/$(1).txt \
	&& $(PIP) install --quiet --no-deps --no-build-isolation --editable .

COMPILE := uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header

.PHONY: help up down test lint render images bench lock clean

help: ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 10

up: $(RUN_STAMP) ## Install, start a model behind the endpoint, and prove that it answers
	$(BIN)/zluda-stack up $(ARGS)

down: $(RUN_STAMP) ## Stop what `make up` started
	$(BIN)/zluda-stack down $(ARGS)

test: $(DEV_STAMP) ## Run the tests
	$(BIN)/python -m pytest $(ARGS)

lint: $(DEV_STAMP) ## Check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

render: $(RUN_STAMP) ## Write the committed Dockerfiles and compose files anew from their templates
	$(BIN)/zluda-stack render --committed --out . --force

images: $(RUN_STAMP) ## Build the images of this machine's stack (hours where it has a GPU)
	$(BIN)/zluda-stack build $(ARGS)

bench: $(DEV_STAMP) ## Measure speed and size, and print a table
	$(BIN)/python -m benchmarks.run $(ARGS)

lock: $(RUN_STAMP) ## Resolve requirements/*.txt anew (needs uv), and write zluda-stack.lock
	$(COMPILE) --extra embedded --output-file requirements/run.txt \
		pyproject.toml requirements/build.in
	$(COMPILE) --extra embedded --extra dev --extra bench --constraint requirements/run.txt \
		--output-file requirements/dev.txt pyproject.toml requirements/build.in
	for part in endpoint gates sdist; do $(COMPILE) --constraint requirements/run.txt \
		--output-file requirements/$$part.txt requirements/$$part.in || exit 1; done
	$(COMPILE) --output-file requirements/webui.txt requirements/webui.in
	$(subst 3.10,3.12,$(COMPILE)) --constraint requirements/webui.txt \
		--override requirements/without-torch.in --output-file requirements/webui-torch.txt \
		requirements/webui-torch.in
	$(BIN)/zluda-stack lock --out zluda-stack.lock

clean: ## Remove .venv and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis dist

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "error: $(PYTHON) is older than Python 3.10" >&2; \
		     echo "hint: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(RUN_STAMP): requirements/run.txt pyproject.toml | $(BIN)/python
	$(call INSTALL,run)
	@touch $@

$(DEV_STAMP): requirements/dev.txt pyproject.toml | $(BIN)/python
	$(call INSTALL,dev)
	@touch $@ $(RUN_STAMP)
