# Two commands matter: make demo, make test. Everything they need goes into .venv.
PYTHON ?= python3
SALT   ?= salt>=3006
VENV   ?= .venv
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed

.PHONY: demo test lint audit hostile unit lab lab-stop bench test-all clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test,lint]' '$(SALT)'
	touch $@

demo: $(STAMP)  ## two real masters, three real minions, the main job shown and checked
	$(BIN)/python -m lab.demo

test: lint  ## lint and the whole test suite
	$(BIN)/python -m pytest

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/bandit -q -c pyproject.toml -r src
	$(BIN)/bandit -q -c pyproject.toml -ll -r lab benchmarks hostile
	$(MAKE) --no-print-directory audit

# In a venv of its own: what it needs is not to stand beside what is tested.
AUDIT = .venv-audit

$(AUDIT)/.installed:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet 'pip-audit>=2.7'
	touch $@

audit: $(STAMP) $(AUDIT)/.installed  ## known vulnerabilities in what is installed; says so when it cannot ask
	$(BIN)/python -m lab.audit $(AUDIT)/bin/pip-audit

INPUTS ?= 100000
SEED   ?= 1

hostile: $(STAMP)  ## attack an engine through every door, print what became of it
	$(BIN)/python -m hostile --inputs $(INPUTS) --seed $(SEED)

unit: $(STAMP)  ## only what needs no Salt daemon
	$(BIN)/python -m pytest tests/unit

lab: $(STAMP)  ## leave masters and minions running, print how to talk to them
	$(BIN)/python -m lab up

lab-stop: $(STAMP)
	$(BIN)/python -m lab down

bench: $(STAMP)
	$(BIN)/python -m benchmarks

test-all: test  ## the core set on the older Salt releases too
	$(MAKE) VENV=.venv-3006 SALT='salt~=3006.0' core
	$(MAKE) VENV=.venv-3007 SALT='salt~=3007.0' core

.PHONY: core
core: $(STAMP)
	$(BIN)/python -m pytest tests/unit tests/functional tests/integration -m core

clean: lab-stop
	rm -rf .venv .venv-3006 .venv-3007 .venv-audit .lab .mypy_cache .ruff_cache
