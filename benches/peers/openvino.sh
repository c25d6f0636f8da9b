#!/usr/bin/env bash
# OpenVINO GenAI, for comparison: a library without a server, so `front.py` stands before it.
#
#   openvino.sh install                once
#   openvino.sh serve PORT MODEL [...] serves in the foreground on 127.0.0.1
#
# It is kept in ${UPDRAFT_CACHE:-...}/bench/venvs.
# THREADS, SLOTS and KV_GIB set threads, parallel sequences and memory.
set -euo pipefail

venv=${UPDRAFT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/updraft}/bench/venvs/openvino

case "${1:-}" in
install)
  # Written last: an installation that was interrupted is begun again.
  [ -f "$venv/.complete-2026.4.1.0" ] && exit 0
  python3 -m venv --clear "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check "openvino-genai==2026.4.1.0" aiohttp==3.14.5
  touch "$venv/.complete-2026.4.1.0"
  ;;
serve)
  port=$2 model=$3
  shift 3
  here=$(dirname "$(readlink -f "$0")")
  exec "$venv/bin/python" "$here/front.py" openvino --model "$model" --port "$port" \
    --threads "${THREADS:-$(nproc)}" --sequences "${SLOTS:-16}" --kv-gib "${KV_GIB:-2}" "$@"
  ;;
*)
  echo "usage: $0 install | serve PORT MODEL [more arguments of front.py]" >&2
  exit 2
  ;;
esac
