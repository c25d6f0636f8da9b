#!/usr/bin/env python3
"""Measures Updraft beside other servers on this machine, and says what it costs.

All servers are started first and then asked in turn, round after round, so that a slow moment of the machine
hits all of them. Numbers are medians over the rounds. Every round has prompts of its own, so no prefix cache
answers for the model.

  benches/compare.py                          the demo model, beside llama.cpp
  PEERS=none benches/compare.py --rounds 2    quick, alone
"""

import argparse
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Small enough that the loads fill it: untouched memory is not resident, so it would prove nothing.
KV_BYTES = 256 << 20
START_SECONDS_MAX = 120
# What resident memory may be above weights and KV cache.
RESIDENT_SLACK_BYTES = 200_000_000

# Name, what is reported, and the load.
WORKLOADS = {
    "a": ("decode, one stream", "tok/s", ["--concurrency", "1", "--prompt-tokens", "128", "--max-tokens", "128"]),
    "b": ("prefill, 1024 tokens", "tok/s", ["--concurrency", "1", "--prompt-tokens", "1024", "--max-tokens", "4"]),
    "c": (
        "16 streams together",
        "tok/s",
        ["--concurrency", "16", "--requests", "32", "--prompt-tokens", "256", "--max-tokens", "128"],
    ),
}
MEASURES = {
    "a": lambda report: report["all"]["decode_tok_s_per_stream"]["p50"],
    "b": lambda report: report["all"]["prefill_tok_s"]["p50"],
    "c": lambda report: report["output_tok_s"],
}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server process and how to reach it."""

    def __init__(self, name, line, port, ready, environment=None):
        self.name, self.url, self.ready = name, f"http://127.0.0.1:{port}", ready
        self.log = tempfile.NamedTemporaryFile("w+", prefix=f"bench-{name}-", suffix=".log")
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [str(part) for part in line], stdout=self.log, stderr=self.log, env=os.environ | (environment or {})
        )

    def wait(self):
        while time.monotonic() - self.started < START_SECONDS_MAX:
            if self.process.poll() is not None:
                sys.exit(f"{self.name} ended at its start:\n{pathlib.Path(self.log.name).read_text()}")
            try:
                if urllib.request.urlopen(self.url + self.ready, timeout=2).status == 200:
                    return
            except OSError:
                time.sleep(0.005)
        sys.exit(f"{self.name} is not ready after {START_SECONDS_MAX} s")

    def get(self, path):
        return urllib.request.urlopen(self.url + path, timeout=30).read().decode()

    def complete(self, prompt, max_tokens):
        body = json.dumps({"prompt": prompt, "max_tokens": max_tokens, "temperature": 0}).encode()
        request = urllib.request.Request(self.url + "/v1/completions", body, {"content-type": "application/json"})
        return urllib.request.urlopen(request, timeout=600).read()

    def resident_bytes(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def updraft(arguments, model):
    port = free_port()
    line = [arguments.binary, "serve", model, "--host", "127.0.0.1", "--port", port]
    line += ["--kv-cache-memory-bytes", KV_BYTES, "--threads", arguments.threads, "--disable-log-stats"]
    return Server("updraft", line, port, "/ready")


def llama_cpp(arguments, model):
    script = ROOT / "benches/peers/llama_cpp.sh"
    if subprocess.run([script, "install"]).returncode != 0:
        print("llama.cpp cannot be had here; it is left out", file=sys.stderr)
        return None
    port = free_port()
    return Server("llama.cpp", [script, "serve", port, model], port, "/health", {"THREADS": str(arguments.threads)})


PEERS = {"llama.cpp": llama_cpp}


def load(server, options, seed):
    line = [sys.executable, ROOT / "benches/load/load.py", "--url", server.url, "--seed", str(seed), *options]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the load on {server.name} failed:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def alternate(arguments, servers):
    """{workload: {server: [a number a round]}}"""
    results = {name: {server.name: [] for server in servers} for name in arguments.workloads}
    for round_number in range(arguments.rounds):
        for name in arguments.workloads:
            # Who comes first changes from round to round.
            order = servers if round_number % 2 == 0 else servers[::-1]
            for server in order:
                report = load(server, WORKLOADS[name][2], seed=arguments.seed + round_number)
                results[name][server.name].append(MEASURES[name](report))
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return results


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


def host_overhead(server):
    """Median and 99th percentile of the host's time a step at 64 running sequences, in microseconds."""
    name = "updraft_host_overhead_seconds"
    before = histogram(server.get("/metrics"), name)
    load(server, ["--concurrency", "64", "--requests", "64", "--prompt-tokens", "16", "--max-tokens", "64"], seed=900)
    after = histogram(server.get("/metrics"), name)
    bounds = [quantile(before, after, share) for share in (0.5, 0.99)]
    return [bound and round(bound * 1e6) for bound in bounds]


def first_token(arguments, model, starts=3):
    """Seconds from starting the process to the first token, file cache warm: median."""
    times = []
    for _ in range(starts + 1):
        server = updraft(arguments, model)
        server.wait()
        server.complete("Hello", 1)
        times.append(time.monotonic() - server.started)
        server.stop()
    return statistics.median(times[1:])


def table(results, servers):
    print(f"\n{'':24}" + "".join(f"{server.name:>14}" for server in servers) + "".join(
        f"{'/ ' + server.name:>14}" for server in servers[1:]))
    for name, by_server in results.items():
        title, unit, _ = WORKLOADS[name]
        medians = [statistics.median(by_server[server.name]) for server in servers]
        ratios = "".join(f"{medians[0] / median:>14.2f}" for median in medians[1:])
        print(f"{title:24}" + "".join(f"{median:>14.1f}" for median in medians) + ratios + f"   {unit}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="smollm2, gemma3 or a .gguf file")
    parser.add_argument("--binary", default=ROOT / "target/release/updraft")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workloads", default="ab", help=f"letters out of {', '.join(WORKLOADS)}")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--out", help="file for all numbers, as JSON")
    arguments = parser.parse_args()

    model = arguments.model
    if model in ("smollm2", "gemma3"):
        fetch = subprocess.run([ROOT / "scripts/fetch_demo_model.sh", model], stdout=subprocess.PIPE, text=True, check=True)
        model = fetch.stdout.strip()
    names = [name for name in os.environ.get("PEERS", "llama.cpp").split(",") if name and name != "none"]

    seconds = first_token(arguments, model)
    servers = [updraft(arguments, model)]
    servers += [peer for name in names if (peer := PEERS[name](arguments, model))]
    try:
        for server in servers:
            server.wait()
        results = alternate(arguments, servers)
        overhead = host_overhead(servers[0])
        resident = servers[0].resident_bytes()
    finally:
        for server in servers:
            server.stop()

    print(f"model {pathlib.Path(model).name}, {arguments.threads} threads, {arguments.rounds} rounds, medians, cold prompts")
    table(results, servers)
    planned = os.path.getsize(model) + KV_BYTES
    extra = (resident - planned) / 1e6
    print(f"\nstart to first token     {seconds:.2f} s (file cache warm; wanted: under 1)")
    print(f"host overhead a step     p50 <= {overhead[0]} µs, p99 <= {overhead[1]} µs at 64 sequences (wanted: under 150)")
    print(
        f"resident memory          {resident / 1e6:.0f} MB; weights and KV cache {planned / 1e6:.0f} MB, "
        f"so {extra:+.0f} MB (wanted: at most +{RESIDENT_SLACK_BYTES // 10**6})"
    )
    if arguments.out:
        report = {"model": pathlib.Path(model).name, "threads": arguments.threads, "results": results,
                  "first_token_s": seconds, "host_overhead_us": overhead, "resident_bytes": resident,
                  "planned_bytes": planned}
        pathlib.Path(arguments.out).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
