# `make` shows what there is to make.
.DEFAULT_GOAL := help
SHELL := /bin/bash

WASM := target/wasm32-unknown-unknown/release/weir.wasm
SOURCES := Cargo.toml Cargo.lock $(shell find src lua -name '*.rs' -o -name '*.lua' -o -name 'Cargo.toml')
LUA := $(addprefix lua/,clock.lua verdicts.lua integers.lua expiry.lua token_bucket.lua fixed_window.lua sliding_log.lua \
	sliding_window.lua leaky_bucket.lua driver.lua)

.NOTPARALLEL:
.PHONY: help setup tools run test test-core test-node test-native test-wasm test-lua e2e soak bench bench-core bench-lua dashboard lint fmt wasm clean

help: ## Shows this.
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | column -ts $$'\t'

setup: ## Installs what is missing here: Envoy, Valkey and tools.
	@tests/setup.sh

tools:
	@tests/setup.sh run

run: $(WASM) ## Shows Weir at work: Envoy, Redis and a burst of requests. STORE=local: without Redis. ONCE=1: ends by itself.
	@python3 envoy/run.py --store $(or $(STORE),redis) $(if $(ONCE),--once)

wasm: $(WASM) ## Builds weir.wasm.

$(WASM): $(SOURCES) | tools
	@src/wasm-cargo.sh build --release
	@wasm-opt -O3 --enable-bulk-memory --enable-sign-ext --enable-nontrapping-float-to-int --enable-mutable-globals $@ -o $@.small
	@mv $@.small $@

test: setup $(WASM) ## Runs all tests, layer by layer, and counts them.
	@tests/run.sh core node native wasm lua e2e

test-core: ## Tests of what decides, without a host.
	@tests/run.sh core

test-node: setup ## The core as wasm, under Node.
	@tests/run.sh node

test-native: ## The filter against a host in the test process.
	@tests/run.sh native

test-wasm: setup $(WASM) ## The same on weir.wasm.
	@tests/run.sh wasm

test-lua: setup ## The script in a real Redis, step by step against its model.
	@tests/run.sh lua

e2e: setup $(WASM) ## Real Envoy, real Redis, real clients.
	@tests/run.sh e2e

soak: setup $(WASM) ## Five minutes of load and of faults at random, by every transport.
	@WEIR_SOAK_SECONDS=$(or $(SECONDS),300) cargo test -p weir --test e2e -- soak:: --nocapture 2>&1 | grep -v '^GET '

bench: $(WASM) ## Measures Weir beside other filters, half an hour: target/bench/RESULTS.md and its picture.
	@tests/setup.sh bench
	@src/wasm-cargo.sh build --release --manifest-path benches/noop/Cargo.toml --target-dir target
	@cargo build -q --release --manifest-path benches/service/Cargo.toml --target-dir target
	@python3 benches/compare.py --memory --write target/bench

bench-core: ## Measures what a request costs in the core, with one rule and with a thousand.
	@cargo bench -q --manifest-path benches/decisions/Cargo.toml --target-dir target/decisions

bench-lua: tools ## Measures the script in Redis beside `return 1`, and what a subject takes there.
	@cargo build -q -p weir-core
	@python3 benches/script.py

dashboard: $(WASM) setup ## Draws envoy/observability/dashboard.svg anew, from two minutes of traffic.
	@python3 benches/observe.py

lint: setup ## Formatting, clippy, luacheck.
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	@cat $(LUA) | luacheck --max-line-length 125 --std lua51 --globals redis KEYS ARGV -- -
	@luacheck --max-line-length 125 --std lua51 --globals redis KEYS ARGV -- lua/overrides.lua

fmt: ## Formats the Rust code.
	cargo fmt --all

clean: ## Removes what was built, not what was installed.
	cargo clean
