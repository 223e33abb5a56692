# `make demo` runs the main job, `make test` proves it. Both install what they need into .venv and nowhere else,
# but for Debian's mosquitto and strace, which the tests drive and which are installed when they are missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
TORCH ?= torch==2.13.0
EXPORT := .venvs/export
CHECKED := edge_runtime devices export tests benchmarks

.PHONY: demo test test-export test-arm test-faults soak check lint types unit format tools bench bench-footprint bench-export bench-export-peers conformance clean

demo: $(VENV)/.device
	@$(BIN)/edge-runtime demo $(if $(BROKER),--broker $(BROKER))

test: $(VENV)/.test tools
	@$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest $(ARGS)

# What of the export toolchain needs torch, in an environment of its own.
test-export: $(EXPORT)/.ready
	$(EXPORT)/bin/python -m pytest $$(grep -rlE 'importorskip\("(torch|onnxscript|sklearn)"' tests/export) $(ARGS)

# The contract suites and the demo's bundle on emulated Arm boards, 64 and 32 bits: docs/devices.md. No board, no kernel
# module; the first run makes build/arm out of Debian packages and wheels (0.6 GB).
test-arm: $(VENV)/.test
	@sh scripts/tools qemu-aarch64-static=qemu-user-static mmdebstrap
	@$(BIN)/python tests/arm/roots.py
	$(BIN)/python -m pytest tests/arm/emulated.py $(ARGS)

# Kills, power cuts, full and damaged disks, hostile input: docs/reliability.md. ARGS="--seed 7 -k power"
test-faults: $(VENV)/.test tools
	$(BIN)/python -m pytest tests/faults $(ARGS)

# The same for hours, with a new seed each time.
soak: $(VENV)/.test tools
	$(BIN)/python -m pytest tests/faults --long $(ARGS)

check: lint types

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: $(VENV)/.test
	$(BIN)/mypy

unit: $(VENV)/.test
	$(BIN)/python -m pytest tests/edge_runtime tests/contracts $(ARGS)

format: $(VENV)/.test
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(VENV)/.test tools
	$(BIN)/python -m benchmarks

# Size, start, memory and idle CPU of what a device gets, in fresh environments: docs/devices.md
bench-footprint: $(VENV)/.test
	$(BIN)/python -m benchmarks install $(ARGS)

# The recipes under examples/ from recordings to bundles: make bench-export DATA="har=FOLDER ecg=FOLDER ..."
bench-export: $(EXPORT)/.ready
	$(EXPORT)/bin/python -m benchmarks.tasks $(addprefix --data ,$(DATA)) $(ARGS)

# Our quantiser, writer and search beside the defaults of others, each in an environment of its own (3 GB).
bench-export-peers: $(VENV)/.test
	$(BIN)/python -m benchmarks.export_peers $(ARGS)

# Our cloud client over Triton, MLServer and KServe, our server under tritonclient; each in an environment of its own (1.3 GB).
conformance: $(VENV)/.test
	$(BIN)/python tests/conformance/environments.py
	$(BIN)/python -m pytest tests/conformance $(ARGS)

tools:
	@sh scripts/tools mosquitto strace

clean:
	rm -rf $(VENV) .venvs build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis

# -- the environment -------------------------------------------------------------------------------------------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "edge-runtime needs Python 3.11 or newer; name one with: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade "pip>=25.1"

# What a device gets, with both engines.
$(VENV)/.device: pyproject.toml | $(BIN)/python
	@echo "installing edge-runtime (once)"
	@$(PIP) install --editable ".[onnx,tflite]"
	@touch $@

# What the tests need besides.
$(VENV)/.test: pyproject.toml | $(BIN)/python
	@echo "installing what the tests need (once)"
	@$(PIP) install --editable ".[onnx,tflite,codecs,parquet,grpc,serial]" --group test
	@touch $@ $(VENV)/.device

# What the export toolchain needs. torch goes first and exactly: left to the resolver, it may come a second time.
$(EXPORT)/.ready: pyproject.toml
	@echo "installing the export toolchain (once)"
	@$(PYTHON) -m venv $(EXPORT)
	@$(EXPORT)/bin/python -m pip --disable-pip-version-check --quiet install --upgrade "pip>=25.1"
	@$(EXPORT)/bin/python -m pip --disable-pip-version-check --quiet install $(TORCH)
	@$(EXPORT)/bin/python -m pip --disable-pip-version-check --quiet install --editable ".[onnx,tflite,export]" --group test
	@touch $@
