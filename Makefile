# Two commands matter: make demo, make test. Everything they need goes into .venv.
PYTHON ?= python3
SALT   ?= salt>=3006
VENV   ?= .venv
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed

# Random histories of disasters: how many, and the seed of the first.
HISTORIES ?= 20
SEED      ?= 1
# More Salts, for groups of mixed releases: those that test-all has installed.
SALTS      = $(wildcard .venv-3006/bin/python .venv-3007/bin/python)

.PHONY: demo test lint unit lab lab-stop bench simulate torture torture-mutants test-all clean

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

unit: $(STAMP)  ## only what needs no Salt daemon
	$(BIN)/python -m pytest tests/unit

lab: $(STAMP)  ## leave masters and minions running, print how to talk to them
	$(BIN)/python -m lab up

lab-stop: $(STAMP)
	$(BIN)/python -m lab down

bench: $(STAMP)  ## needs rsync, lsyncd and unison beside; KEYS="1000 10000" for other sizes
	$(BIN)/python -m benchmarks $(if $(KEYS),--keys $(KEYS))

simulate: $(STAMP)  ## many masters in six regions; KEYS= MASTERS= SEED= OUT=path without ending
	$(BIN)/python -m simulation --keys $(or $(KEYS),1000000) --masters $(or $(MASTERS),50) \
		--seed $(or $(SEED),1) --json $(or $(OUT),docs/simulation).json \
		--svg $(or $(OUT),docs/simulation).svg

torture: $(STAMP)  ## random histories of disasters on real engines, checked from outside
	$(BIN)/python -m torture --histories $(HISTORIES) --seed $(SEED) \
		$(addprefix --python ,$(BIN)/python $(SALTS))

torture-mutants: $(STAMP)  ## the same with each guard taken out of the product: all must fail
	$(BIN)/python -m torture --mutants --histories 80 --seed $(SEED)

test-all: test  ## the core set on the older Salt releases too
	$(MAKE) VENV=.venv-3006 SALT='salt~=3006.0' core
	$(MAKE) VENV=.venv-3007 SALT='salt~=3007.0' core

.PHONY: core
core: $(STAMP)
	$(BIN)/python -m pytest tests/unit tests/functional tests/integration -m core

clean: lab-stop
	rm -rf .venv .venv-3006 .venv-3007 .lab .mypy_cache .ruff_cache
