#!/usr/bin/env bash
# Builds a wasm artifact in release mode: build-wasm.sh [CARGO OPTION...]. With the compiler that setup has settled on: Debian's has no
# wasm standard library and builds it along.
set -euo pipefail
cd "$(dirname "$0")/.."

target=(build --release --target wasm32-unknown-unknown "$@")
if [ "$(cat .tools/wasm-toolchain)" = debian ]; then
    export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1
    export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=/usr/bin/rust-lld
    exec /usr/bin/cargo "${target[@]}" -Zbuild-std=std,panic_abort
fi
exec cargo "${target[@]}"
