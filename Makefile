# make demo   run the main scenario, and say where its report is and how to open it in the browser
# make test   run all tests (minutes)
# make test-fast   run all but the slow tests (under a minute; CONTRIBUTING.md)
# make lint   style and types
# make docs   build the pages of docs/ as a site
# make language   bring the catalogues of other languages up to date (CONTRIBUTING.md)
# make fast   compile the hot modules in place, some three times as fast (minutes; needs a C compiler)
# make bench  time whole runs (minutes; see benchmarks/README.md)
# make clean  take the environment, compiled modules and the caches away
#
# Each target makes its own .venv with the first Python >= 3.11 that it finds; `make PYTHON=/path/to/python3` chooses another.
.POSIX:
.PHONY: demo test test-fast lint docs language fast bench clean

VENV = .venv
BIN = $(VENV)/bin
PYTHON = python3 python3.14 python3.13 python3.12 python3.11
BENCH =
SCRIPTS = sim/serve/static sim/report/page/page.js
# Python compiles what it imports; compiling all modules of all packages would take 25 s more of a minute, and 110 MB.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Own modules are compiled: half a second a start where Python may not write .pyc files.
COMPILE = $(BIN)/python -m compileall -q sim gpufleet

SCENARIO = scenarios/4x4090-vs-2xa100.yaml
RESULT = outputs/4x4090-vs-2xa100

demo: $(VENV)/.stamp-run
	$(BIN)/gpufleet run $(SCENARIO) --out $(RESULT)
	@echo "The report: $(RESULT)/report.html    the picture: $(RESULT)/curves.png    the table: $(RESULT)/summary.csv"
	@echo "Prices and limits to move, in the browser: $(BIN)/gpufleet serve $(RESULT)"

test: $(VENV)/.stamp-dev
	$(BIN)/python -m pytest -q -n auto --dist worksteal

test-fast: $(VENV)/.stamp-dev
	$(BIN)/python -m pytest -q -n auto --dist worksteal -m 'not slow'

lint: $(VENV)/.stamp-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	DENO_NO_UPDATE_CHECK=1 $(BIN)/deno check --quiet $(SCRIPTS)
	$(BIN)/deno lint --quiet $(SCRIPTS)

docs: $(VENV)/.stamp-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "The pages: outputs/site/index.html"

language: $(VENV)/.stamp-dev
	$(BIN)/python tests/language/update.py

# Sources of compiled modules that change afterwards are not looked at before the next `make fast`; tests always run the sources.
fast: $(VENV)/.stamp-dev
	$(BIN)/python hatch_build.py

bench: $(VENV)/.stamp-run
	$(BIN)/python benchmarks/speed.py $(BENCH)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis gpufleet__mypyc*.so
	find sim -name '*.so' -exec rm -f {} +

# A stamp is older than pyproject.toml after a change of dependencies: then, and only then, pip runs again.
$(VENV)/.stamp-run: $(VENV)/.stamp-venv pyproject.toml
	$(INSTALL) --editable '.[serve]'
	$(COMPILE)
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-venv pyproject.toml
	$(INSTALL) --editable '.[dev]'
	$(COMPILE)
	@touch $@ $(VENV)/.stamp-run

$(VENV)/.stamp-venv:
	@new=; chosen=; \
	for candidate in $(PYTHON); do \
	    "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue; \
	    new=$${new:-$$candidate}; \
	    "$$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1 || continue; \
	    chosen=$$candidate; break; \
	done; \
	if [ -z "$$new" ]; then \
	    echo "gpufleet needs Python 3.11 or newer: install it (Debian, Ubuntu: apt install python3 python3-venv) or name it with make PYTHON=/path/to/python3" >&2; exit 1; \
	elif [ -z "$$chosen" ]; then \
	    echo "$$new cannot make virtual environments: install its venv package (Debian, Ubuntu: apt install python3-venv) and run make again" >&2; exit 1; \
	fi; \
	$(BIN)/python -m pip --version >/dev/null 2>&1 || "$$chosen" -m venv $(VENV)
	@touch $@
