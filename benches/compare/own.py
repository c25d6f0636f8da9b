"""What only Updraft tells of itself: the host's time a step, and resident memory against what was planned."""

import os
import re

from peers import start_updraft
from workloads import load

# Small enough that the loads fill it: untouched memory is not resident, so it would prove nothing.
KV_BYTES = 256 << 20
# What resident memory may be above weights and KV cache.
RESIDENT_SLACK_BYTES = 200_000_000
# The host's time a step that is aimed at, at most.
HOST_MICROSECONDS_WANTED = 150
# Sequences at once while the host's time is measured.
SEQUENCES = 64


def histogram(page, name):
    """Cumulative counts by upper bound."""
    found = re.findall(rf'^{re.escape(name)}_bucket\{{[^}}]*le="([^"]+)"[^}}]*\}} (\S+)$', page, re.M)
    return {float(bound.replace("+Inf", "inf")): float(count) for bound, count in found}


def quantile(before, after, share):
    """Upper bound of the bucket that holds the quantile of what came between two readings."""
    counts = sorted((bound, count - before.get(bound, 0)) for bound, count in after.items())
    total = counts[-1][1] if counts else 0
    if not total:
        return None
    return next(bound for bound, count in counts if count >= share * total)


def measure(binary, model, threads):
    """Serves the model once more with a small KV cache, fills it, and reads the server's own numbers."""
    server = start_updraft(binary, model, threads, "short", KV_BYTES, SEQUENCES)
    try:
        server.wait()
        load(server, "--concurrency 16 --requests 16 --prompt-tokens 1024 --max-tokens 16".split(), seed=800)
        name = "updraft_host_overhead_seconds"
        before = histogram(server.get("/metrics"), name)
        options = f"--concurrency {SEQUENCES} --requests {SEQUENCES} --prompt-tokens 16 --max-tokens 64"
        load(server, options.split(), seed=900)
        after = histogram(server.get("/metrics"), name)
        bounds = [quantile(before, after, share) for share in (0.5, 0.99)]
        return {
            "host_overhead_us": [None if bound is None else round(bound * 1e6) for bound in bounds],
            "resident_bytes": server.memory_bytes("VmRSS"),
            "planned_bytes": os.path.getsize(model.gguf()) + KV_BYTES,
        }
    finally:
        server.stop()


def lines(own):
    """The same as text."""
    p50, p99 = own["host_overhead_us"]
    extra = (own["resident_bytes"] - own["planned_bytes"]) / 1e6
    return [
        f"host's time a step: p50 <= {p50} µs, p99 <= {p99} µs at {SEQUENCES} sequences"
        f" (wanted: under {HOST_MICROSECONDS_WANTED})",
        f"resident memory: {own['resident_bytes'] / 1e6:.0f} MB; weights and KV cache"
        f" {own['planned_bytes'] / 1e6:.0f} MB, so {extra:+.0f} MB"
        f" (wanted: at most +{RESIDENT_SLACK_BYTES // 10**6})",
    ]
