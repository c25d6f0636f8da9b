"""Measures Updraft beside other servers on this machine, and beside what the machine allows.

  python benches/compare                                       every model beside the fastest peers: an hour and a half
  python benches/compare --peers all                           beside every peer: hours
  python benches/compare --quick                               SmolLM2 beside llama.cpp, and memory: minutes
  python benches/compare --models smollm2 --workloads ab --peers openvino --rounds 3
  python benches/compare --peers none --rounds 1 --workloads a Updraft alone

Writes compare.md, compare.json and compare.png. Measure with nothing else running.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time

import limits
import own
import plot
import report as pages
from models import MODELS, ModelFailed
from peers import PEERS, ROOT, install
from rounds import Comparison
from workloads import LONG_CONTEXT, WORKLOADS


def log(text, end="\n"):
    print(text, end=end, file=sys.stderr, flush=True)


def names(known):
    """A list `a,b` of known names; `none` and `all` are words for two such lists."""

    def parse(text):
        if text in ("all", "none"):
            return list(known) if text == "all" else []
        found = [name for name in text.split(",") if name]
        if unknown := [name for name in found if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown; known are {', '.join(known)}")
        return found

    return parse


def letters(text):
    if unknown := [letter for letter in text if letter not in WORKLOADS]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown; known are {', '.join(WORKLOADS)}")
    return list(dict.fromkeys(text))


def positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=names(MODELS), help=f"list out of {', '.join(MODELS)}, or all")
    parser.add_argument(
        "--workloads",
        type=letters,
        help=f"letters out of {', '.join(WORKLOADS)}; by default those that each model stands for",
    )
    parser.add_argument(
        "--peers",
        type=names(PEERS),
        help=f"list out of {', '.join(PEERS)}, all or none; by default the fastest ones known for each model",
    )
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument(
        "--starts", type=int, default=3, help="how often the time to the first token is taken"
    )
    parser.add_argument("--threads", type=positive, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/updraft")
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "benches/results", help="folder of the results"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one model, workloads a and b, llama.cpp, memory"
    )
    parsed = parser.parse_args()
    quick = parsed.quick
    if parsed.models is None:
        parsed.models = ["smollm2"] if quick else list(MODELS)
    if parsed.workloads is None and quick:
        parsed.workloads = ["a", "b"]
    if parsed.peers is None and (asked := os.environ.get("PEERS", "llama.cpp" if quick else "")):
        parsed.peers = names(PEERS)(asked)
    if not parsed.binary.exists():
        parser.error(f"{parsed.binary} does not exist; build it: cargo build --release --bin updraft")
    return parsed


def main():
    options = arguments()
    left_out = []

    def leave_out(text):
        log(text)
        left_out.append(text)

    def wanted_peers(model):
        return model.peers if options.peers is None else options.peers

    names_wanted = dict.fromkeys(name for key in options.models for name in wanted_peers(MODELS[key]))
    installed = {name: PEERS[name] for name in names_wanted if install(PEERS[name], leave_out)}
    machine = limits.measure(options.binary, options.threads)
    report = {
        "date": datetime.date.today().isoformat(),
        "threads": options.threads,
        "rounds": options.rounds,
        "seed": options.seed,
        "commit": commit(),
        "machine": machine,
        "models": [],
        "left_out": left_out,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    wanted = options.workloads
    failed = False
    for key in options.models:
        model = MODELS[key]
        log(f"{model.title}: ", end="")
        chosen = model.workloads if wanted is None else wanted
        options.workloads = [
            letter for letter in chosen if not (WORKLOADS[letter].is_long and model.context < LONG_CONTEXT)
        ]
        if len(options.workloads) < len(chosen):
            leave_out(f"{model.title}: made for {model.context} tokens, so none of it behind {LONG_CONTEXT}")
        try:
            facts = model.facts()
            peers = [installed[name] for name in wanted_peers(model) if name in installed]
            comparison = Comparison(options, model, peers, log)
            result = comparison.measure()
        except ModelFailed as error:
            leave_out(f"{model.title}: cannot be had here ({error})")
            continue
        bounds = limits.bounds(machine, model, facts)
        result["limits"] = {name: bound for name, bound in bounds.items() if name in result["numbers"]}
        left_out += comparison.left_out
        failed = failed or comparison.updraft_failed
        if options.quick and not failed:
            result["own"] = own.measure(options.binary, model, options.threads)
            result["remarks"] += own.lines(result["own"])
        report["models"].append(result)
        # After each model: what was measured in hours is not lost with the next one.
        write(report, options.out)
    write(report, options.out)
    print((options.out / "compare.md").read_text())
    log(f"written to {options.out}: compare.md, compare.json, compare.png")
    return 1 if failed else 0


def commit():
    line = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def write(report, folder):
    (folder / "compare.json").write_text(json.dumps(report, indent=1) + "\n")
    (folder / "compare.md").write_text("\n".join(pages.page(report)) + "\n")
    plot.draw(report, folder / "compare.png")


if __name__ == "__main__":
    sys.exit(main())
