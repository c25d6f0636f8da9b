"""The results as Markdown: a table a model, and what could not be measured."""

import statistics

from workloads import WORKLOADS

MEASURES = {measure.key: measure for workload in WORKLOADS.values() for measure in workload.measures}


def median(rounds):
    """Of the rounds that gave a number; none when there are none."""
    numbers = [number for number in rounds if number is not None]
    return statistics.median(numbers) if numbers else None


def speed(measure, theirs, ours):
    """How fast a peer is beside Updraft: 1 is equal, 0.5 half as fast, also where the number is a time."""
    if not theirs or not ours:
        return None
    return theirs / ours if measure.is_rate else ours / theirs


def digits(number):
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 1 else f"{number:.2f}"


def cell(measure, by_server, name):
    rounds = [number for number in by_server.get(name, []) if number is not None]
    if not rounds:
        return "-"
    text = digits(statistics.median(rounds))
    if len(rounds) > 1:
        text += f" ({digits(min(rounds))}-{digits(max(rounds))})"
    ratio = (
        None if name == "updraft" else speed(measure, median(rounds), median(by_server.get("updraft", [])))
    )
    return text if ratio is None else f"{text} **{ratio:.2f}**"


def table(result):
    """The table of one model."""
    servers = result["servers"]
    yield "| | unit | " + " | ".join(servers) + " | limit |"
    yield "| --- | --- |" + " --- |" * (len(servers) + 1)
    for key, by_server in result["numbers"].items():
        measure = MEASURES[key]
        cells = [cell(measure, by_server, name) for name in servers]
        limit = result["limits"].get(key)
        ours = median(by_server.get("updraft", []))
        reached = f" ({100 * ours / limit:.0f} % reached)" if limit and ours else ""
        last = f"{digits(limit)}{reached}" if limit else ""
        yield f"| {measure.title} | {measure.unit} | " + " | ".join(cells) + f" | {last} |"
    for title, unit, scale, key in (
        ("start to first token", "s", 1, "first_token_s"),
        ("peak memory after 16 streams", "MiB", 1 << 20, "peak_bytes"),
    ):
        values = [median(result[key].get(name, [])) for name in servers]
        if any(value is not None for value in values):
            cells = ["-" if value is None else digits(value / scale) for value in values]
            yield f"| {title} | {unit} | " + " | ".join(cells) + " | |"


def machine_lines(machine):
    yield f"{machine['processor']}, instruction set {machine['instruction_set']}"
    yield ""
    yield f"| limit | 1 thread | {machine['threads']} threads |"
    yield "| --- | --- | --- |"
    for row in machine["figures"]:
        unit = "GB/s" if row["unit"] == "B/s" else "GOP/s"
        one, every = (row[which]["median"] / 1e9 for which in ("one_thread", "all_threads"))
        yield f"| {row['what']} | {one:.1f} {unit} | {every:.1f} {unit} |"


def page(report):
    """All of it."""
    yield "# Updraft beside other servers"
    yield ""
    yield (
        f"{report['date']}, {report['threads']} threads, {report['rounds']} rounds, greedy, cold prompts. A"
        " number is the median of the rounds (lowest-highest); bold is the speed beside Updraft (below 1:"
        " slower). A limit is what the machine's bandwidth and arithmetic allow with nothing else to do."
    )
    for result in report["models"]:
        yield ""
        yield f"## {result['title']}"
        yield ""
        yield from table(result)
        for remark in result["remarks"]:
            yield ""
            yield f"- {remark}"
    yield ""
    yield "## The machine"
    yield ""
    if report["machine"]:
        yield from machine_lines(report["machine"])
    else:
        yield "not measured"
    if report["left_out"]:
        yield ""
        yield "## Left out"
        yield ""
        yield from (f"- {reason}" for reason in report["left_out"])
