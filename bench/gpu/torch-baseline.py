"""What PyTorch needs for models of the same sizes: warm, and cold by copying pinned weights and then executing.

Prints one JSON object: {name: {"warmMs": ..., "loadThenExecuteMs": ...}}. Transformers are built from torch.nn; ResNets need
torchvision and are left out without it.
"""
import json
import sys
import time

import torch


def transformer(layers, hidden, heads, vocabulary, sequence, causal):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(vocabulary, hidden)
            self.positions = torch.nn.Embedding(max(512, sequence), hidden)
            layer = torch.nn.TransformerEncoderLayer(
                hidden, heads, 4 * hidden, dropout=0.0, activation="gelu", batch_first=True, norm_first=causal
            )
            self.layers = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

        def forward(self, ids):
            x = self.words(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
            mask = None
            if causal:
                mask = torch.nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
            return self.layers(x, mask=mask)

    return Model(), torch.randint(0, vocabulary, (1, sequence))


def build(name):
    sizes = {
        "bert-base": (12, 768, 12, 30522, 384, False),
        "bert-large": (24, 1024, 16, 30522, 384, False),
        "roberta-base": (12, 768, 12, 50265, 384, False),
        "gpt2": (12, 768, 12, 50257, 1024, True),
    }
    if name in sizes:
        return transformer(*sizes[name])
    import torchvision

    return getattr(torchvision.models, name)(), torch.randn(1, 3, 224, 224)


def measure(name, rounds):
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    model, example = build(name)
    model.eval().requires_grad_(False)
    pinned = {key: value.pin_memory() for key, value in model.state_dict().items()}
    example = example.pin_memory()
    model.cuda()

    def run():
        return model(example.cuda(non_blocking=True))

    def timed(act):
        times = []
        for _ in range(rounds):
            torch.cuda.synchronize()
            start = time.perf_counter()
            act()
            torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - start))
        return sorted(times)[len(times) // 2]

    def cold():
        for key, value in model.state_dict().items():
            value.copy_(pinned[key], non_blocking=True)
        run()

    for _ in range(3):
        run()
        cold()
    return {"warmMs": timed(run), "loadThenExecuteMs": timed(cold)}


results = {}
rounds = int(sys.argv[1])
with torch.no_grad():
    for name in sys.argv[2:]:
        try:
            results[name] = measure(name, rounds)
        except ImportError:
            continue
print(json.dumps(results))
