"""A transformer's encoder as a user of PyTorch writes it; benchmarks/step/encoder.cpp is the same for libtorch."""
import torch
import torch.nn.functional as F
from torch import nn

TOKENS, WIDTH = 256, 512  # of a sample, of a token
HEADS, HIDDEN = 8, 2048


class EncoderLayer(nn.Module):
    """nn.TransformerEncoderLayer without dropout, whose random numbers would differ, and without its transposes."""

    def __init__(self):
        super().__init__()
        self.attention_in = nn.Linear(WIDTH, 3 * WIDTH)
        self.attention_out = nn.Linear(WIDTH, WIDTH)
        self.first = nn.Linear(WIDTH, HIDDEN)
        self.second = nn.Linear(HIDDEN, WIDTH)
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.norm_2 = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, tokens, _ = x.shape
        packed = self.attention_in(x).view(samples, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(packed[0], packed[1], packed[2])
        y = self.norm_1(x + self.attention_out(seen.transpose(1, 2).reshape(samples, tokens, WIDTH)))
        return self.norm_2(y + self.second(F.relu(self.first(y))))


class Encoder(nn.Module):
    """Samples [B, TOKENS, WIDTH] to the logits [B, classes] of the mean token."""

    def __init__(self, layers: int, classes: int):
        super().__init__()
        self.layers = nn.Sequential(*(EncoderLayer() for _ in range(layers)))
        self.last = nn.Linear(WIDTH, classes)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(samples).mean(1))
