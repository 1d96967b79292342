"""Lets a program that puts its tensors on GPUs run on the CPU, where no GPU is: PyTorch's own tests of DDP, whose
collectives do not depend on that. What needs a stream or a kernel of CUDA's still fails."""
import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


def is_gpu(value) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and value.startswith("cuda")


def is_number(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class OnCpu(TorchFunctionMode):
    """Each device that is given to a function is the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.cuda:
            return args[0]
        kwargs = dict(kwargs or {})
        if is_number(kwargs.get("device")):
            kwargs["device"] = CPU
        args = [CPU if is_gpu(value) else value for value in args]
        if func is torch.Tensor.to and len(args) > 1 and is_number(args[1]):
            args[1] = CPU
        return func(*args, **{name: CPU if is_gpu(value) else value for name, value in kwargs.items()})


def pretend(gpus: int):
    """In this process, from now on, there are so many."""
    torch.nn.Module.cuda = torch.Tensor.cuda = lambda self, *_, **__: self
    torch.cuda.set_device = torch.cuda.synchronize = lambda *_, **__: None
    torch.cuda.device_count = lambda: gpus
    torch.cuda.current_device = lambda: 0
    init = torch.nn.parallel.DistributedDataParallel.__init__

    def without_devices(self, module, device_ids=None, output_device=None, *arguments, **named):
        init(self, module, None, None, *arguments, **named)

    torch.nn.parallel.DistributedDataParallel.__init__ = without_devices
    OnCpu().__enter__()
