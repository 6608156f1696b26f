"""What PyTorch needs for the same networks: warm in three ways, and cold by copying pinned weights and then executing.

Prints one JSON object: {name: {way: {"wallMs": ..., "gpuMs": ...} or {"reason": "..."}}} with the ways "eager", "compiled",
"graphs" and "loadThenExecute". The wall clock runs from the input on the host to the outputs there; the events lie around the
same copies and kernels. Transformers are built from torch.nn; ResNets need torchvision.
"""
import json
import sys
import time


def same_network(torch, layers, hidden, heads, vocabulary, sequence, is_decoder):
    """BERT and RoBERTa with types, the normalized embeddings and the pooler; GPT-2 with its tied head for all tokens."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(vocabulary, hidden)
            self.positions = nn.Embedding(max(512, sequence), hidden)
            self.types = None if is_decoder else nn.Embedding(2, hidden)
            self.norm = nn.LayerNorm(hidden)
            layer = nn.TransformerEncoderLayer(
                hidden, heads, 4 * hidden, dropout=0.0, activation="gelu", batch_first=True, norm_first=is_decoder
            )
            self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.pooler = None if is_decoder else nn.Linear(hidden, hidden)
            steps = torch.arange(sequence)
            self.register_buffer("steps", steps, persistent=False)
            mask = nn.Transformer.generate_square_subsequent_mask(sequence) if is_decoder else None
            self.register_buffer("mask", mask, persistent=False)

        def forward(self, ids):
            x = self.words(ids) + self.positions(self.steps)
            if is_decoder:
                x = self.norm(self.layers(x, mask=self.mask, is_causal=True))
                return (x @ self.words.weight.t(),)
            x = self.layers(self.norm(x + self.types(torch.zeros_like(ids))))
            return x, torch.tanh(self.pooler(x[:, 0]))

    return Model(), torch.randint(0, vocabulary, (1, sequence))


def build(torch, name):
    sizes = {
        "bert-base": (12, 768, 12, 30522, 384, False),
        "bert-large": (24, 1024, 16, 30522, 384, False),
        "roberta-base": (12, 768, 12, 50265, 384, False),
        "gpt2": (12, 768, 12, 50257, 1024, True),
    }
    if name in sizes:
        return same_network(torch, *sizes[name])
    import torchvision

    return getattr(torchvision.models, name)(), torch.randn(1, 3, 224, 224)


def outputs_of(result):
    return result if isinstance(result, tuple) else (result,)


def measure(torch, name, rounds):
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    model, example = build(torch, name)
    model.eval().requires_grad_(False)
    pinned = {key: value.pin_memory() for key, value in model.state_dict().items()}
    example = example.pin_memory()
    model.cuda()
    given = example.cuda()
    results = [each.cpu().pin_memory() for each in outputs_of(model(given))]

    def timed(act):
        def once():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            wall = time.perf_counter()
            start.record()
            given.copy_(example, non_blocking=True)
            for into, output in zip(results, act()):
                into.copy_(output, non_blocking=True)
            end.record()
            torch.cuda.synchronize()
            return 1000 * (time.perf_counter() - wall), start.elapsed_time(end)

        for _ in range(3):
            once()
        times = [once() for _ in range(rounds)]
        wall, gpu = (sorted(each)[rounds // 2] for each in zip(*times))
        return {"wallMs": wall, "gpuMs": gpu}

    def eager():
        return lambda: outputs_of(model(given))

    def compiled():
        faster = torch.compile(model, dynamic=False)
        return lambda: outputs_of(faster(given))

    def graphs():
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                model(given)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = outputs_of(model(given))

        def act():
            graph.replay()
            return kept

        return act

    def load_then_execute():
        def act():
            for key, value in model.state_dict().items():
                value.copy_(pinned[key], non_blocking=True)
            return outputs_of(model(given))

        return act

    ways = {"eager": eager, "compiled": compiled, "graphs": graphs, "loadThenExecute": load_then_execute}
    return {way: attempt(lambda: timed(make())) for way, make in ways.items()}


def attempt(measure_it):
    try:
        return measure_it()
    except Exception as error:  # Whatever PyTorch throws: the other ways and models are still worth measuring.
        return {"reason": f"{type(error).__name__}: {error}".splitlines()[0][:200]}


def main():
    try:
        import torch
    except ImportError as error:
        sys.exit(f"PyTorch cannot be imported: {error}")
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} finds no GPU")
    rounds = int(sys.argv[1])
    found = {}
    with torch.no_grad():
        for name in sys.argv[2:]:
            result = attempt(lambda: measure(torch, name, rounds))
            ways = ("eager", "compiled", "graphs", "loadThenExecute")
            found[name] = {way: result for way in ways} if "reason" in result else result
            torch.cuda.empty_cache()
    print(json.dumps(found))


main()
