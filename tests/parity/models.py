"""The built-in models of Lockstep, as a PyTorch user would write them."""
import torch
import torchvision
from torch import nn


class Mlp(nn.Module):
    def __init__(self, dropout: float = 0):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
        self.fc2 = nn.Linear(128, 10)

    def forward(self, images):
        return self.fc2(self.dropout(torch.relu(self.fc1(images.flatten(1)))))


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = self.make_layer(1, 16)
        self.layer2 = self.make_layer(16, 32)
        self.fc = nn.Linear(7 * 7 * 32, 10)

    @staticmethod
    def make_layer(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(inputs, outputs, kernel_size=5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU(),
                             nn.MaxPool2d(2))

    def forward(self, images):
        return self.fc(self.layer2(self.layer1(images)).flatten(1))


def resnet18_cifar() -> nn.Module:
    """The stem that CIFAR tutorials give to torchvision's ResNet."""
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


# Those of which Lockstep draws the same initial weights, for grey pictures and for coloured ones.
GREY_MODELS = {"mlp": Mlp, "mlp_dropout": lambda: Mlp(0.5), "convnet": ConvNet}
COLOUR_MODELS = {name: lambda name=name: torchvision.models.get_model(name, num_classes=10)
                 for name in ("resnet18", "resnet50")}
MODELS = GREY_MODELS | COLOUR_MODELS | {"resnet18_cifar": resnet18_cifar}
