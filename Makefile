# One command per job; `make test` is all that a change must pass (CONTRIBUTING.md).

VENV ?= .venv
PYTHON ?= python3
# More for pytest, for example: make test ARGS='-x -k fence'
ARGS ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SUITE := $(wildcard tests notebooks)

# nbval takes part only where there is a notebook; cells run on the venv's own kernel.
NBVAL := $(if $(wildcard notebooks/*.ipynb),--nbval --nbval-current-env --nbval-cell-timeout 60 \
	$(addprefix --nbval-sanitize-with ,$(wildcard notebooks/nbval.cfg)))
LEFT_OUT := --ExecutePreprocessor.store_widget_state=False --ExecutePreprocessor.record_timing=False \
	--ClearMetadataPreprocessor.enabled=True --ClearMetadataPreprocessor.clear_cell_metadata=False \
	--ClearMetadataPreprocessor.preserve_nb_metadata_mask=kernelspec
# Two at a time: the tests wait for processes more than they compute. Files stay whole, since they share servers.
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -p tests.plugins.shares -n $(WORKERS) --dist loadfile

# pyright runs on node: the machine's, else one from a wheel (200 MB), so that nothing but the index is needed.
NODE := $(if $(shell command -v node 2>/dev/null),,'pyright[nodejs]')
# Without this pyright asks the network for news of itself.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
export AGENTBOOK_MAKE_STARTED := $(shell date +%s)

.PHONY: setup lint types arrows test notebooks notebooks-update e2e crash demo lab

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]' $(NODE)
	@touch $@

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check agentbook

types: setup
	$(BIN)/pyright --pythonpath $(BIN)/python

arrows: setup
	$(BIN)/lint-imports --no-logo

# pytest comes last, so that its closing line is the one to read.
test: setup lint types arrows
	@$(NODE_TESTS)
	$(PYTEST) $(NBVAL) $(ARGS) $(SUITE)

notebooks: setup
	$(PYTEST) $(NBVAL) $(ARGS) notebooks

# Written back with their outputs; what differs from run to run for no reason is left out, and the widgets' state,
# with which nbconvert would show widgets instead of what stands for them.
notebooks-update: setup
	for notebook in notebooks/*.ipynb; do \
	  store=$$(mktemp -d) && AGENTBOOK_DIR=$$store/store AGENTBOOK_SERVER_GRACE=1 $(BIN)/python -m nbconvert \
	    --to notebook --inplace --execute $(LEFT_OUT) $$notebook && rm -rf $$store || exit 1; \
	done

e2e: setup
	$(PYTEST) $(ARGS) tests/e2e

crash: setup
	$(PYTEST) $(ARGS) tests/crash

demo: setup
	$(BIN)/agentbook demo

lab: setup
	$(BIN)/agentbook lab

# The widgets' own tests need node and npm, which a Python machine may lack.
ifneq ($(wildcard widgets/package.json),)
define NODE_TESTS
if command -v npm >/dev/null; then \
  cd widgets && { test node_modules -nt package-lock.json || npm ci --no-audit --no-fund; } && npm test --silent; \
else \
  echo "widgets: their tests are left out, there is no node here"; \
  case ",$$AGENTBOOK_REQUIRE," in *,node,*) exit 1;; esac; \
fi
endef
endif
