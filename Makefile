# Every target makes .venv if it is missing; nothing is needed but python3.11+ and pip.
PYTHON ?= python3
BIN := .venv/bin
# Modules are compiled when they are first imported: a tenth of what is installed, and half of the time.
PIP := $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check -c constraints.txt
# One thread a process: the tests and the demo run several processes, and small products lose time to many threads.
# Compiled files are kept, whatever the shell says: compiling them anew takes half of the time that collecting takes.
RUN := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=
# TYPES=1 checks the types of every call while the tests run; .ci/run does.
PYTEST := $(if $(TYPES),EPOCH0_TYPES=1) $(RUN) $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

.PHONY: help dev demo test test-slow lint docs bench dist house zoo zoo-truth clean

help:
	@echo "make demo       set up, then check three networks, regenerate a figure, write demo-out/report.html"
	@echo "make test       set up, then the test suite (test-slow: also training and big runs)"
	@echo "make lint       ruff and mypy --strict          make docs   the documentation, warnings are errors"
	@echo "make bench      speed, as ratios in CPU seconds  make clean  remove everything that was made"
	@echo "make dev        set up for test, lint and docs at once"
	@echo "make dist       wheel and sdist, checked           make house  lines, files and imports of the source"
	@echo "make zoo        the checkup of 120 models of five libraries (ONLY=resnet for some); installs several GB"

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "epoch0 needs Python 3.11 or newer; this is " + sys.version.split()[0] + " (make PYTHON=python3.12 ...)")'
	$(PYTHON) -m venv .venv

.venv/.core: .venv/bin/python pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

.venv/.test: .venv/.core
	$(PIP) -e '.[test]'
	@touch $@

.venv/.docs: .venv/.core
	$(PIP) -e '.[docs]'
	@touch $@

.venv/.lint: .venv/.core
	$(PIP) -e '.[lint]'
	@touch $@

# What test, lint and docs need, by one call of pip: two thirds of the time that one for each takes.
dev: .venv/bin/python
	$(PIP) -e '.[test,lint,docs]'
	@touch .venv/.core .venv/.test .venv/.lint .venv/.docs

demo: .venv/.core
	$(RUN) $(BIN)/epoch0 demo --out demo-out

test: .venv/.test
	began=$$(date +%s); $(PYTEST) -m "not slow" && echo $$(($$(date +%s) - began)) >.pytest_cache/seconds

test-slow: .venv/.test
	EPOCH0_EXAMPLES=thorough $(PYTEST)

lint: .venv/.lint
	$(BIN)/ruff check src tests benchmarks docs tools zoo
	$(BIN)/ruff format --check --quiet src tests benchmarks tools zoo
	$(BIN)/mypy

docs: .venv/.docs
	$(RUN) $(BIN)/sphinx-build -W --keep-going -j auto -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

dist: .venv/.core
	$(PIP) -e '.[dist]'
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/python -m twine check --strict dist/*

house: .venv/.core
	$(BIN)/python tools/house.py

bench: .venv/.core
	$(RUN) $(BIN)/python benchmarks/run.py

# The zoo has an environment of its own: torchvision needs another torch than the tests run with.
.venv-zoo/.made: zoo/requirements.txt zoo/constraints.txt pyproject.toml
	test -x .venv-zoo/bin/python || $(PYTHON) -m venv .venv-zoo
	.venv-zoo/bin/python -m pip install --quiet --disable-pip-version-check -c zoo/constraints.txt -r zoo/requirements.txt -e .
	@touch $@

zoo: .venv-zoo/.made
	$(if $(ONLY),,$(RUN) .venv-zoo/bin/python -m pytest -q -c /dev/null --rootdir zoo -p no:cacheprovider zoo)
	$(RUN) .venv-zoo/bin/python zoo/run.py "$(ONLY)" $(if $(WRITE),--write)

zoo-truth: .venv-zoo/.made
	$(RUN) .venv-zoo/bin/python zoo/truth.py "$(ONLY)"

clean:
	rm -rf .venv .venv-zoo demo-out docs/_build build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
