"""Who takes turns in the benchmark of whole steps: the rows of its report."""
import dataclasses

# How Python's processes are started: environment, arguments of ddp_step.py. As installed means as torchrun starts a
# script; torchrun itself sets OMP_NUM_THREADS=1.
_TUNED = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
PEER_JOBS = {
    "installed": ({}, []),
    "tcmalloc": ({**_TUNED, "LD_PRELOAD": "libtcmalloc_minimal.so.4"}, ["--flush-denormal"]),
    "pinned": ({**_TUNED, "LD_PRELOAD": "libtcmalloc_minimal.so.4"}, ["--flush-denormal", "--pin"]),
    # glibc told to keep what is freed
    "glibc": ({**_TUNED, "MALLOC_TRIM_THRESHOLD_": str(1 << 30), "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
               "MALLOC_TOP_PAD_": str(1 << 26)}, ["--flush-denormal"]),
}

_FUSED = {"ddp": True, "optimizer": "fused"}
_PLAIN = {"fp32": _FUSED, "bf16": {**_FUSED, "bf16": True}}
_FIRST = {f"{name}, channels first": way for name, way in _PLAIN.items()}
_LAST = {f"{name}, channels-last": {**way, "channels_last": True} for name, way in _PLAIN.items()}
_WIDE = ("wide_mlp_sgd", "wide_mlp_adam")
_PHOTOGRAPHS = ("resnet34", "resnet34_b32", "resnet50", "resnet50_b32", "vgg11")
_OF_PICTURES = ("convnet", "resnet18_cifar", *_PHOTOGRAPHS)


def _tuned(ways: dict[str, dict]) -> list[tuple[str, str, dict]]:
    """Each way with tcmalloc, and further ones for that which is expected to be the best."""
    return [(name, "tcmalloc", way) for name, way in ways.items()]


def _compiled(ways: dict[str, dict]) -> dict[str, dict]:
    return {f"{name}, compiled": {**way, "compile": True} for name, way in ways.items()}


def _pinned(ways: dict[str, dict]) -> list[tuple[str, str, dict]]:
    return [(f"{name}, pinned", "pinned", way) for name, way in ways.items()]


def _wide() -> list[tuple[str, str, dict]]:
    gradients = {f"{name}, bf16 gradients": {**way, "compress": True} for name, way in _PLAIN.items()}
    return [*_tuned({**_PLAIN, **gradients, **_compiled(_PLAIN)}), *_pinned(_PLAIN),
            ("bf16, glibc's malloc tuned", "glibc", _PLAIN["bf16"])]


# Workload: rows of (name, process, way of ddp_step.py). All have one thread, a fused optimizer, gradient_as_bucket_view,
# static_graph, one bucket and flushed denormals. Pictures come in both memory formats: like is compared with like.
TUNED = {
    "mlp": [*_tuned({"fp32": _PLAIN["fp32"], "fp32, foreach optimizer": {"ddp": True, "optimizer": "foreach"},
                     "bf16": _PLAIN["bf16"], **_compiled(_PLAIN)}),
            ("fp32, pinned", "pinned", _PLAIN["fp32"]), ("fp32, glibc's malloc tuned", "glibc", _PLAIN["fp32"])],
    "convnet": [*_tuned({**_FIRST, **_LAST,
                         # contiguous() does nothing for one channel; ours gets these strides, too
                         **{f"{name}, strides of one channel": {**way, "own_strides": True}
                            for name, way in _LAST.items()},
                         **_compiled(_LAST)}),
                *_pinned(_LAST), ("bf16, channels-last, glibc's malloc tuned", "glibc", _LAST["bf16, channels-last"])],
    "wide_mlp_sgd": _wide(),
    "wide_mlp_adam": _wide(),
    "resnet18_cifar": [*_tuned({**_FIRST, **_LAST, **_compiled(_LAST)}), *_pinned(_LAST)],
    "encoder": [*_tuned({**_PLAIN, **_compiled(_PLAIN)}), *_pinned(_PLAIN)],
    **{workload: _tuned({**_FIRST, **_LAST, **_compiled(_LAST)}) for workload in _PHOTOGRAPHS},
}


def _with_fused(rows: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """And with --fuse, but pictures that are laid out for no fused pooling. The last row stays the last."""
    fused = [(f"{name}, fused", [*flags, "--fuse"]) for name, flags in rows if "channels first" not in name]
    return [*rows[:-1], *fused, rows[-1]]


# Rows of ours: name, flags of lockstep-bench-step. The last is the one in which levers are moved.
_MIXED = ["--amp", "bf16"]
_FLAT = [("fp32", []), ("bf16", _MIXED)]
_PICTURES = [("fp32, channels first", []), ("bf16, channels first", _MIXED), ("fp32, channels-last", ["--channels-last"]),
             ("bf16, channels-last", [*_MIXED, "--channels-last"])]
OURS = {"mlp": _with_fused(_FLAT[::-1]), **dict.fromkeys((*_WIDE, "encoder"), _with_fused(_FLAT)),
        **dict.fromkeys(_OF_PICTURES, _with_fused(_PICTURES))}


def facts_of_peer(workload: str, way: dict) -> dict[str, str]:
    """What a row computes in, and for pictures their format in memory. Gradients exchanged in bf16 are bf16."""
    return _facts(workload, bool(way.get("bf16") or way.get("compress")), bool(way.get("channels_last")))


def facts_of_ours(workload: str, flags: list[str]) -> dict[str, str]:
    return _facts(workload, "bf16" in flags, "--channels-last" in flags)


def _facts(workload: str, bf16: bool, last: bool) -> dict[str, str]:
    precision = {"precision": "bf16" if bf16 else "fp32"}
    return {**precision, "format": "channels-last" if last else "channels first"} if workload in _OF_PICTURES else precision


@dataclasses.dataclass(frozen=True)
class Lever:
    """A row with one thing changed, and the cases in which it is measured."""
    name: str
    cases: tuple[str, ...]
    without: tuple[str, ...] = ()  # of the row's flags
    extra: tuple[str, ...] = ()  # flags
    environment: tuple[tuple[str, str], ...] = ()

    def flags(self, of_row: list[str]) -> list[str]:
        return [flag for flag in of_row if flag not in self.without] + list(self.extra)


LEVERS = [
    Lever("without the caching allocator", ("mlp", "convnet", "resnet18_cifar", "wide_mlp_sgd"),
          environment=(("LOCKSTEP_ALLOCATOR", "system"),)),
    Lever("without huge pages", (*_WIDE, "convnet"), extra=("--no-huge-pages",)),
    Lever("with ranks bound to cores", ("mlp", "convnet", "wide_mlp_sgd"), extra=("--bind-to", "core")),
]


@dataclasses.dataclass(frozen=True)
class Case:
    """A workload, and who trains it."""
    title: str
    workload: str  # of lockstep-bench-step and peer/workloads.py
    batch: int  # per process
    targets: tuple[float, ...] = ()  # times faster than the peer as installed and tuned
    ranks: int = 2
    threads: int = 1  # of a rank; the peer as installed has as many as torchrun gives it
    anew: bool = False  # its contenders do not fit into memory beside each other: each starts anew for its turn

    @property
    def samples(self) -> int:
        """Of a step."""
        return self.batch * self.ranks


STEP = {
    "mlp": Case("MLP 64-64-10, batch 32 per process, SGD", "mlp", 32, (10, 6)),
    "convnet": Case("MNIST ConvNet, batch 100 per process, SGD", "convnet", 100, (4, 1.35)),
    "wide_mlp_sgd": Case("MLP 1024-4096-4096-1024, 25.2 M weights, batch 16 per process, SGD with momentum",
                         "wide_mlp_sgd", 16, (3.5, 3)),
    "wide_mlp_adam": Case("MLP 1024-4096-4096-1024, 25.2 M weights, batch 16 per process, Adam", "wide_mlp_adam", 16,
                          (3.5, 3)),
    "resnet18_cifar": Case("ResNet-18 with CIFAR stem, batch 64 per process, SGD with momentum", "resnet18_cifar", 64,
                           (2.8, 1.05)),
}


def _photographs(title: str, workload: str, batch: int) -> Case:
    return Case(f"{title} at 224 x 224, batch {batch} per process, SGD with momentum", workload, batch, anew=True)


# Measured where they are asked for (scripts/bench nets), for they take hours.
NETS = {
    "resnet34": _photographs("ResNet-34", "resnet34", 16),
    "resnet34_b32": _photographs("ResNet-34", "resnet34_b32", 32),
    "resnet50": _photographs("ResNet-50", "resnet50", 16),
    "resnet50_b32": _photographs("ResNet-50", "resnet50_b32", 32),
    "vgg11": _photographs("VGG-11", "vgg11", 16),
    "encoder": Case("transformer encoder, 6 layers, 256 tokens, batch 8 per process, Adam", "encoder", 8),
    "convnet_4_ranks": Case("MNIST ConvNet, four processes, batch 100 per process, SGD", "convnet", 100, ranks=4),
    "wide_mlp_sgd_4_ranks": Case("MLP 1024-4096-4096-1024, four processes, batch 16 per process, SGD with momentum",
                                 "wide_mlp_sgd", 16, ranks=4, anew=True),
    "convnet_2_threads": Case("MNIST ConvNet, one process of two threads, batch 100, SGD", "convnet", 100, ranks=1,
                              threads=2),
    "wide_mlp_sgd_2_threads": Case("MLP 1024-4096-4096-1024, one process of two threads, batch 16, SGD with momentum",
                                   "wide_mlp_sgd", 16, ranks=1, threads=2),
}
CASES = {**STEP, **NETS}
