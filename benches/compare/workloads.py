"""What is asked of a server, and which numbers of the answer count.

Each workload is a line of options for the load generator and a list of measures. Every round brings a seed of
its own, so no prefix cache answers for the model; the generator mixes prompt lengths into it, so workloads
share no prompts.
"""

import dataclasses
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable

LOAD = pathlib.Path(__file__).resolve().parent.parent / "load" / "load.py"
# Seconds that a request may take: a prompt of 16384 tokens is minutes of work for a slow peer.
REQUEST_SECONDS_MAX = 3600
# Seconds that one run of the load generator may take.
LOAD_SECONDS_MAX = 3 * 3600
# Tokens of the context behind which workload e decodes.
LONG_CONTEXT = 16384


class LoadFailed(Exception):
    """Requests failed; the message says how."""


@dataclasses.dataclass(frozen=True)
class Measure:
    """One number of a report."""

    key: str
    title: str
    unit: str
    read: Callable[[dict], float]
    # Whether more is better; else it is a time.
    is_rate: bool = True


@dataclasses.dataclass(frozen=True)
class Workload:
    """A load and its measures."""

    letter: str
    title: str
    options: tuple[str, ...]
    measures: tuple[Measure, ...]
    # Such a workload runs alone: each server is started for it with one long sequence, one server at a time.
    is_long: bool = False


def _options(text):
    return tuple(text.split())


WORKLOADS = {
    workload.letter: workload
    for workload in (
        Workload(
            "a",
            "one stream, 128 + 128 tokens",
            _options("--concurrency 1 --requests 5 --prompt-tokens 128 --max-tokens 128"),
            (
                Measure(
                    "a.decode",
                    "decode, one stream",
                    "tok/s",
                    lambda r: r["all"]["decode_tok_s_per_stream"]["p50"],
                ),
                Measure(
                    "a.ttft", "first token, 128 tokens", "ms", lambda r: r["all"]["ttft_ms"]["p50"], False
                ),
            ),
        ),
        Workload(
            "b",
            "prompts of 1024 tokens",
            _options("--concurrency 1 --requests 5 --prompt-tokens 1024 --max-tokens 4"),
            (
                Measure(
                    "b.prefill", "prefill, 1024 tokens", "tok/s", lambda r: r["all"]["prefill_tok_s"]["p50"]
                ),
            ),
        ),
        Workload(
            "c",
            "16 streams, 256 + 128 tokens",
            _options("--concurrency 16 --requests 32 --prompt-tokens 256 --max-tokens 128"),
            (
                Measure("c.output", "16 streams, output", "tok/s", lambda r: r["output_tok_s"]),
                Measure(
                    "c.ttft", "16 streams, first token", "ms", lambda r: r["all"]["ttft_ms"]["p50"], False
                ),
                Measure(
                    "c.tpot", "16 streams, time a token", "ms", lambda r: r["all"]["tpot_ms"]["p50"], False
                ),
            ),
        ),
        Workload(
            "d",
            "second turn behind 1088 tokens",
            _options(
                "--concurrency 1 --requests 5 --prompt-tokens 1024 --max-tokens 32 --turns 2 --turn-tokens 32"
            ),
            (
                Measure(
                    "d.ttft",
                    "second turn, first token",
                    "ms",
                    lambda r: r["by_turn"][1]["ttft_ms"]["p50"],
                    False,
                ),
            ),
        ),
        Workload(
            "e",
            "decode behind 16k tokens",
            # The first request fills the prefix cache, where there is one; decoding behind it is measured.
            _options(
                f"--concurrency 1 --requests 2 --prompt-tokens {LONG_CONTEXT}"
                f" --shared-prefix {LONG_CONTEXT - 32} --warm-prefix --max-tokens 64"
            ),
            (
                Measure(
                    "e.decode",
                    "decode behind 16k",
                    "tok/s",
                    lambda r: r["all"]["decode_tok_s_per_stream"]["p50"],
                ),
            ),
            is_long=True,
        ),
    )
}


def load(server, options, seed):
    """Runs the load generator once; its report."""
    line = [
        sys.executable,
        LOAD,
        "--url",
        server.url,
        "--seed",
        seed,
        "--timeout",
        REQUEST_SECONDS_MAX,
        *options,
    ]
    try:
        done = subprocess.run(
            [str(part) for part in line],
            capture_output=True,
            text=True,
            timeout=LOAD_SECONDS_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LoadFailed(f"no end after {LOAD_SECONDS_MAX} s") from None
    if done.returncode != 0:
        errors = (
            json.loads(done.stdout)["errors"] if done.stdout.startswith("{") else done.stderr.strip()[-300:]
        )
        raise LoadFailed(f"requests failed: {errors}")
    return json.loads(done.stdout)


def run(workload, server, seed):
    """{measure: number} of one round."""
    report = load(server, workload.options, seed)
    return {measure.key: measure.read(report) for measure in workload.measures}
