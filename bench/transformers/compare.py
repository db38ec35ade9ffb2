"""Compares our GPT-2 and Llama models with those of Hugging Face's transformers library.

    CGO_ENABLED=0 go build -o bin/ ./examples/gpt2
    python3 bench/transformers/compare.py [--gpt2 bin/gpt2] [--device cpu|cuda] [--keep FOLDER]

For each of several small models with random weights, saved by the library in each layout that it
knows, two differences of logits are measured, in float32: ours of the folder that the library
saved, and the library's of the folder that we saved. Exit code 1 if one is above 1e-4.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

LIMIT = 1e-4


def gpt2(**more):
    """Returns a small GPT-2."""
    sizes = dict(vocab_size=211, n_positions=32, n_embd=48, n_layer=3, n_head=4)
    return GPT2LMHeadModel(GPT2Config(**(sizes | more)))


def llama(**more):
    """Returns a small Llama with grouped queries."""
    sizes = dict(
        vocab_size=211, max_position_embeddings=32, hidden_size=48, intermediate_size=80, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2,
    )
    return LlamaForCausalLM(LlamaConfig(**(sizes | more)))


def plain(model, folder):
    """Saves a model as the library does."""
    model.save_pretrained(folder)


def sharded(model, folder):
    """Saves a model in several files with an index."""
    model.save_pretrained(folder, max_shard_size="60KB")
    assert os.path.exists(os.path.join(folder, "model.safetensors.index.json")), "the model is in one file"


def bare(model, folder):
    """Saves a model without the prefix of its names and without its tied output layer."""
    model.base_model.save_pretrained(folder)


# Name, model, dtype of the file, and how it is saved.
CASES = [
    ("gpt2", gpt2, torch.float32, plain),
    ("gpt2, exact GELU, inner 100", lambda: gpt2(activation_function="gelu", n_inner=100), torch.float32, plain),
    ("gpt2, untied", lambda: gpt2(tie_word_embeddings=False), torch.float32, plain),
    ("gpt2, bfloat16", gpt2, torch.bfloat16, plain),
    ("gpt2, several files", gpt2, torch.float32, sharded),
    ("gpt2, without prefix", gpt2, torch.float32, bare),
    ("llama", llama, torch.float32, plain),
    ("llama, tied", lambda: llama(tie_word_embeddings=True), torch.float32, plain),
    ("llama, one head of keys", lambda: llama(num_key_value_heads=1), torch.float32, plain),
    ("llama, head_dim 16, theta 500000", lambda: llama(head_dim=16, rope_theta=500000.0), torch.float32, plain),
    ("llama, float16", llama, torch.float16, plain),
    ("llama, several files", llama, torch.float32, sharded),
]


def randomize(model):
    """Makes weights large enough that every part of the model shows in the logits."""
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))


def difference(a, b):
    """Returns the largest difference, which is infinite for other shapes or NaN."""
    if a.shape != b.shape:
        return float("inf")
    d = (a - b).abs().max().item()
    return d if d == d else float("inf")


def compare(args, folder, case):
    """Returns the differences of ours of their folder, and of theirs of our folder."""
    _, make, dtype, save = case
    torch.manual_seed(1)
    model = make().eval()
    randomize(model)
    model = model.to(dtype)
    theirs, ours = os.path.join(folder, "theirs"), os.path.join(folder, "ours")
    save(model, theirs)
    tokens = torch.randint(211, (3, 20))
    with torch.no_grad():
        want = model.float()(tokens).logits
    text, out = os.path.join(folder, "tokens.json"), os.path.join(folder, "logits.safetensors")
    with open(text, "w") as file:
        json.dump(tokens.tolist(), file)
    subprocess.run([args.gpt2, "logits", "--from", theirs, "--tokens", text, "--out", out, "--device", args.device], check=True)
    loaded = difference(load_file(out)["logits"], want)
    subprocess.run([args.gpt2, "export", "--from", theirs, "--out", ours], check=True, stdout=subprocess.DEVNULL)
    back, info = AutoModelForCausalLM.from_pretrained(ours, output_loading_info=True)
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info.get(key):
            raise SystemExit(f"{case[0]}: {key} of our folder: {info[key]}")
    with torch.no_grad():
        saved = difference(back.eval().float()(tokens).logits, want)
    return loaded, saved


def main():
    """Compares all models."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpt2", default="bin/gpt2", help="the program examples/gpt2")
    parser.add_argument("--device", default="cpu", help="cpu or cuda: where our logits are computed")
    parser.add_argument("--keep", help="folder for the models, which stay there")
    args = parser.parse_args()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, device {args.device}, limit {LIMIT}")
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        for i, case in enumerate(CASES):
            folder = os.path.join(args.keep or temporary, str(i))
            os.makedirs(folder, exist_ok=True)
            loaded, saved = compare(args, folder, case)
            ok = loaded <= LIMIT and saved <= LIMIT
            wrong += not ok
            print(f"{case[0]:36} loaded {loaded:.1e}  saved {saved:.1e}  {'ok' if ok else 'WRONG'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
