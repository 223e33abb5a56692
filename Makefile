# `make demo` runs the main job, `make test` proves it. Both install what they need into .venv and nowhere else,
# but for Debian's mosquitto, strace and mmdebstrap, which the tests drive and which are installed when they are missing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0
EXPORT := .venvs/export
RETIRED := .venvs/tflite-runtime
PAGE := .venvs/page
UPKEEP := .venvs/upkeep
DOCS := .venvs/docs
RAY := .venvs/ray
# What is installed is what locks/ names, checked by hash. LOCKED=no takes what the package index has instead, within the
# ranges of pyproject.toml.
LOCKED ?= yes
# Test files run in two processes at a time, the long ones first. ARGS="-n 0" runs them one by one. A third one on two
# cores saved 8 in 100 of the time of test-all, none of test-faults, and takes half as much memory again.
TWO_AT_A_TIME := -n 2 --dist loadfile --no-loadscope-reorder

# Some machines set it. Each of the test processes would then compile every module anew: ten seconds of CPU a run.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo environments house baselines test test-all test-export tflite-runtime test-arm test-faults test-page test-ray soak check lint oldest types unit pythons format tools bench bench-footprint bench-export bench-export-peers bench-peers bench-accuracy bench-models conformance wheels deb lock audit docs clean

demo: $(VENV)/.device
	@$(BIN)/edge-runtime demo $(if $(BROKER),--broker $(BROKER))

# Style, types, and the tests that take under 0.7 s of CPU each: 98 in 100 of them.
test: $(VENV)/.test tools
	@echo "step 1 of 2: style, types and the shape of the house: one to two minutes"
	@$(MAKE) --no-print-directory --jobs 2 --output-sync check
	@echo "step 2 of 2: 12,000 tests that take under 0.7 s of CPU each, on two processors: four to eight minutes"
	@$(BIN)/python -m pytest $(TWO_AT_A_TIME) -m "not slow" --suite test $(ARGS)

# With the slow ones. A test over 3 s of CPU that is not marked slow is named at the end.
test-all: $(VENV)/.test tools check oldest
	$(BIN)/python -m pytest $(TWO_AT_A_TIME) --cpu-limit 3 --suite test-all $(ARGS)

# What all tests take, side by side: make --jobs 2 tools environments
environments: $(VENV)/.test $(EXPORT)/.ready $(RETIRED)/.ready $(PAGE)/.ready $(DOCS)/.ready $(RAY)/.ready

# What of the export toolchain needs torch, in an environment of its own.
test-export: $(EXPORT)/.ready
	$(EXPORT)/bin/python -m pytest $(TWO_AT_A_TIME) --suite test-export $$(grep -rlE 'importorskip\("(torch|onnxscript|sklearn|scipy)' tests/edge_export tests/benchmarks) $(ARGS)

# The package of old boards, for numpy 1 and Python 3.11 alone; the tests of the TensorFlow Lite writer take it where it is.
tflite-runtime: $(RETIRED)/.ready

# The contract suites and the demo's bundle on emulated Arm boards, 64 and 32 bits: docs/devices.md. No board, no kernel
# module; the first run makes build/arm out of Debian packages and wheels (0.6 GB).
test-arm: $(VENV)/.test
	@sh scripts/tools qemu-aarch64-static=qemu-user-static mmdebstrap
	@$(BIN)/python tests/arm/roots.py
	$(BIN)/python -m pytest --suite test-arm tests/arm/emulated.py $(ARGS)

# Kills, power cuts, full and damaged disks, hostile input: docs/reliability.md. ARGS="--seed 7 -k power"
test-faults: $(VENV)/.test tools
	$(BIN)/python -m pytest $(TWO_AT_A_TIME) --suite test-faults tests/faults $(ARGS)

# The page and the site of the docs in a real browser: clicks, keys, screen reader rules. ARGS="--page-pictures docs" writes the pictures of docs/page.md.
test-page: $(VENV)/.test $(PAGE)/.ready $(DOCS)/.ready
	@sh scripts/tools chromium
	$(BIN)/python -m pytest -n 0 --suite test-page tests/browser $(ARGS)

# Replays on a local cluster of Ray, in an environment of its own (0.5 GB).
test-ray: $(RAY)/.ready
	$(RAY)/bin/python -m pytest -n 0 --suite test-ray tests/integration/test_replay_on_ray.py $(ARGS)

# What a push tries a part of: all cases of the tests marked long (an hour), then kills and power cuts for hours, with a new
# seed each time.
soak: $(VENV)/.test tools
	$(BIN)/python -m pytest $(TWO_AT_A_TIME) -m long --long $(ARGS)
	$(BIN)/python -m pytest tests/faults --long $(ARGS)

check: lint types house

# Nothing newer than the oldest Python that we say. Of what is not shipped, test-all asks: that takes as long again.
SHIPPED := edge_runtime devices/edge_devices export/edge_export
OLDEST := $(BIN)/vermin --target=3.10- --violations --quiet --no-tips --eval-annotations

oldest: $(VENV)/.test
	$(OLDEST) tests benchmarks scripts

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(OLDEST) $(SHIPPED)

types: $(VENV)/.test
	$(BIN)/mypy $(TYPED)

# Which room imports which, what nothing leads to or uses, what is too complex or written twice, which words are used, what pictures show; then
# the lines of each room, and their ceiling.
house: $(VENV)/.test
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python -m scripts.reachability
	$(BIN)/python -m scripts.unused
	$(BIN)/python -m scripts.complexity
	$(BIN)/python -m scripts.habits
	$(BIN)/python -m scripts.duplicates
	$(BIN)/python -m scripts.commit_subjects
	$(BIN)/python -m pytest -q -p no:xdist tests/test_words.py tests/test_pictures.py
	$(BIN)/python -m scripts.seconds
	@$(BIN)/python -m scripts.lines

# Takes what is mended out of the lists of known faults; refuses to make one longer.
baselines: $(VENV)/.test
	@for name in reachability unused complexity habits duplicates lines; do $(BIN)/python -m scripts.$$name --write; done

unit: $(VENV)/.test
	$(BIN)/python -m pytest $(TWO_AT_A_TIME) -m "not slow" tests/edge_runtime tests/contracts $(ARGS)

# The same, and the types of what a device runs, on other Pythons, each in an environment of its own: docs/devices.md.
# PYTHONS=/opt/python3.14/bin/python3.14
PYTHONS ?= python3.10 python3.12 python3.13
pythons: tools
	@for python in $(PYTHONS); do \
		$$python -c "" 2>/dev/null || { echo "skipped: $$python is not installed"; continue; }; \
		$(MAKE) --no-print-directory unit types PYTHON=$$python VENV=.venvs/$${python##*/} \
			TYPED="edge_runtime devices/edge_devices" || exit; \
	done

format: $(VENV)/.test
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: $(VENV)/.test tools
	$(BIN)/python -m benchmarks

# Size, start, memory and idle CPU of what a device gets, in fresh environments: docs/devices.md
bench-footprint: $(VENV)/.test
	$(BIN)/python -m benchmarks install $(ARGS)

# Published models from their cards (EDGE_SHARED=FOLDER), into docs/models.md
bench-models: $(VENV)/.test
	$(BIN)/python -m benchmarks models --write docs/models.md

# The recipes under examples/ from recordings to bundles: make bench-export DATA="har=FOLDER ecg=FOLDER ..."
bench-export: $(EXPORT)/.ready
	$(EXPORT)/bin/python -m benchmarks.tasks $(addprefix --data ,$(DATA)) $(ARGS)

# Accuracy on groups that nothing was fitted to: make bench-accuracy DATA=../shared ARGS="exercise-watch". Hours, then minutes.
bench-accuracy: $(EXPORT)/.ready
	$(EXPORT)/bin/python -m benchmarks.accuracy $(if $(DATA),--data $(DATA)) $(ARGS)

# Our quantiser, writer and search beside the defaults of others, each in an environment of its own (3 GB).
bench-export-peers: $(VENV)/.test
	$(BIN)/python -m benchmarks.export_peers $(ARGS)

# The runtime beside the same loop on other clients, C++ and JavaScript: docs/performance.md. Installs them (1.5 GB).
bench-peers: $(VENV)/.test tools
	@sh scripts/tools g++ npm strace
	@[ -e /usr/include/mosquitto.h ] || sh scripts/tools libmosquitto-dev
	$(BIN)/python -m benchmarks.peers.environments $(addprefix peer-,gmqtt aiomqtt faststream bytewax mqttjs node-red)
	$(BIN)/python -m benchmarks.peers $(ARGS)

# Our cloud client over Triton, MLServer and KServe, our server under tritonclient, each in an environment of its own (1.3 GB);
# the Debian package under a systemd that has booted.
conformance: $(VENV)/.test
	@sh scripts/tools mmdebstrap
	$(BIN)/python tests/conformance/environments.py
	$(BIN)/python -m pytest tests/conformance $(ARGS)

# Writes locks/ anew: what still fits keeps its version. ARGS=--upgrade takes the newest of everything: CONTRIBUTING.md
lock: $(UPKEEP)/.ready
	$(UPKEEP)/bin/python scripts/locks.py write $(TORCH) $(ARGS)

# Known vulnerabilities of everything that the locks name, and of torch. Fails, too, when the service cannot be asked.
audit: $(UPKEEP)/.ready
	$(UPKEEP)/bin/python scripts/locks.py audit $(TORCH) $(ARGS)

# The site of docs/, README.md and examples/ in build/site. Nothing in it is loaded from another host.
docs: $(DOCS)/.ready
	@$(PYTHON) -m scripts.site build/pages
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build

tools:
	@sh scripts/tools mosquitto strace mmdebstrap mosquitto_sub=mosquitto-clients promtool=prometheus prometheus-node-exporter

# Both wheels into dist/, built twice: the same bytes, or an error. Beside each, what comes with it (CycloneDX).
wheels: $(VENV)/.test
	$(BIN)/python -m scripts.wheels --also $(TORCH) $(ARGS)

# Debian packages for releases 12 and 13, amd64 and arm64, the same way: docs/install.md. ARGS="--debian 12 --architecture arm64"
deb: $(VENV)/.test
	@sh scripts/tools dpkg-deb=dpkg
	$(BIN)/python -m scripts.deb $(ARGS)

clean:
	rm -rf $(VENV) .venvs build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis

# -- the environments ------------------------------------------------------------------------------------------------

# $(call environment,FOLDER,PYTHON): an environment whose pip works, even where Ctrl-C came while pip replaced itself.
# $(call new,PYTHON): pip itself, and what builds this package.
# $(call install,PYTHON,EXTRAS,GROUP): what the extras and the group need, and edge-runtime if there are extras.
# $(call workstation,PYTHON,EXTRAS): edge-export, and what its extras need.
environment = $(1)/bin/python -m pip install --help >/dev/null 2>&1 || \
	{ rm -rf $(1)/lib/python*/site-packages/pip $(1)/lib/python*/site-packages/pip-*; $(or $(2),$(PYTHON)) -m venv $(1); }
# Python compiles what is used when it is used: of all that is installed, at once, that took pip half of its time.
pip = $(1) -m pip --disable-pip-version-check --quiet install --no-compile
ifeq ($(LOCKED),no)
comma := ,
extras = $(subst $() ,$(comma),$(strip $(1)))
new = $(pip) --upgrade "pip>=25.1"
install = $(pip) $(if $(2),--editable ".[$(call extras,$(2))]") $(addprefix --group ,$(3))
workstation = $(pip) $(if $(2),--editable "./export[$(call extras,$(2))]",--no-deps --no-build-isolation --editable ./export)
else
locked = $(pip) --require-hashes $(patsubst %,-r locks/%.txt,$(2)) || \
	{ echo "if the package index lacks what locks/ names: make LOCKED=no $(MAKECMDGOALS)"; exit 2; }
new = $(call locked,$(1),build)
install = { $(call locked,$(1),$(2) $(3)); } $(if $(2),&& $(pip) --no-deps --no-build-isolation --editable .)
workstation = $(if $(2),$(call locked,$(1),export) &&) $(pip) --no-deps --no-build-isolation --editable ./export
endif

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "edge-runtime needs Python 3.10 or newer; name one with: make PYTHON=python3.10 $(MAKECMDGOALS)"; exit 2; }
	@echo "setting up $(VENV) (once): ten seconds"
	@$(call environment,$(VENV))

# pip itself, and what builds this package.
$(VENV)/.build: locks/build.txt | $(BIN)/python
	@$(call environment,$(VENV))
	@$(call new,$(BIN)/python)
	@touch $@

# What a device gets, with both engines.
DEVICE := onnx tflite
$(VENV)/.device: pyproject.toml $(DEVICE:%=locks/%.txt) $(VENV)/.build
	@echo "installing edge-runtime (once): ten seconds"
	@$(call install,$(BIN)/python,$(DEVICE))
	@touch $@

# What the tests need besides, and what writes bills of materials.
TESTED := $(DEVICE) codecs parquet otlp serial pictures
$(VENV)/.test: pyproject.toml export/pyproject.toml $(TESTED:%=locks/%.txt) locks/test.txt locks/sbom.txt $(VENV)/.build
	@echo "installing what the tests need (once): half a minute"
	@$(call install,$(BIN)/python,$(TESTED),test sbom)
	@$(call workstation,$(BIN)/python)
	@touch $@ $(VENV)/.device

# What the export toolchain needs. torch goes first and exactly: left to the resolver, it may come a second time.
$(EXPORT)/.ready: pyproject.toml export/pyproject.toml locks/build.txt locks/export.txt locks/test.txt
	@echo "installing the export toolchain (once): a minute"
	@$(call environment,$(EXPORT))
	@$(call new,$(EXPORT)/bin/python)
	@$(call pip,$(EXPORT)/bin/python) $(TORCH)
	@$(call install,$(EXPORT)/bin/python,$(DEVICE),test)
	@$(call workstation,$(EXPORT)/bin/python,train)
	@touch $@

$(RETIRED)/.ready: locks/build.txt locks/tflite-runtime.txt
	@$(call environment,$(RETIRED),python3.11)
	@$(call new,$(RETIRED)/bin/python)
	@$(call pip,$(RETIRED)/bin/python) --require-hashes -r locks/tflite-runtime.txt
	@touch $@

# What drives a browser and judges what it shows, as tests/browser/package-lock.json has it.
$(PAGE)/.ready: tests/browser/package.json tests/browser/package-lock.json
	@sh scripts/tools node=nodejs npm
	@mkdir -p $(PAGE)
	@cp $^ $(PAGE)
	@npm ci --prefix $(PAGE) --ignore-scripts --no-audit --no-fund --silent
	@touch $@

# What writes the locks and audits them.
$(UPKEEP)/.ready: pyproject.toml locks/build.txt locks/upkeep.txt
	@$(call environment,$(UPKEEP))
	@$(call new,$(UPKEEP)/bin/python)
	@$(call install,$(UPKEEP)/bin/python,,upkeep)
	@touch $@

$(RAY)/.ready: pyproject.toml locks/build.txt locks/onnx.txt locks/tflite.txt locks/ray.txt locks/test.txt
	@echo "installing Ray (once)"
	@$(call environment,$(RAY))
	@$(call new,$(RAY)/bin/python)
	@$(call install,$(RAY)/bin/python,$(DEVICE) ray,test)
	@touch $@

# What builds the site.
$(DOCS)/.ready: pyproject.toml locks/build.txt locks/docs.txt
	@echo "installing what builds the site (once)"
	@$(call environment,$(DOCS))
	@$(call new,$(DOCS)/bin/python)
	@$(call install,$(DOCS)/bin/python,,docs)
	@touch $@
