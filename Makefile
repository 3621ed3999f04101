# `make demo` and `make test` need only make and Python >= 3.11; they build .venv themselves.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

# The environment is .venv and nothing else, whatever the shell that calls make has set.
unexport PYTHONHOME PYTHONPATH PIP_PREFIX PIP_ROOT PIP_TARGET
export PIP_USER := 0

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo picture test fuzz lint format docs bench paper paper-quick clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.stamp-core ## Fit a mixture of experts and show what it found
	@$(PY) examples/demo.py $(ARGS)

picture: demo ## Take the picture of the README: the report of the demo in Chromium
	@chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size=1120,1130 \
	  --screenshot=docs/images/report.png "file://$(CURDIR)/build/demo.html" 2>/dev/null
	@echo "The picture is docs/images/report.png"

test: $(VENV)/.stamp-test ## Run the tests; pytest options go in ARGS="-k gate"
	@$(PY) -m pytest -n auto $(ARGS)

fuzz: $(VENV)/.stamp-test ## Try 10,000 spoilt documents of every kind, and commands on them; other ones with SEED=1, 2, ...
	@$(PY) tests/fuzz.py --cases $(or $(CASES),10000) --seed $(or $(SEED),0) $(ARGS)

lint: $(VENV)/.stamp-lint ## Check style and types
	@$(PY) -m ruff check
	@$(PY) -m ruff format --check
	@$(PY) -m mypy src

format: $(VENV)/.stamp-lint ## Format the code and fix what ruff can fix
	@$(PY) -m ruff check --fix
	@$(PY) -m ruff format

docs: $(VENV)/.stamp-docs ## Build the documentation; a warning is an error
	@rm -rf docs/generated
	@$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "The documentation is in docs/_build/html/index.html"

bench: $(VENV)/.stamp-test ## Measure speed side by side, in one run
	@$(PY) -m benchmarks $(ARGS)

paper-quick: $(VENV)/.stamp-plot ## A small version of the paper's study, in minutes, into build/paper
	@$(PY) -m paper quick

paper: $(VENV)/.stamp-plot ## The paper's study in full, in hours; goes on where it was interrupted
	@$(PY) -m paper all $(ARGS)

clean: ## Remove .venv and everything built
	rm -rf $(VENV) build dist docs/_build docs/generated
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find benchmarks docs examples paper src studies tests -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# One stamp per extra, written last, so that a second run has nothing to do. `.whole` is absent
# while pip is at work: an environment without it was interrupted, and is made again from nothing.
STAMPS := $(patsubst %,$(VENV)/.stamp-%,core test docs lint plot)
AT_LEAST_311 := import sys; sys.exit(sys.version_info < (3, 11))
INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check

$(STAMPS): $(VENV)/.stamp-%: pyproject.toml constraints.txt $(PY)
	@if ! { [ -e $(VENV)/.whole ] && $(PY) -c 'import pip; $(AT_LEAST_311)'; } 2>/dev/null; then \
	  "$(PYTHON)" -c '$(AT_LEAST_311)' 2>/dev/null || { \
	    echo "otmoe needs Python 3.11 or newer and '$(PYTHON)' is not one: name one, as in make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }; \
	  echo "Making $(VENV) with $$("$(PYTHON)" --version)"; \
	  "$(PYTHON)" -m venv --clear $(VENV) || { \
	    echo "'$(PYTHON)' cannot make a virtual environment: install its venv module (python3-venv on Debian and Ubuntu)." >&2; exit 1; }; \
	fi
	@echo "Installing otmoe ($*) into $(VENV); the first time takes a minute or two"
	@rm -f $(VENV)/.whole
	@$(INSTALL) -c constraints.txt -e '.$(patsubst %,[%],$(filter-out core,$*))' || { \
	  echo "The pinned versions do not install here: taking the newest that do."; \
	  $(INSTALL) -e '.$(patsubst %,[%],$(filter-out core,$*))'; }
	@touch $(VENV)/.whole $(VENV)/.stamp-core $@

# No recipe: an interpreter that is missing counts as one that has changed.
$(PY): ;
