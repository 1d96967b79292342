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
_LAST = {**_FUSED, "channels_last": True}
_PLAIN = {"fp32": _FUSED, "bf16": {**_FUSED, "bf16": True}}
_PICTURES = {"fp32": _LAST, "bf16": {**_LAST, "bf16": True}}


def _tuned(ways: dict[str, dict]) -> list[tuple[str, str, dict]]:
    """Each way with tcmalloc, and further ones for that which is expected to be the best."""
    return [(name, "tcmalloc", way) for name, way in ways.items()]


def _wide(compiled: bool) -> list[tuple[str, str, dict]]:
    fp32, bf16 = _PLAIN["fp32"], _PLAIN["bf16"]
    return [*_tuned({"fp32": fp32, "bf16": bf16, "fp32, bf16 gradients": {**fp32, "compress": True},
                     "bf16, bf16 gradients": {**bf16, "compress": True},
                     **({"bf16, compiled": {**bf16, "compile": True}} if compiled else {})}),
            ("bf16, pinned", "pinned", bf16), ("bf16, glibc's malloc tuned", "glibc", bf16)]


# Workload: rows of (name, process, way of ddp_step.py). All have one thread, a fused optimizer, gradient_as_bucket_view,
# static_graph, one bucket and flushed denormals; pictures are channels-last. The best by median is the tuned peer.
TUNED = {
    "mlp": [*_tuned({"fp32": _PLAIN["fp32"], "fp32, foreach optimizer": {"ddp": True, "optimizer": "foreach"},
                     "fp32, compiled": {**_PLAIN["fp32"], "compile": True}, "bf16": _PLAIN["bf16"]}),
            ("fp32, pinned", "pinned", _PLAIN["fp32"]), ("fp32, glibc's malloc tuned", "glibc", _PLAIN["fp32"])],
    "convnet": [*_tuned({"fp32, channels first": _PLAIN["fp32"], **_PICTURES,
                         "bf16, strides of one channel": {**_PICTURES["bf16"], "own_strides": True},
                         "bf16, compiled": {**_PICTURES["bf16"], "compile": True}}),
                ("bf16, pinned", "pinned", _PICTURES["bf16"]),
                ("bf16, glibc's malloc tuned", "glibc", _PICTURES["bf16"])],
    "wide_mlp_sgd": _wide(compiled=True),
    "wide_mlp_adam": _wide(compiled=False),
    # Not compiled: that takes minutes here, and does not help the ConvNet.
    "resnet18_cifar": [*_tuned(_PICTURES),
                       ("bf16, pinned", "pinned", _PICTURES["bf16"])],
}

# Rows of ours: name, flags of lockstep-bench-step. The last is the one in which levers are moved.
_MIXED = ["--amp", "bf16"]
_OURS_WIDE = [("fp32", []), ("bf16", _MIXED)]
_OURS_PICTURES = [("fp32", []), ("bf16, channels-last", [*_MIXED, "--channels-last"])]
OURS = {"mlp": [("bf16", _MIXED), ("fp32", [])], "convnet": _OURS_PICTURES, "wide_mlp_sgd": _OURS_WIDE,
        "wide_mlp_adam": _OURS_WIDE, "resnet18_cifar": _OURS_PICTURES}


@dataclasses.dataclass(frozen=True)
class Lever:
    """A row with one thing changed, and where it is measured."""
    name: str
    workloads: tuple[str, ...]
    without: tuple[str, ...] = ()  # of the row's flags
    extra: tuple[str, ...] = ()  # flags
    environment: tuple[tuple[str, str], ...] = ()

    def flags(self, of_row: list[str]) -> list[str]:
        return [flag for flag in of_row if flag not in self.without] + list(self.extra)


_WIDE = ("wide_mlp_sgd", "wide_mlp_adam")
_OF_PICTURES = ("convnet", "resnet18_cifar")
LEVERS = [
    Lever("without channels-last", _OF_PICTURES, without=("--channels-last",)),
    Lever("without bf16", _OF_PICTURES, without=tuple(_MIXED)),
    Lever("without the caching allocator", ("mlp", "convnet", "resnet18_cifar", "wide_mlp_sgd"),
          environment=(("LOCKSTEP_ALLOCATOR", "system"),)),
    Lever("without huge pages", (*_WIDE, "convnet"), extra=("--no-huge-pages",)),
    Lever("with ranks bound to cores", ("mlp", "convnet", "wide_mlp_sgd"), extra=("--bind-to", "core")),
]

# Times faster than the peer as installed and tuned.
TARGETS = {"mlp": (10, 6), "convnet": (4, 1.35), "wide_mlp_sgd": (3.5, 3), "wide_mlp_adam": (3.5, 3),
           "resnet18_cifar": (2.8, 1.05)}
TITLES = {"mlp": "MLP 64-64-10, batch 32 per process, SGD",
          "convnet": "MNIST ConvNet, batch 100 per process, SGD",
          "wide_mlp_sgd": "MLP 1024-4096-4096-1024, 25.2 M weights, batch 16 per process, SGD with momentum",
          "wide_mlp_adam": "MLP 1024-4096-4096-1024, 25.2 M weights, batch 16 per process, Adam",
          "resnet18_cifar": "ResNet-18 with CIFAR stem, batch 64 per process, SGD with momentum"}
SAMPLES = {"mlp": 64, "convnet": 200, "wide_mlp_sgd": 32, "wide_mlp_adam": 32, "resnet18_cifar": 128}  # of a step
