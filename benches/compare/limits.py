"""What the machine allows: its figures, and the bounds that follow for a model.

A decode step cannot be faster than its bytes are read, a prefill not faster than its numbers are multiplied.
These are bounds with perfect overlap and no work besides; nobody gets there.
"""

import json
import subprocess
import tempfile

# Seconds that measuring the machine may take.
SECONDS_MAX = 300
# Prompt tokens of workload b.
PROMPT = 1024


def measure(binary, threads):
    """The figures of `updraft bench machine`; nothing else may run meanwhile."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        line = [str(binary), "bench", "machine", "--threads", str(threads), "--json", file.name]
        subprocess.run(line, stdout=subprocess.DEVNULL, timeout=SECONDS_MAX, check=True)
        return json.load(file)


def figure(machine, name):
    """A rate of all threads, a second; none when the machine has no such instruction."""
    for row in machine["figures"]:
        if row["name"] == name:
            return row["all_threads"]["median"]
    return None


def bounds(machine, model, facts):
    """{measure: the best that can be} for those measures that have a bound this simple."""
    bandwidth = figure(machine, "read_memory")
    # Without instructions for bf16, its numbers are widened and multiplied as singles.
    single = figure(machine, "bf16") or figure(machine, "fp32")
    products = figure(machine, model.arithmetic) or single
    seconds = 2 * facts.parameters / products + facts.attention_operations(PROMPT / 2) / single
    return {
        "a.decode": bandwidth / facts.decode_bytes(128 + 64),
        "b.prefill": 1 / seconds,
        "e.decode": bandwidth / facts.decode_bytes(16384 + 32),
    }
