# Everything that a person or a machine runs here. Each target sets up what it needs; `make help` lists them.

CARGO ?= cargo
LODE = $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/release/lode
TORTURE = $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)/release/torture

# make torture SEED=7 TIME=1h THREADS=4
SEED ?= 1
TIME ?= 60s
THREADS ?= 2
# make bench NAME=commit1 DIR=/mnt/data ARGS=--json
NAME ?=
DIR ?= .
ARGS ?=
# make fuzz TIME=10m TARGET=open_image
TARGET ?=
# make install PREFIX=/usr DESTDIR=package; mount(8) looks for helpers in /sbin only
PREFIX ?= /usr/local
SBINDIR ?= /sbin
DESTDIR ?=
# The least that `make test` crashes, and how long it may take.
IMAGES_MIN = 1000000
SCRIPTS_MIN = 500
FAULT_RUNS_MIN = 4000
CONCURRENT_RUNS_MIN = 400
HISTORIES_MIN = 2000
CRASHES_SECONDS_MAX = 600

.DEFAULT_GOAL = help
.PHONY: help setup demo test unit-tests planted explore crashes check bench bench-fs torture fuzz install

help:
	@echo 'make demo      show on real input what Lode promises (a minute or two, 6.5 GB of scratch in TMPDIR)'
	@echo 'make test      all tests, and a million different crashes (needs root for mounts)'
	@echo 'make check     formatting, and lints as errors'
	@echo 'make bench     side by side with the raw device: NAME=commit1 DIR=. ARGS=--json'
	@echo 'make bench-fs  file systems side by side with those of the kernel (root): NAME=small-files DIR=. ARGS=--judged'
	@echo 'make torture   crash for a while: SEED=1 TIME=60s THREADS=2'
	@echo 'make fuzz      fuzz every decoder: TIME=60s TARGET= (nightly toolchain)'
	@echo 'make install   lode, and mount.fuse.lode for mount and fstab: PREFIX=/usr/local SBINDIR=/sbin DESTDIR='
	@echo 'make setup     install what tests and demo need and what is missing (apt)'

setup:
	@scripts/setup.sh

demo: setup
	scripts/demo.sh

test: setup unit-tests planted explore crashes

unit-tests:
	$(CARGO) test --workspace --locked

# Bugs planted in the engine and in the file system are found, or the enumeration below proves nothing.
planted:
	$(CARGO) test --release --locked -p lode-sim --features planted --test canaries
	$(CARGO) test --release --locked -p lode-sim --features planted,explore --test explore canaries

# Small meetings of clients, thousands of schedules of each; about a minute.
explore:
	$(CARGO) test --release --locked -p lode-sim --features explore --test explore

crashes:
	$(CARGO) build --release --locked -p lode-sim --bin torture
	timeout $(CRASHES_SECONDS_MAX) $(TORTURE) --seed $(SEED) --threads $(THREADS) --time 0s \
		--faults 0 --concurrent 0 --histories 0 --min-images $(IMAGES_MIN) --min-scripts $(SCRIPTS_MIN) --must-reach || \
		{ code=$$?; [ $$code != 124 ] || echo 'crashes: not done in $(CRASHES_SECONDS_MAX) s' >&2; exit $$code; }
	$(TORTURE) --seed $(SEED) --threads $(THREADS) --time 0s --faults 100 --histories 0 --min-fault-runs $(FAULT_RUNS_MIN) --must-reach
	$(TORTURE) --seed $(SEED) --threads $(THREADS) --time 0s --faults 0 --concurrent 100 \
		--min-concurrent-runs $(CONCURRENT_RUNS_MIN)
	$(TORTURE) --seed $(SEED) --threads $(THREADS) --time 0s --faults 0 --concurrent 0 --histories 100 \
		--min-histories $(HISTORIES_MIN)

check:
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy -p lode-sim --all-targets --features planted,explore --locked -- -D warnings
	$(CARGO) clippy -p lode-fs --features unbracketed --locked -- -D warnings

bench: setup
	$(CARGO) build --release --locked -p lode-cli
	$(LODE) bench $(NAME) --dir $(DIR) $(ARGS)

install:
	$(CARGO) build --release --locked -p lode-cli
	install -D -m 755 $(LODE) '$(DESTDIR)$(PREFIX)/bin/lode'
	mkdir -p '$(DESTDIR)$(SBINDIR)'
	ln -sfn '$(PREFIX)/bin/lode' '$(DESTDIR)$(SBINDIR)/mount.fuse.lode'

# As root. The script brings what is measured beside Lode; `lode bench-fs --help` lists the benches.
bench-fs: setup
	scripts/setup-bench-fs.sh
	$(CARGO) build --release --locked -p lode-cli
	$(LODE) bench-fs $(NAME) --dir $(DIR) $(ARGS)

torture:
	$(CARGO) build --release --locked -p lode-sim --bin torture
	$(TORTURE) --seed $(SEED) --time $(TIME) --threads $(THREADS)

fuzz:
	scripts/fuzz.sh $(TIME) $(TARGET)
