#!/usr/bin/env bash
# Runs cargo for wasm32-unknown-unknown: wasm-cargo.sh COMMAND [OPTION...]. With the compiler that setup has settled on: Debian's has no
# wasm standard library and builds it along.
set -euo pipefail
cd "$(dirname "$0")/.."

command=("$1" --target wasm32-unknown-unknown "${@:2}")
if [ "$(cat .tools/wasm-toolchain)" = debian ]; then
    export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc RUSTC_BOOTSTRAP=1
    export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=/usr/bin/rust-lld
    exec /usr/bin/cargo "${command[@]}" -Zbuild-std=std,panic_abort
fi
exec cargo "${command[@]}"
