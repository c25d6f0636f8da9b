"""Makes a model of Qwen3-0.6B's geometry with random weights: as fast as the real one, but its text is noise.

  random_qwen3.py --tokenizer FILE.gguf --kind {int8,bf16} --out FILE.gguf
  random_qwen3.py --tokenizer FILE.gguf --kind folder --out FOLDER     bf16 in the layout of safetensors

All kinds hold the same numbers (rounded). The tokenizer is that of another model: its tokens are the first of
the vocabulary, the rest is filled up with words that no text contains.
"""

import argparse
import json
import pathlib
import struct
import zlib

import gguf
import numpy as np
from gguf.quants import quantize

WIDTH, INNER, HEADS, KV_HEADS, HEAD, VOCABULARY = 1024, 3072, 16, 8, 128, 151936
LAYERS = 28
CONTEXT = 40960
ROPE_BASE = 1_000_000.0
EPSILON = 1e-6
# Standard deviation of the weights.
SCALE = 0.02
# Token types of GGUF: one with a meaning of its own, and one that is never used.
CONTROL, UNUSED = 3, 5

# GGUF's name, the other layout's name, and the shape of each tensor of a layer.
LAYER = [
    ("attn_norm", "input_layernorm", (WIDTH,)),
    ("attn_q", "self_attn.q_proj", (HEADS * HEAD, WIDTH)),
    ("attn_k", "self_attn.k_proj", (KV_HEADS * HEAD, WIDTH)),
    ("attn_v", "self_attn.v_proj", (KV_HEADS * HEAD, WIDTH)),
    ("attn_q_norm", "self_attn.q_norm", (HEAD,)),
    ("attn_k_norm", "self_attn.k_norm", (HEAD,)),
    ("attn_output", "self_attn.o_proj", (WIDTH, HEADS * HEAD)),
    ("ffn_norm", "post_attention_layernorm", (WIDTH,)),
    ("ffn_gate", "mlp.gate_proj", (INNER, WIDTH)),
    ("ffn_up", "mlp.up_proj", (INNER, WIDTH)),
    ("ffn_down", "mlp.down_proj", (WIDTH, INNER)),
]


def tensors(layers):
    """(GGUF's name, the other name, shape) of every tensor."""
    yield "token_embd.weight", "model.embed_tokens.weight", (VOCABULARY, WIDTH)
    for layer in range(layers):
        for ours, theirs, shape in LAYER:
            yield f"blk.{layer}.{ours}.weight", f"model.layers.{layer}.{theirs}.weight", shape
    yield "output_norm.weight", "model.norm.weight", (WIDTH,)


def values(name, shape):
    """The same for a name every time. Norms are ones."""
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    return generator.standard_normal(shape, dtype=np.float32) * np.float32(SCALE)


class Tokenizer:
    """What a GGUF file says about its tokenizer."""

    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields

        def read(key, default=None):
            field = fields.get("tokenizer.ggml." + key)
            return default if field is None else field.contents()

        self.tokens, self.types, self.merges = read("tokens"), read("token_type"), read("merges")
        self.model, self.pre = read("model"), read("pre", "default")
        self.bos, self.eos = read("bos_token_id", 1), read("eos_token_id", 2)
        missing = VOCABULARY - len(self.tokens)
        self.known = len(self.tokens)
        self.tokens = self.tokens + [f"[UNUSED{number}]" for number in range(missing)]
        self.types = self.types + [UNUSED] * missing


def write_gguf(path, tokenizer, kind, layers):
    type_of = {"int8": gguf.GGMLQuantizationType.Q8_0, "bf16": gguf.GGMLQuantizationType.BF16}[kind]
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name("random weights, geometry of Qwen3-0.6B")
    writer.add_block_count(layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_layer_norm_rms_eps(EPSILON)
    types = {"int8": gguf.LlamaFileType.MOSTLY_Q8_0, "bf16": gguf.LlamaFileType.MOSTLY_BF16}
    writer.add_file_type(types[kind])
    writer.add_tokenizer_model(tokenizer.model)
    writer.add_tokenizer_pre(tokenizer.pre)
    writer.add_token_list(tokenizer.tokens)
    writer.add_token_types(tokenizer.types)
    writer.add_token_merges(tokenizer.merges)
    writer.add_bos_token_id(tokenizer.bos)
    writer.add_eos_token_id(tokenizer.eos)
    writer.add_add_bos_token(False)
    for name, _, shape in tensors(layers):
        numbers = values(name, shape)
        if len(shape) == 1:
            writer.add_tensor(name, numbers)
        else:
            writer.add_tensor(name, quantize(numbers, type_of), raw_dtype=type_of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def bf16(numbers):
    """The upper halves, rounded to the nearest, ties to even."""
    bits = numbers.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def write_folder(folder, tokenizer, layers):
    folder.mkdir(parents=True, exist_ok=True)
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for _, name, shape in tensors(layers):
        end = offset + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for ours, _, shape in tensors(layers):
            out.write(bf16(values(ours, shape)).tobytes())
    write_tokenizer(folder, tokenizer)
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "rope_theta": ROPE_BASE,
        "rms_norm_eps": EPSILON,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "bos_token_id": tokenizer.bos,
        "eos_token_id": tokenizer.eos,
        "torch_dtype": "bfloat16",
    }
    # Last: the folder counts as complete when it is there.
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")


def write_tokenizer(folder, tokenizer):
    """A byte-level tokenizer as the other layout has it."""
    known = tokenizer.tokens[: tokenizer.known]
    special = [number for number in range(tokenizer.known) if tokenizer.types[number] == CONTROL]
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    pages = {
        "version": "1.0",
        "added_tokens": [{"id": number, "content": known[number], **flags} for number in special],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytes_only],
        },
        "post_processor": None,
        "decoder": bytes_only,
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(known)},
            "merges": [pair.split(" ") for pair in tokenizer.merges],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(pages) + "\n")
    names = {"bos_token": known[tokenizer.bos], "eos_token": known[tokenizer.eos]}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": CONTEXT, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokenizer", required=True, type=pathlib.Path, help="a .gguf file that holds one")
    parser.add_argument("--kind", required=True, choices=["int8", "bf16", "folder"])
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=LAYERS)
    options = parser.parse_args()
    tokenizer = Tokenizer(options.tokenizer)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if options.kind == "folder":
        write_folder(options.out, tokenizer, options.layers)
        return
    # Under its name only when it is complete.
    new = options.out.with_suffix(".new")
    write_gguf(new, tokenizer, options.kind, options.layers)
    new.rename(options.out)


if __name__ == "__main__":
    main()
