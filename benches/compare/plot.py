"""The results as a picture: each peer's speed beside Updraft's, and the machine's limit beside both."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402 (the backend is chosen first)
from matplotlib.ticker import FixedLocator, FuncFormatter  # noqa: E402

from report import MEASURES, median, speed  # noqa: E402

# Told apart by people who see colours differently, too.
COLOURS = {"llama.cpp": "#0072b2", "openvino": "#e69f00", "vllm": "#cc79a7", "mistralrs": "#009e73"}
# Speeds that the axis names.
TICKS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20]


def draw(report, path):
    models = [result for result in report["models"] if result["numbers"]]
    if not models:
        return
    figure, axes = plt.subplots(
        len(models), 1, figsize=(11, 3.2 * len(models)), squeeze=False, layout="constrained"
    )
    for axis, result in zip(axes[:, 0], models, strict=True):
        _model(axis, result)
    figure.suptitle(f"Speed beside Updraft (1 = equal, above 1 = the peer is faster); {report['date']}")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _model(axis, result):
    keys = list(result["numbers"])
    peers = [name for name in result["servers"] if name != "updraft"]
    width = 0.8 / max(1, len(peers))
    for number, name in enumerate(peers):
        points = []
        for place, key in enumerate(keys):
            by_server = result["numbers"][key]
            ratio = speed(
                MEASURES[key], median(by_server.get(name, [])), median(by_server.get("updraft", []))
            )
            if ratio is not None:
                points.append((place - 0.4 + width * (number + 0.5), ratio))
        bars = axis.bar(
            [place for place, _ in points],
            [ratio for _, ratio in points],
            width * 0.9,
            label=name,
            color=COLOURS.get(name),
        )
        axis.bar_label(bars, [f"{ratio:.2f}" for _, ratio in points], fontsize=7, padding=1)
    for place, key in enumerate(keys):
        limit, ours = result["limits"].get(key), median(result["numbers"][key].get("updraft", []))
        if limit and ours:
            first = "limit of the machine" if key == next(iter(result["limits"])) else None
            axis.hlines(
                limit / ours, place - 0.45, place + 0.45, colors="#d55e00", linestyles="dashed", label=first
            )
    axis.axhline(1, color="black", linewidth=1, label="Updraft")
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(FixedLocator(TICKS))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: ""))
    axis.set_xticks(range(len(keys)), [MEASURES[key].title.replace(", ", ",\n") for key in keys], fontsize=8)
    axis.set_xlim(-0.6, len(keys) - 0.4)
    axis.margins(y=0.15)
    axis.set_title(result["title"], fontsize=10, loc="left")
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
