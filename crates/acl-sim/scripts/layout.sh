#!/bin/sh
# Lays the simulated library out as an installation: DEST/lib64 with the names that programs load.
# All names are links to one file, so whichever is loaded first, there is one runtime in the process.
set -eu

if [ $# -ne 2 ]; then
    echo "usage: $0 TARGET_DIR DEST   (TARGET_DIR holds libacl_sim.so, such as target/release)" >&2
    exit 2
fi

library=$1/libacl_sim.so
if [ ! -f "$library" ]; then
    echo "$library is not there; build it with: cargo build --release -p acl-sim" >&2
    exit 1
fi

lib64=$2/lib64
mkdir -p "$lib64"
cp -f "$library" "$lib64/libacl_sim.so"
for name in libascendcl libacl_rt libnnopbase libopapi libhccl; do
    ln -sf libacl_sim.so "$lib64/$name.so"
done
echo "$lib64"
