"""The built-in models beside torchvision's: names, shapes, the bits of the seed, what they compute and its gradients."""
import json
import subprocess
import unittest
import zlib

import torch
import torchvision

import lockstep

CLASSES = 10
PICTURES = 3
# Of each family the smallest, and where they take seconds another kind and another depth: a VGG without BatchNorm, a
# deeper one, the ResNet that a recipe tunes. On the smallest pictures that say something; (name, side). The other ten
# are deeper or wider ones of these, left to Every.
FAMILIES = [("resnet18", 33), ("resnet34", 32), ("resnext50_32x4d", 32), ("wide_resnet50_2", 32), ("vgg13", 32),
            ("vgg11_bn", 32), ("vgg16_bn", 32), ("alexnet", 63), ("mobilenet_v2", 40), ("densenet121", 29),
            ("efficientnet_b0", 40), ("vit_b_16", 32)]
ALL = ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "resnext101_32x8d",
       "wide_resnet50_2", "wide_resnet101_2", "vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn",
       "vgg19_bn", "alexnet", "mobilenet_v2", "densenet121", "efficientnet_b0", "vit_b_16"]


def side_of(name: str) -> int:
    return dict(FAMILIES).get(name, 32)


def torchvisions(name: str, side: int) -> torch.nn.Module:
    more = {"image_size": side} if name.startswith("vit") else {}
    return torchvision.models.get_model(name, num_classes=CLASSES, **more)


def ours(names: list[str], draw: bool):
    """An answer of model_probe for each name; it computes the next one while Python looks at one."""
    models = [{"name": name, "channels": 3, "side": side_of(name), "classes": CLASSES, "draw": draw} for name in names]
    with subprocess.Popen([lockstep.BIN / "model_probe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as probe:
        probe.stdin.write(json.dumps({"models": models}))
        probe.stdin.close()
        for name in names:
            yield name, json.loads(probe.stdout.readline())


def shapes(tensors) -> list:
    return [[name, list(tensor.shape)] for name, tensor in tensors]


def checksums(tensors) -> dict[str, int]:
    return {name: zlib.crc32(tensor.detach().contiguous().numpy()) for name, tensor in tensors}


class Shapes(unittest.TestCase):
    def test_names_and_shapes_in_order(self):
        for name, found in ours(ALL, draw=False):
            with self.subTest(name):
                with torch.device("meta"):
                    model = torchvisions(name, side_of(name))
                self.assertEqual(found["parameters"], shapes(model.named_parameters()))
                self.assertEqual(found["buffers"], shapes(model.named_buffers()))


class Models(unittest.TestCase):
    NAMES = [name for name, _ in FAMILIES]

    def test_bits_of_seed_logits_and_gradients(self):
        torch.set_num_threads(1)
        for name, found in ours(self.NAMES, draw=True):
            with self.subTest(name):
                torch.manual_seed(1)
                self.compare(torchvisions(name, side_of(name)), side_of(name), found)

    def compare(self, model, side, found):
        self.assertEqual(found["state"], checksums(model.state_dict().items()))
        torch.manual_seed(4)
        list(model.parameters())[-2].detach().normal_()  # a vision transformer's is zero
        torch.manual_seed(2)
        pictures = torch.rand(PICTURES, 3, side, side)
        torch.manual_seed(3)
        # With gradients on: without them Python's attention takes a kernel of its own.
        self.assertEqual(found["eval"], model.eval()(pictures).flatten().tolist())
        torch.manual_seed(3)
        logits = model.train()(pictures)
        self.assertEqual(found["train"], logits.flatten().tolist())
        torch.nn.functional.cross_entropy(logits, torch.arange(PICTURES)).backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        self.assertEqual(found["norms"], {name: gradient.norm().item() for name, gradient in gradients.items()})
        self.assertEqual(found["gradients"], checksums(gradients.items()))
        self.assertTrue(all(norm > 0 for name, norm in found["norms"].items()), found["norms"])
        self.assertEqual(found["trained"], checksums(model.named_buffers()))


class Every(Models):
    """A billion and a half of weights are drawn on both sides: by hand, after a change of a family. Here alone are
    resnet50, resnet101, resnet152, resnext101_32x8d, wide_resnet101_2, vgg11, vgg16, vgg19, vgg13_bn and vgg19_bn."""
    NAMES = ALL


if __name__ == "__main__":
    unittest.main()
