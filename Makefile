# Set-up happens once, into .venv, from requirements/dev.txt. After that no target but `lock` needs a network.
PYTHON ?= python3
VENV := .venv
STACKS := .venv-stacks
MCP := .venv-mcp
TORCH := 2.13.0
# One distribution each.
FOLDERS := . record reference conformance
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check
READY := $(VENV)/.installed
EXAMPLES := examples/clusters examples/plans examples/policies
BROKEN := examples/broken/cluster.yaml
LOCK := CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --strip-extras \
	--unsafe-package torch --no-emit-index-url --no-emit-trusted-host --no-emit-find-links $(UPGRADE)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-slow test-slow-short test-long mutants-short lint format generate check-generated promtool \
	stacks-test mcp-test bench bench-streams evidence gpu-setup gpu-check bench-short conformance \
	conformance-short scenarios-short minimal-short mutants-few site site-test dist lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## create .venv from the lock file

$(VENV)/.locked: requirements/dev.txt
	@echo "set-up: installing the locked tools into $(VENV) (a few minutes, once)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) install --no-deps torch==$(TORCH)
	@$(PIP) install --require-hashes --requirement requirements/dev.txt
	@touch $@

$(READY): $(VENV)/.locked $(FOLDERS:%=%/pyproject.toml)
	@$(PIP) install --no-deps --no-build-isolation $(FOLDERS:%=--editable %)
	@touch $@
	@echo "set-up: done"

demo: $(READY) ## validate the examples, then a broken file
	@echo "== real clusters, plans and policies =="
	@$(BIN)/trainspec-validate $(EXAMPLES)
	@echo
	@echo "== one broken cluster profile =="
	@$(BIN)/trainspec-validate $(BROKEN); status=$$?; echo; \
	if [ $$status -ne 1 ]; then echo "demo: expected exit status 1, got $$status"; exit 1; fi
	@echo "== the stream of a run with one wrong unit =="
	@$(BIN)/trainspec-validate --select TEL examples/broken/job.jsonl; status=$$?; echo; \
	if [ $$status -ne 1 ]; then echo "demo: expected exit status 1, got $$status"; exit 1; fi
	@echo "== the best plan for a published machine =="
	@$(BIN)/trainspec plan examples/clusters/meta-llama3-24k.yaml --model llama3-405b --num-ranks 16384 \
		--global-sequences 2048 --top 3
	@echo
	@echo "You saw public examples pass (status 0), a broken file and a broken stream fail (status 1, as they must),"
	@echo "and a plan with its reasons."

# Tests start hundreds of processes: what one has compiled is there for the next, whatever the caller's shell says.
test test-slow test-slow-short test-long: export PYTHONDONTWRITEBYTECODE :=

test: $(READY) ## linters, generated files, three mutants and the quick tests (minutes)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint check-generated mutants-short
	@echo "== pytest =="
	@$(BIN)/python -m pytest -n 2 --dist worksteal

mutants-short: $(READY)
	@echo "== mutants, three =="
	@OMP_NUM_THREADS=1 $(BIN)/python conformance/mutants/score.py $(FEW_MUTANTS)

# Many of them wait for processes that they have started: two more workers than cores use that time.
test-slow: $(READY) ## the tests that take seconds each; `.ci/run` runs a third of the cases of each
	@echo "== pytest, slow =="
	@$(BIN)/python -m pytest -n 4 --dist worksteal -m 'slow and not long'

test-slow-short: $(READY)
	@echo "== pytest, slow, a third of the cases of each =="
	@$(BIN)/python -m pytest -n 4 --dist worksteal -m 'slow and not long' --few

test-long: $(READY) ## the tests that take tens of seconds each, and properties with all of their examples
	@echo "== pytest, long =="
	@$(BIN)/python -m pytest -m 'long or hypothesis' --hypothesis-profile=long

lint: $(READY) ## ruff and mypy --strict
	@echo "== ruff, mypy =="
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "run: make format"; exit 1; }
	@$(BIN)/mypy --strict

format: $(READY) ## rewrite the sources in the house format
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format

generate: $(READY) ## rewrite the generated files (schemas, index, tables, pages)
	@$(BIN)/python tools/generate.py

check-generated: $(READY) ## fail when a generated file is out of date
	@echo "== generated files =="
	@$(BIN)/python tools/generate.py --check

promtool: ## check the rules of Prometheus and run their cases (needs promtool on the path)
	@echo "== promtool =="
	@command -v promtool > /dev/null || { echo "promtool is not installed; it comes with Prometheus"; exit 1; }
	@promtool check rules integrations/prometheus/*-rules.yaml
	@promtool test rules integrations/prometheus/tests/*.yaml

STACKS_PIP := $(STACKS)/bin/python -m pip --quiet --quiet --disable-pip-version-check

$(STACKS)/.locked: requirements/stacks.txt
	@echo "set-up: installing the frameworks into $(STACKS) (4.6 GB, once)"
	@$(PYTHON) -m venv --clear $(STACKS)
	@$(STACKS_PIP) install --no-deps torch==$(TORCH)
	@$(STACKS_PIP) install --require-hashes --requirement requirements/stacks.txt
	@touch $@

$(STACKS)/.installed: $(STACKS)/.locked $(FOLDERS:%=%/pyproject.toml)
	@$(STACKS_PIP) install --no-deps --no-build-isolation $(FOLDERS:%=--editable %)
	@touch $@

stacks-test: $(STACKS)/.installed ## run the tests of the adapters with all frameworks (long; not part of `make test`)
	@echo "== adapters of frameworks =="
	@TRAINSPEC_REQUIRE_STACKS=1 $(STACKS)/bin/python -m pytest tests/adapters

$(MCP)/.installed: requirements/mcp.txt
	@echo "set-up: installing the SDK of the Model Context Protocol into $(MCP) (a minute, once)"
	@$(PYTHON) -m venv --clear $(MCP)
	@$(MCP)/bin/python -m pip --quiet --quiet --disable-pip-version-check install --require-hashes --requirement $<
	@touch $@

mcp-test: $(MCP)/.installed ## run the tests of `trainspec mcp` with the SDK (not part of `make test`)
	@echo "== trainspec mcp =="
	@PYTHONPATH=$(CURDIR)/src $(MCP)/bin/python -m pytest -q --confcutdir=tests/agents tests/agents

SCORES := collectives memory step_time reliability energy

bench: $(READY) ## measure, and score the models against published figures
	@$(BIN)/python benchmarks/run.py
	@for score in $(SCORES); do echo; $(BIN)/python benchmarks/score_$$score.py || exit 1; done
	@echo; $(BIN)/python benchmarks/plans.py
	@echo; $(BIN)/python benchmarks/recorder.py
	@echo; $(BIN)/python benchmarks/sealing.py
	@echo; $(BIN)/python benchmarks/resilience.py
	@echo; $(BIN)/python benchmarks/verify_speed.py

bench-streams: $(READY) ## time the checks on streams, and score what notices damage (minutes)
	@$(BIN)/python benchmarks/stream_speed.py
	@echo; $(BIN)/python benchmarks/score_streams.py

GPU := .venv-gpu
GPU_PIP := $(GPU)/bin/python -m pip --quiet --quiet --disable-pip-version-check
EVIDENCE := benchmarks/evidence/cuda.json

gpu-setup: $(GPU)/.installed ## create .venv-gpu with the CUDA builds that $(PYTHON) has, else with those of the lock file

# An image often brings builds of PyTorch and JAX for its own driver: they are used where both see a device.
$(GPU)/.installed: requirements/conformance.txt requirements/build.txt requirements/gpu.txt $(FOLDERS:%=%/pyproject.toml)
	@$(PYTHON) -m venv --clear $(GPU)
	@if $(PYTHON) -c 'import jax, torch; assert torch.cuda.is_available(); jax.devices("cuda")' 2> /dev/null; then \
		echo "set-up: PyTorch and JAX are those of $(PYTHON)"; \
		$(PYTHON) -c 'import site; print(*site.getsitepackages(), sep="\n")' \
			> $$($(GPU)/bin/python -c 'import site; print(site.getsitepackages()[0])')/image.pth; \
	else \
		echo "set-up: installing PyTorch and JAX for CUDA into $(GPU) (several GB, once)"; \
		$(GPU_PIP) install --require-hashes --requirement requirements/gpu.txt; \
	fi
	@$(GPU_PIP) install --require-hashes --requirement requirements/conformance.txt
	@$(GPU_PIP) install --require-hashes --requirement requirements/build.txt
	@$(GPU_PIP) install --no-deps --no-build-isolation $(FOLDERS:%=--editable %)
	@touch $@
	@echo "set-up: done"

gpu-check: $(GPU)/.installed ## check devices, NCCL, and with each framework a step, a save and a restore (a minute)
	@$(GPU)/bin/python benchmarks/gpu_check.py

evidence: $(GPU)/.installed ## measure the PyTorch and JAX trainers on an accelerator, and write the file of evidence (15 minutes)
	@$(GPU)/bin/python benchmarks/evidence.py --device cuda --out $(EVIDENCE)

bench-short: $(READY) ## the same in short, for CI
	@echo "== benchmarks, short =="
	@$(BIN)/python benchmarks/run.py --short
	@$(BIN)/python benchmarks/plans.py --short
	@$(BIN)/python benchmarks/stream_speed.py --short
	@$(BIN)/python benchmarks/verify_speed.py --short
	@$(BIN)/python benchmarks/resilience.py --short --backend plain --plan state-space

CONFORM := OMP_NUM_THREADS=1 $(BIN)/trainspec-conformance
REPORTS := build/conformance
QUICK_SCENARIOS := null-run kill-rank kill-coordinator truncated-shard bad-pointer resume-equivalence \
	declared-order updates-as-declared changed-seed changed-values zero-learning-rate one-batch
# `make test` has those whose lies the stack of one page in tests/conformance does not tell; the short form has the rest.
FEW_MUTANTS := follows-pointer shuffles-anyway clips-by-default
QUICK_MUTANTS := false-alarm trusts-newest verifies-sizes-only forgets-optimizer starts-from-nothing forgets-position \
	repeats-a-batch parrot digest

conformance: $(READY) ## test the reference trainers, and each mutant by every scenario that can tell it from a stack without its lie (hours; SHARE=2/8 scores a part)
	@rm -rf $(REPORTS)
	@for stack in plain torch jax; do echo "== reference-$$stack, core =="; \
		$(CONFORM) run conformance/stacks/reference-$$stack.yaml --profile core --report $(REPORTS)/$$stack || exit 1; done
	@echo "== mutants, all scenarios =="
	@OMP_NUM_THREADS=1 $(BIN)/python conformance/mutants/score.py --all --out build/mutants $(if $(SHARE),--share $(SHARE))

# Three targets, so that `make --jobs 2` runs one beside another: their jobs wait more than they compute.
conformance-short: scenarios-short minimal-short mutants-few ## the same in short: quick scenarios, one trial each, a killed rank of the minimal stacks, nine mutants

scenarios-short: $(READY)
	@echo "== conformance, short =="
	@rm -rf $(REPORTS)/short
	@$(CONFORM) run conformance/stacks/reference-plain.yaml --trials 1 --report $(REPORTS)/short \
		$(foreach name,$(QUICK_SCENARIOS),--scenario $(name))

minimal-short: $(READY)
	@rm -rf $(REPORTS)/minimal-torch $(REPORTS)/minimal-jax
	@for stack in torch jax; do echo "== minimal-$$stack, a killed rank =="; \
		$(CONFORM) run reference/minimal/minimal-$$stack.yaml --trials 1 --scenario kill-rank \
		--report $(REPORTS)/minimal-$$stack || exit 1; done

mutants-few: $(READY)
	@echo "== mutants, short =="
	@OMP_NUM_THREADS=1 $(BIN)/python conformance/mutants/score.py $(QUICK_MUTANTS)

DOCS := .venv-docs
DOCS_READY := $(DOCS)/.installed

$(DOCS_READY): requirements/docs.txt
	@echo "set-up: installing what builds the site into $(DOCS) (a minute, once)"
	@$(PYTHON) -m venv --clear $(DOCS)
	@$(DOCS)/bin/python -m pip --quiet --quiet --disable-pip-version-check install --require-hashes --requirement $<
	@touch $@

site: $(DOCS_READY) ## build the site, with all its versions, into site/
	@PYTHONPATH=src:tools $(DOCS)/bin/python -m trainspec_site

site-test: site ## use the site in a browser, and build it with Zensical (needs Chromium)
	@echo "== site =="
	@TRAINSPEC_SITE_BUILT=1 PYTHONPATH=src $(DOCS)/bin/python -m pytest -q --confcutdir=tests/site tests/site

DIST := .venv-dist
DIST_READY := $(DIST)/.installed

$(DIST_READY): requirements/dist.txt
	@echo "set-up: installing what checks a distribution into $(DIST) (a minute, once)"
	@$(PYTHON) -m venv --clear $(DIST)
	@$(DIST)/bin/python -m pip --quiet --quiet --disable-pip-version-check install --require-hashes --requirement $<
	@touch $@

dist: $(READY) $(DIST_READY) ## build the four wheels and source archives into dist/, twice, and check them
	@rm -rf dist
	@$(BIN)/python tools/distribution.py dist
	@$(DIST)/bin/python -m twine check --strict dist/*

lock: $(VENV)/.locked ## pin requirements/*.txt again from the files pyproject.toml (UPGRADE=--upgrade for newer versions)
	@$(LOCK) --output-file requirements/run.txt pyproject.toml
	@$(LOCK) --output-file requirements/dev.txt --extra dev --all-build-deps \
		--constraint requirements/run.txt pyproject.toml
	@$(BIN)/python tools/own_distributions.py trainspec-conformance > $(VENV)/conformance.in
	@$(LOCK) --output-file requirements/conformance.txt --constraint requirements/dev.txt - < $(VENV)/conformance.in
	@$(LOCK) --output-file requirements/stacks.txt --extra stacks --all-build-deps \
		--constraint requirements/dev.txt pyproject.toml
	@printf '%s\n' pytest > $(VENV)/mcp.in
	@$(LOCK) --output-file requirements/mcp.txt --extra mcp --constraint requirements/dev.txt pyproject.toml $(VENV)/mcp.in
	@$(LOCK) --output-file requirements/build.txt --only-build-deps --all-build-deps \
		--constraint requirements/dev.txt pyproject.toml
	@$(LOCK) --output-file requirements/docs.txt --extra docs --constraint requirements/run.txt pyproject.toml
	@$(LOCK) --output-file requirements/dist.txt --extra dist --constraint requirements/run.txt pyproject.toml
	@printf '%s\n' torch==$(TORCH) 'jax[cuda13]' optax orbax-checkpoint nvidia-ml-py > $(VENV)/gpu.in
	@PIP_FIND_LINKS= $(filter-out --unsafe-package torch,$(LOCK)) --allow-unsafe --output-file requirements/gpu.txt \
		- < $(VENV)/gpu.in

clean: ## remove everything that make has built, .venv included
	@rm -rf $(VENV) $(STACKS) $(MCP) $(GPU) $(DOCS) $(DIST) build dist site .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
