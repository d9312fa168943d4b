# make demo    photos to .beton to training batches: about 2 minutes on 2 cores
# make test    every promise, with a few combinations of each: 4 to 9 minutes on 2 cores; SEED=1 for others
# make test-all  every test: examples, pages, benchmarks, sanitizers, all combinations: about 20 minutes on 2 cores
# make check   style, types, floors, docstrings, rules of the repository, and the site
# make docs    the documentation's site, into build/docs/index.html: about 2 minutes on 2 cores
# make fuzz    look for faults for SECONDS=600; SEED=1, FUZZ_OUT=build/fuzz.json
# make gpu-rehearsal  the GPU tests with the real CuPy and torch over a simulated GPU; downloads 3 GB at the first time
# make dist    wheel and sdist into dist/, checked
# make bench   gpubeton beside other loaders; writes benchmarks/results/ and the table of benchmarks/README.md
#
# Each target makes the virtual environment it needs, once: a few minutes more, for downloads. Variables:
#   PYTHON=python3.12    another interpreter (3.10 to 3.14)
#   TORCH_INDEX=URL      where torch comes from; by default PyTorch's CPU builds on a machine without an NVIDIA driver

PYTHON ?= python3
VENV ?= .venv
RUN := $(VENV)/bin
PACKAGES := gpubeton tests benchmarks docs examples tools conftest.py
MADE_FROM := pyproject.toml constraints.txt tools/environment.sh
MADE_FOR := $(shell $(PYTHON) -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null || echo missing)
SECONDS ?= 600
SEED ?= 1
FUZZ_OUT ?= build/fuzz.json
PYTEST_ARGUMENTS ?= --numprocesses=auto --maxprocesses=8

.PHONY: help demo test test-rest test-all check lint docs fuzz gpu-rehearsal bench dist constraints clean

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

$(VENV)/.demo-$(MADE_FOR): $(MADE_FROM)
	@tools/environment.sh '$(PYTHON)' '$(VENV)' demo
	@touch $@

$(VENV)/.dev-$(MADE_FOR): $(MADE_FROM)
	@tools/environment.sh '$(PYTHON)' '$(VENV)' dev
	@touch $@ $(VENV)/.demo-$(MADE_FOR)

demo: $(VENV)/.demo-$(MADE_FOR)
	@echo 'Making photos, a .beton file and batches: about 2 minutes on 2 cores.'
	@$(RUN)/python -m benchmarks.harness.demo

# Machine code is compiled once: the processes that run tests at the same time would each compile it.
test: $(VENV)/.dev-$(MADE_FOR)
	@echo 'Compiling, then running every promise: 4 to 9 minutes on 2 cores.'
	@$(RUN)/gpubeton warm-up
	$(RUN)/python -m pytest $(PYTEST_ARGUMENTS) --part quick --thinning $(SEED)

# What `make test` leaves out.
test-rest: $(VENV)/.dev-$(MADE_FOR)
	@echo 'Running all other tests: 10 to 17 minutes on 2 cores.'
	@$(RUN)/gpubeton warm-up
	$(RUN)/python -m pytest $(PYTEST_ARGUMENTS) --part rest --thinning $(SEED)

test-all: $(VENV)/.dev-$(MADE_FOR)
	@echo 'Running every test: about 20 minutes on 2 cores.'
	@$(RUN)/gpubeton warm-up
	$(RUN)/python -m pytest $(PYTEST_ARGUMENTS)

# `make -j2 check` takes half the time: the site and the other checks use one core each.
check: lint docs

lint: $(VENV)/.dev-$(MADE_FOR)
	$(RUN)/ruff check $(PACKAGES)
	$(RUN)/ruff format --check $(PACKAGES)
	$(RUN)/ruff format --check --line-length 88 --config 'include = ["*.md"]' --config 'format.exclude = []' docs
	$(RUN)/mypy
	$(RUN)/lint-imports --no-cache
	$(RUN)/numpydoc lint $$(find gpubeton -name '*.py')
	$(RUN)/python -m pytest --quiet tests/repository

# Warnings are errors; nothing is fetched.
docs: $(VENV)/.dev-$(MADE_FOR)
	@echo 'Drawing the gallery, then building the site: about 2 minutes on 2 cores. Only warnings are printed.'
	$(RUN)/python -m sphinx --quiet --fail-on-warning --keep-going --nitpicky -d build/doctrees docs build/docs

fuzz: $(VENV)/.dev-$(MADE_FOR)
	$(RUN)/python -m tests.fuzz --seconds $(SECONDS) --seed $(SEED) --out $(FUZZ_OUT)

gpu-rehearsal: $(VENV)/.dev-$(MADE_FOR)
	$(RUN)/python -m tests.rehearsal

# Built without a network, from the packages of the environment.
dist: $(VENV)/.dev-$(MADE_FOR)
	rm -rf dist
	$(RUN)/python -m build --no-isolation
	$(RUN)/twine check --strict dist/*
	$(RUN)/check-wheel-contents dist/*.whl

bench: $(VENV)/.dev-$(MADE_FOR)
	$(RUN)/python -m benchmarks.compare $(BENCH_ARGUMENTS)

# Pin the newest versions that fit pyproject.toml (needs `pip install uv`).
constraints:
	tools/pin.sh > constraints.new && mv constraints.new constraints.txt

clean:
	rm -rf $(VENV) .demo gpubeton/_cpu/__pycache__ build dist docs/api docs/notebooks docs/pictures .pytest_cache .mypy_cache .ruff_cache
