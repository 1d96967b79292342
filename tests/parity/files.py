"""The two file formats that both sides read, written out: no package beyond torch is needed."""
import gzip
import json
import pathlib
import struct

import torch

DTYPES = {"F32": torch.float32, "F64": torch.float64, "BF16": torch.bfloat16, "I64": torch.int64}


def read_safetensors(path) -> dict[str, torch.Tensor]:
    content = bytearray(pathlib.Path(path).read_bytes())
    (header_size,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8:8 + header_size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        data = content[8 + header_size + begin:8 + header_size + end]
        tensors[name] = torch.frombuffer(data, dtype=DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def read_idx(path) -> torch.Tensor:
    path = pathlib.Path(path)
    content = path.read_bytes() if path.exists() else gzip.decompress(path.with_name(path.name + ".gz").read_bytes())
    dimensions = content[3]
    shape = struct.unpack_from(f">{dimensions}I", content, 4)
    return torch.frombuffer(bytearray(content[4 + 4 * dimensions:]), dtype=torch.uint8).reshape(shape)


def read_cifar10(folder) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the training half: pixels uint8 [N, 3, 32, 32] and labels int64 [N]."""
    content = b"".join((pathlib.Path(folder) / f"data_batch_{i}.bin").read_bytes() for i in range(1, 6))
    records = torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()


def read_images(folder, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels uint8 [N, 1, 28, 28] and labels int64 [N]; split is "train" or "t10k"."""
    folder = pathlib.Path(folder)
    images = read_idx(folder / f"{split}-images-idx3-ubyte")
    labels = read_idx(folder / f"{split}-labels-idx1-ubyte")
    return images.unsqueeze(1), labels.long()
