"""The models that are compared, fetched or made once.

`gguf()` is the file that Updraft and most peers serve; `folder()` holds the same weights as bf16 for those
that read no GGUF. Facts for the limits (bytes a token, operations a token) are read from the file.
"""

import dataclasses
import pathlib
import subprocess
import sys

import gguf

from peers import ROOT, cache

MODELS_SCRIPTS = ROOT / "benches" / "models"
# Of six layers of Gemma 3, five look at a window only.
GEMMA3_WINDOWED = 5 / 6
# Bytes of a key or value in the cache of every server here.
KV_BYTES = 2
# Seconds that fetching or making a model may take.
MAKE_SECONDS_MAX = 1800


class ModelFailed(Exception):
    """The model cannot be had here."""


@dataclasses.dataclass(frozen=True)
class Model:
    """A model by its key on the command line."""

    key: str
    title: str
    # Tokens that it was made for.
    context: int
    # What its weights are multiplied with at best: a figure of the machine.
    arithmetic: str
    # What is measured with it unless told otherwise; a long context only where one model stands for all.
    workloads: str
    # Whom it is measured beside unless told otherwise: the fastest ones known for weights of its kind.
    peers: tuple

    def gguf(self):
        if self.key in ("smollm2", "gemma3"):
            return pathlib.Path(_output([ROOT / "scripts" / "fetch_demo_model.sh", self.key]))
        kind = self.key.removeprefix("qwen3-")
        path = cache() / "models" / f"qwen3-0.6b-random-{kind}.gguf"
        if not path.exists():
            self._make("--kind", kind, "--out", path)
        return path

    def folder(self, peer):
        """Weights as bf16 in a folder, made with the tools that the peer brings along."""
        folder = cache() / "models" / f"{self.key}-folder"
        if (folder / "config.json").exists():
            return folder
        if self.key.startswith("qwen3-"):
            self._make("--kind", "folder", "--out", folder)
        else:
            python = cache() / "venvs" / peer.name / "bin" / "python"
            _output([python, MODELS_SCRIPTS / "gguf_to_folder.py", self.gguf(), folder])
        return folder

    def _make(self, *options):
        tokenizer = MODELS["smollm2"].gguf()
        _output([sys.executable, MODELS_SCRIPTS / "random_qwen3.py", "--tokenizer", tokenizer, *options])

    def facts(self):
        return Facts.read(self.gguf())


MODELS = {
    model.key: model
    for model in (
        Model("smollm2", "SmolLM2-135M Q4_1", 8192, "int8", "abcd", ("openvino", "llama.cpp")),
        Model("gemma3", "Gemma 3 270M Q4_K_M", 32768, "int8", "ab", ("llama.cpp",)),
        Model(
            "qwen3-int8",
            "Qwen3-0.6B geometry, Q8_0, random weights",
            40960,
            "int8",
            "abe",
            ("openvino", "llama.cpp"),
        ),
        Model(
            "qwen3-bf16",
            "Qwen3-0.6B geometry, bf16, random weights",
            40960,
            "bf16",
            "ab",
            ("llama.cpp", "vllm"),
        ),
    )
}


@dataclasses.dataclass(frozen=True)
class Facts:
    """What a token costs at least."""

    # Bytes of weights that a decoded token reads.
    weight_bytes: int
    # Parameters that a prompt token is multiplied with.
    parameters: int
    layers: int
    # Values of all query heads, and of all key heads.
    width: int
    kv_width: int
    # Tokens that windowed layers see, and the share of such layers.
    window: int
    windowed: float

    @classmethod
    def read(cls, path):
        reader = gguf.GGUFReader(path)
        tensors = {tensor.name: tensor for tensor in reader.tensors}
        tied = "output.weight" not in tensors
        weight_bytes = sum(
            int(tensor.n_bytes) for name, tensor in tensors.items() if tied or name != "token_embd.weight"
        )
        products = [
            tensor for name, tensor in tensors.items() if len(tensor.shape) == 2 and name.startswith("blk.")
        ]
        architecture = reader.fields["general.architecture"].contents()

        def number(key, default=None):
            field = reader.fields.get(f"{architecture}.{key}")
            return default if field is None else field.contents()

        heads, kv_heads = number("attention.head_count"), number("attention.head_count_kv")
        head = number("attention.key_length", number("embedding_length") // heads)
        window = number("attention.sliding_window", 0)
        return cls(
            weight_bytes=weight_bytes,
            parameters=sum(int(tensor.n_elements) for tensor in products),
            layers=number("block_count"),
            width=heads * head,
            kv_width=kv_heads * head,
            window=window,
            windowed=GEMMA3_WINDOWED if window and architecture == "gemma3" else 0.0,
        )

    def seen(self, context):
        """Tokens that a layer sees on average."""
        return (1 - self.windowed) * context + self.windowed * min(context, self.window or context)

    def decode_bytes(self, context):
        """Bytes that a token reads behind `context` tokens: all weights once, its keys and values."""
        return self.weight_bytes + 2 * KV_BYTES * self.layers * self.kv_width * self.seen(context)

    def attention_operations(self, context):
        """Operations of attention for the last token of `context`."""
        return 4 * self.layers * self.width * self.seen(context)


def _output(line):
    try:
        done = subprocess.run(
            [str(part) for part in line],
            capture_output=True,
            text=True,
            timeout=MAKE_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelFailed(f"{error}") from None
    if done.returncode != 0:
        raise ModelFailed((done.stderr.strip().splitlines() or ["no word why"])[-1])
    return done.stdout.strip()
