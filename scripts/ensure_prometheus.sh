#!/usr/bin/env bash
# Makes sure that `prometheus` can be run: one test scrapes a server with it.
#
# Installs the distribution's package when this is root on a system with apt. Elsewhere it says what is missing;
# that is an error where CI is set, and a skipped test where not.
set -euo pipefail

if command -v prometheus >/dev/null; then
  exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  export DEBIAN_FRONTEND=noninteractive
  echo "installing the package prometheus" >&2
  if apt-get install -y -qq --no-install-recommends prometheus >/dev/null 2>&1 ||
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus >/dev/null; }; then
    exit 0
  fi
fi
echo "prometheus is not installed (Debian, Ubuntu: apt-get install prometheus); the dashboard test needs it" >&2
[ -z "${CI:-}" ]
