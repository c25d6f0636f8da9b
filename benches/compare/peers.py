"""The servers that are compared: what they can serve, how they are installed and started.

A peer that cannot be had is left out with a word; the comparison goes on without it.
"""

import dataclasses
import os
import pathlib
import subprocess

from server import Server, free_port

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "benches" / "peers"
# Sequences at once in the workloads a to d, and the longest of them with room to spare.
SEQUENCES = 16
SHORT_CONTEXT = 2048
# Workload e: its prompt, its answer, and room for words that are more than one token.
LONG_CONTEXT = 17408
# Memory for keys and values; servers that take no number size it by context.
KV_GIB = {"short": 2, "long": 3}


@dataclasses.dataclass(frozen=True)
class Peer:
    """A server of somebody else."""

    name: str
    script: str
    # "gguf": the very file; "folder": its weights as bf16 in the layout of safetensors.
    form: str
    ready: str
    # Seconds that installing and starting may take.
    install_seconds_max: int
    start_seconds_max: int
    # Reasons why models cannot be compared, by their keys.
    refuses: dict
    remark: str = ""


PEERS = {
    peer.name: peer
    for peer in (
        Peer("llama.cpp", "llama_cpp.sh", "gguf", "/health", 60 * 60, 180, {}),
        Peer(
            "openvino",
            "openvino.sh",
            "gguf",
            "/health",
            15 * 60,
            300,
            {"qwen3-bf16": "its GGUF reader takes no bf16"},
            "continuous batching behind a thin HTTP front",
        ),
        Peer(
            "vllm",
            "vllm_cpu.sh",
            "folder",
            "/health",
            40 * 60,
            900,
            {"qwen3-int8": "it runs bf16 here; see the bf16 model"},
            "bf16 weights",
        ),
        Peer(
            "mistralrs",
            "mistralrs.sh",
            "gguf",
            "/health",
            15 * 60,
            300,
            {},
            "behind a thin HTTP front; its chat template adds some tokens to each prompt",
        ),
    )
}


def install(peer, log):
    """True when the peer is there; else says why it is not."""
    line = [SCRIPTS / peer.script, "install"]
    try:
        done = subprocess.run(
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=peer.install_seconds_max,
        )
    except subprocess.TimeoutExpired:
        log(f"{peer.name}: not installed after {peer.install_seconds_max // 60} minutes; it is left out")
        return False
    if done.returncode != 0:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        log(f"{peer.name}: cannot be installed here ({last}); it is left out")
        return False
    return True


def start(peer, model, threads, kind):
    """Starts a peer for short sequences (many) or for a long one; the server may not be ready yet."""
    port = free_port()
    long = kind == "long"
    environment = {
        "THREADS": str(threads),
        "SLOTS": "1" if long else str(SEQUENCES),
        "CTX": str(LONG_CONTEXT if long else SEQUENCES * SHORT_CONTEXT),
        "CTX_EACH": str(LONG_CONTEXT if long else SHORT_CONTEXT),
        "KV_GIB": str(KV_GIB[kind]),
    }
    path = model.folder(peer) if peer.form == "folder" else model.gguf()
    line = [SCRIPTS / peer.script, "serve", port, path]
    return Server(peer.name, line, port, peer.ready, environment, peer.start_seconds_max)


def start_updraft(binary, model, threads, kind, kv_bytes=None, sequences=SEQUENCES):
    port = free_port()
    long = kind == "long"
    line = [binary, "serve", model.gguf(), "--host", "127.0.0.1", "--port", port, "--threads", threads]
    line += ["--kv-cache-memory-bytes", kv_bytes or KV_GIB[kind] << 30, "--disable-log-stats"]
    line += ["--max-num-seqs", 1 if long else sequences]
    line += ["--max-model-len", LONG_CONTEXT if long else SHORT_CONTEXT]
    return Server("updraft", line, port, "/ready")


def cache():
    """Where peers, models and other things that are made once are kept."""
    home = os.environ.get("UPDRAFT_CACHE")
    if home is None:
        home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "updraft"
    folder = pathlib.Path(home) / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
