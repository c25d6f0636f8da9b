"""Turns a GGUF file into a folder with bf16 weights, for servers that read no GGUF.

  gguf_to_folder.py FILE.gguf FOLDER

It runs in the environment of such a server, which brings torch and transformers. The folder gets its name
when it is complete.
"""

import json
import os
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer


def main():
    path, folder = sys.argv[1:3]
    source, file = os.path.split(os.path.abspath(path))
    new = folder + ".new"
    shutil.rmtree(new, ignore_errors=True)
    os.makedirs(new)
    AutoTokenizer.from_pretrained(source, gguf_file=file).save_pretrained(new)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=file, dtype=torch.float32)
    tied = model.config.tie_word_embeddings
    tensors = {
        name: tensor.to(torch.bfloat16).contiguous().clone()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }
    save_file(tensors, os.path.join(new, "model.safetensors"), metadata={"format": "pt"})
    config = model.config.to_dict()
    config.pop("quantization_config", None)
    config |= {"dtype": "bfloat16", "torch_dtype": "bfloat16", "architectures": [type(model).__name__]}
    with open(os.path.join(new, "config.json"), "w") as out:
        json.dump(config, out, indent=1, default=str)
    os.rename(new, folder)


if __name__ == "__main__":
    main()
