"""What the PyTorch samples share: options, determinism, the training loop, and what they print.

Every loss is printed exactly, as a hexadecimal floating-point number, and at the end the SHA-256 of all parameters and buffers.
Two runs with the same options on the same kind of device, and one that was paused, moved or restored in between, print the
same lines.
"""

import argparse
import hashlib
import os
import random
import time


def options(description, **defaults):
    """The command line of a sample; sets what has to be in the environment before torch is imported."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=defaults.get("steps", 60))
    parser.add_argument("--batch", type=int, default=defaults.get("batch", 64))
    parser.add_argument("--width", type=int, default=defaults.get("width", 64), help="of the layers")
    parser.add_argument("--depth", type=int, default=defaults.get("depth", 2), help="blocks")
    parser.add_argument("--lr", type=float, default=defaults.get("lr", 1e-3))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu")
    parser.add_argument("--threads", type=int, default=1, help="on the CPU; part of the result, as sums are split by it")
    parser.add_argument("--workers", type=int, default=0, help="processes that load data")
    parser.add_argument("--pin", action="store_true", help="load data into pinned memory")
    parser.add_argument("--amp", choices=["off", "bf16", "fp16"], default="off", help="mixed precision")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    parser.add_argument("--graphs", action="store_true", help="capture a step into a CUDA graph and replay it")
    parser.add_argument("--expandable", action="store_true", help="expandable segments of the caching allocator")
    parser.add_argument("--pace-ms", type=int, default=0, help="rest up to so long between steps, until the file PACE_UNTIL exists")
    parser.add_argument("--log-every", type=int, default=1)
    given = parser.parse_args()
    on_gpu = given.device != "cpu"
    for flag, wanted in (("--graphs", given.graphs), ("--expandable", given.expandable), ("--amp fp16", given.amp == "fp16")):
        if wanted and not on_gpu:
            parser.error(f"{flag} needs a GPU")
    if given.steps < 1 or given.batch < 1 or given.workers < 0:
        parser.error("--steps and --batch must be positive, --workers not negative")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is deterministic with it alone
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if given.expandable:
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    return given


def prepare(given):
    """Seeds everything and asks for deterministic algorithms; the device."""
    import torch
    random.seed(given.seed)
    torch.manual_seed(given.seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.set_num_threads(given.threads)
    if given.device != "cpu" and not torch.cuda.is_available():
        raise SystemExit("no CUDA device: run with --device cpu")
    return torch.device(given.device)


class Pace:
    def __init__(self, given):
        self.longest = given.pace_ms / 1000
        self.until = os.environ.get("PACE_UNTIL", "")
        self.random = random.Random(given.seed)

    def rest(self):
        if self.longest and not (self.until and os.path.exists(self.until)):
            time.sleep(self.random.uniform(0, self.longest))


def loader(dataset, given):
    """Batches without end, in an order that the seed decides."""
    import torch
    from torch.utils.data import DataLoader
    batches = DataLoader(dataset, batch_size=given.batch, shuffle=True, drop_last=True, num_workers=given.workers,
                         pin_memory=given.pin and given.device != "cpu", persistent_workers=given.workers > 0,
                         generator=torch.Generator().manual_seed(given.seed))
    while True:
        yield from batches


class Stepper:
    """One step of training, plain or as a CUDA graph."""

    def __init__(self, model, loss_of, given, device):
        import torch
        self.torch, self.model, self.loss_of, self.given, self.device = torch, model, loss_of, given, device
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=given.lr, capturable=given.graphs, foreach=False)
        self.scaler = torch.amp.GradScaler("cuda", enabled=given.amp == "fp16")
        self.run = torch.compile(model) if given.compile else model
        self.graph, self.inputs, self.loss = None, None, None

    def _loss(self, inputs):
        precision = self.torch.float16 if self.given.amp == "fp16" else self.torch.bfloat16
        # A graph would keep what autocast has cached of the weights as they were when it was captured.
        with self.torch.autocast(self.device.type, precision, enabled=self.given.amp != "off", cache_enabled=not self.given.graphs):
            return self.loss_of(self.run, *inputs)

    def _once(self, inputs):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(inputs)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def _capture(self, inputs):
        """After some steps beside, as capturing needs."""
        torch = self.torch
        self.inputs = [tensor.clone() for tensor in inputs]
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):
                self._once(self.inputs)
        torch.cuda.current_stream().wait_stream(beside)
        self.graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            loss = self._loss(self.inputs)
            loss.backward()
            self.optimizer.step()
            self.loss = loss.detach()

    def step(self, batch):
        inputs = [tensor.to(self.device, non_blocking=True) for tensor in batch]
        if not self.given.graphs:
            return self._once(inputs)
        if self.graph is None:
            self._capture(inputs)
        for mine, new in zip(self.inputs, inputs):
            mine.copy_(new)
        self.graph.replay()
        return self.loss


def digest(model):
    """Of everything the model has learned."""
    hashed = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        hashed.update(name.encode())
        hashed.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return hashed.hexdigest()


def train(model, dataset, loss_of, given, device):
    import torch
    if given.graphs and given.amp == "fp16":
        raise SystemExit("--graphs goes with --amp bf16 or off")
    model = model.to(device)
    stepper, pace, batches = Stepper(model, loss_of, given, device), Pace(given), loader(dataset, given)
    print(f"torch {torch.__version__} on {device.type}, {sum(p.numel() for p in model.parameters())} parameters", flush=True)
    for step in range(1, given.steps + 1):
        loss = stepper.step(next(batches))
        if step % given.log_every == 0 or step == given.steps:
            print(f"step {step} loss {float(loss).hex()}", flush=True)
        pace.rest()
    print(f"sha256 {digest(model)}", flush=True)
