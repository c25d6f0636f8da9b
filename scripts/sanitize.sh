#!/usr/bin/env bash
# The kernels' tests under the address sanitizer: reads and writes outside of what belongs to them end the run.
#
#   scripts/sanitize.sh [words that choose tests]
#
# Once as the machine would run them, and once more with slower instruction sets forced. A compiler that brings no
# sanitizer, or a system on which one cannot run, is told and is no failure.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(rustc -vV | sed -n 's/^host: //p')
# The option is not for everybody yet; the runtime comes with the compiler.
export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address"
# Tests ask for more memory than there is, and want to be refused. Threads that are never joined are no leak.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0

probe=$(mktemp -d)
trap 'rm -rf "$probe"' EXIT
echo 'fn main() {}' >"$probe/probe.rs"
if ! { rustc -Zsanitizer=address --target "$target" -o "$probe/probe" "$probe/probe.rs" && "$probe/probe"; } \
  >"$probe/log" 2>&1; then
  echo "the address sanitizer cannot be used here; its tests are left out:" >&2
  tail -n 3 "$probe/log" >&2
  exit 0
fi

sets=("" portable)
grep -qw avx2 /proc/cpuinfo && sets+=(avx2)
for kernels in "${sets[@]}"; do
  echo "address sanitizer, instruction set: ${kernels:-the fastest}"
  UPDRAFT_KERNELS=$kernels cargo test --quiet --package updraft-kernels --lib --target "$target" \
    --target-dir target/sanitizer -- "$@"
done
