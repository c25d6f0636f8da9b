#!/usr/bin/env bash
# Counts the instructions of a decode step and compares them with committed numbers.
#
#   benches/instructions.sh            fails when a step takes more than the tolerance above its number
#   benches/instructions.sh --update   writes the numbers that were found
#
# Instructions do not depend on how busy the machine is, so unlike a time they can be a gate. They are counted
# by valgrind's callgrind, on one thread and with AVX2 (valgrind knows nothing newer), over steps of the
# fixture models; a short run is taken from a long one, so that loading does not count. Without valgrind
# nothing is checked.
# DECODE_STEPS may name a program that is built already; numbers are those of a release build.
set -euo pipefail
cd "$(dirname "$0")/.."

expected=benches/instructions/expected.txt
# Percent: compilers differ by less, and a pass over the data more costs more.
tolerance=3
short=8
long=40

if ! command -v valgrind >/dev/null; then
  echo "valgrind is not installed; instructions are not counted (apt-get install valgrind)" >&2
  exit 0
fi
if ! grep -qw avx2 /proc/cpuinfo; then
  echo "this processor has no AVX2; instructions are not counted" >&2
  exit 0
fi

program=${DECODE_STEPS:-}
if [ -z "$program" ]; then
  echo "building (release)" >&2
  program=$(cargo bench --quiet --bench decode_steps --no-run --message-format=json |
    python3 -c 'import json, sys
for line in sys.stdin:
    artifact = json.loads(line) if line.startswith("{") else {}
    if artifact.get("executable") and artifact["target"]["name"] == "decode_steps":
        print(artifact["executable"])')
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# MODEL STEPS: instructions of the whole run.
count() {
  UPDRAFT_KERNELS=avx2 valgrind --tool=callgrind --callgrind-out-file="$work/out" --log-file="$work/log" \
    "$program" "$1" "$2" >"$work/tokens" 2>"$work/errors" || {
    cat "$work/errors" "$work/log" >&2
    exit 1
  }
  [ "$(wc -w <"$work/tokens")" = "$2" ] || { echo "$1: not all steps were run" >&2; exit 1; }
  sed -n 's/^summary: \([0-9]*\).*/\1/p; s/^totals: \([0-9]*\).*/\1/p' "$work/out" | tail -1
}

failed=0
: >"$work/found"
while read -r model number; do
  from=$(count "tests/fixtures/models/$model" "$short")
  to=$(count "tests/fixtures/models/$model" "$long")
  found=$(((to - from) / (long - short)))
  echo "$model $found" >>"$work/found"
  if [ "${1:-}" = --update ]; then
    echo "$model: $found instructions a step (was ${number:-nothing})"
  elif [ -z "${number:-}" ]; then
    echo "$model: $found instructions a step; $expected has no number for it (--update writes it)" >&2
    failed=1
  elif [ $((found * 100)) -gt $((number * (100 + tolerance))) ]; then
    echo "$model: $found instructions a step, $((found * 100 / number - 100)) % above $number" >&2
    echo "  at most $tolerance % are allowed; if the work is meant, --update keeps the new number" >&2
    failed=1
  else
    echo "$model: $found instructions a step; committed: $number"
    if [ $((found * 100)) -lt $((number * (100 - tolerance))) ]; then
      echo "  that is better: benches/instructions.sh --update keeps it"
    fi
  fi
done < <(grep -v '^#' "$expected")

if [ "${1:-}" = --update ]; then
  { grep '^#' "$expected"; cat "$work/found"; } >"$work/new"
  cp "$work/new" "$expected"
fi
exit "$failed"
