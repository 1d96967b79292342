"""Lockstep's collectives as a backend of torch.distributed: in shared memory, and by TCP between nodes.

    import lockstep_torch
    torch.distributed.init_process_group("lockstep")  # or "cpu:lockstep,cuda:nccl"

For CPU tensors. The guide has the rest: docs/guide/python.md.
"""
import atexit

import torch
import torch.distributed as dist

from ._built import TORCH_VERSION, VERSION as __version__

if torch.__version__.split("+")[0] != TORCH_VERSION:
    raise ImportError(f"lockstep_torch {__version__} was built for torch {TORCH_VERSION}, this is torch "
                      f"{torch.__version__}: build it again with `make wheel`, or install torch=={TORCH_VERSION}")

from . import _backend  # noqa: E402: another torch would be an unreadable error

__all__ = ["shared_empty"]


def _create(options, _backend_options):
    return _backend.create(options)


def shared_empty(*sizes, dtype=None, group=None):
    """A new tensor of zeros whose memory all ranks of the group have mapped. Collectives on it, or on contiguous parts of
    it, copy nothing, when all ranks give the same part; otherwise it is a tensor like any other.

    A collective: the same sizes and dtype on all ranks of `group` (default: the job's). Each call takes whole pages,
    2 MiB at least: make one tensor and cut it. Not for what another process is to have, a loader's worker for instance:
    its memory is shared with whoever is forked, too. Of a group on several nodes it is an ordinary tensor.
    """
    if len(sizes) == 1 and not isinstance(sizes[0], int):
        sizes = tuple(sizes[0])
    group = group or dist.group.WORLD
    if group is None:
        raise ValueError("shared_empty: call torch.distributed.init_process_group(\"lockstep\") before it")
    return _backend.shared_empty(group._get_backend(torch.device("cpu")), sizes, dtype or torch.get_default_dtype())


dist.Backend.register_backend("lockstep", _create, extended_api=True, devices=["cpu"])
atexit.register(_backend.leave_all)  # of those that were not destroyed
