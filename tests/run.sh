#!/usr/bin/env bash
# Runs layers of the tests: run.sh LAYER... The last line says how many tests passed and failed over all of them.
set -uo pipefail
cd "$(dirname "$0")/.."

passed=0 failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# layer NAME COMMAND... : a layer without tests, or one that doesn't get as far, is a failure
layer() {
    printf '\n== %s\n' "$1"
    "${@:2}" 2>&1 | tee "$log"
    local status=${PIPESTATUS[0]} ok bad
    ok=$(awk '/^test result:/ { n += $4 } END { print n + 0 }' "$log")
    bad=$(awk '/^test result:/ { n += $6 } END { print n + 0 }' "$log")
    if [ "$bad" = 0 ] && { [ "$status" != 0 ] || [ "$ok" = 0 ]; }; then
        printf '%s: no result\n' "$1"
        bad=1
    fi
    passed=$((passed + ok)) failed=$((failed + bad))
}

for name in "$@"; do
    case $name in
        core) layer core cargo test --no-fail-fast -p weir-core -p weir-cli ;;
        node) CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER=$PWD/.tools/bin/wasm-bindgen-test-runner \
            layer node src/wasm-cargo.sh test -p weir-core --test wasm32 ;;
        native | wasm | lua | e2e) layer "$name" cargo test --no-fail-fast -p weir --test "$name" ;;
        *) printf 'there is no layer %s; there are: core node native wasm lua e2e\n' "$name"; failed=$((failed + 1)) ;;
    esac
done

printf '\n%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
