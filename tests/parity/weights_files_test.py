"""Files of torch.save, both ways: what Python writes is read to the bit, what is written opens by Python's defaults."""
import argparse
import collections
import contextlib
import io
import pathlib
import re
import subprocess
import tempfile
import unittest
import zipfile

import torch
import torchvision

import lockstep
from files import read_safetensors
from models import MODELS

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.int32,
          torch.int16, torch.int8, torch.uint8, torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn,
          torch.float8_e5m2]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.bn = torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(self.bn(self.conv(x)).mean((2, 3)))


class Published(unittest.TestCase):
    def test_names_and_files_are_torchvisions(self):
        code = (pathlib.Path(__file__).resolve().parents[2] / "lockstep/train/options_weights.cpp").read_text()
        rows = re.findall(r'\{"(\w+)", "(\w+)", "(\w+)", "([\w.-]+)"(, false)?\}', code)
        self.assertGreater(len(rows), 25)
        for model in {row[0] for row in rows}:
            weights = torchvision.models.get_model_weights(model)
            theirs = {(model, weights.__name__, each.name, each.url.rsplit("/", 1)[1], each is weights.DEFAULT)
                      for each in weights}
            with self.subTest(model):
                self.assertEqual({(*row[:4], not row[4]) for row in rows if row[0] == model}, theirs)


def checkpoint_command(*words, code: int = 0) -> str:
    done = subprocess.run([lockstep.BIN / "lockstep", "checkpoint", *map(str, words)], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def trained_net() -> tuple[Net, torch.optim.Optimizer]:
    torch.manual_seed(7)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    net(torch.rand(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    return net, optimizer


def on_cuda(content: bytes) -> bytes:
    """The file as a machine with a GPU would have written it: a pickle's texts have their length in front."""
    return content.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")


def archive_on_cuda(path) -> None:
    with zipfile.ZipFile(path) as file:
        entries = [(name, file.read(name)) for name in file.namelist()]
    with zipfile.ZipFile(path, "w") as file:
        for name, content in entries:
            file.writestr(name, on_cuda(content) if name.endswith("data.pkl") else content)


class WeightsFiles(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def assert_equal(self, given: dict, wanted: dict):
        self.assertEqual(set(given), set(wanted))
        for name, tensor in wanted.items():
            with self.subTest(name):
                tensor, other = tensor.detach().contiguous(), given[name].contiguous()
                self.assertEqual((other.dtype, other.shape), (tensor.dtype, tensor.shape))
                self.assertTrue(torch.equal(other.flatten().view(torch.uint8), tensor.flatten().view(torch.uint8)))

    def imported(self, saved, wanted: dict, change=None, **how):
        """Saves in Python, imports, and compares what Python then loads. Returns what the command said."""
        source, target = self.folder / "a.pth", self.folder / "a.safetensors"
        torch.save(saved, source, **how)
        if change:
            change(source)
        said = checkpoint_command("import", source, target)
        checkpoint_command("export", target, self.folder / "b.pt")
        self.assert_equal(torch.load(self.folder / "b.pt"), wanted)
        self.assert_equal(torch.load(self.folder / "b.pt", weights_only=False), wanted)
        return said

    def test_both_formats_and_every_protocol(self):
        weights = trained_net()[0].state_dict()
        self.imported(weights, weights)
        for protocol in (2, 3, 4, 5):
            for zipped in (True, False):
                with self.subTest(protocol=protocol, zipped=zipped):
                    self.imported(weights, weights, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)

    def test_every_dtype(self):
        numbers = {str(dtype): torch.arange(6).reshape(2, 3).to(dtype) for dtype in DTYPES}
        numbers["scalar"] = torch.tensor(2.5)
        numbers["empty"] = torch.empty(0, 3)
        self.imported(numbers, numbers)
        self.imported(numbers, numbers, _use_new_zipfile_serialization=False)

    def test_shared_storages_and_strides(self):
        base = torch.arange(24.0).reshape(2, 3, 4)
        views = {"base": base, "turned": base.permute(2, 0, 1), "part": base[1, 1:, ::2], "row": base[0, 0],
                 "expanded": base[0, 0, :1].expand(5), "tied": base,
                 "last": torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)}
        self.imported(views, views)
        self.imported(views, views, _use_new_zipfile_serialization=False)

    def test_what_is_no_tensor_of_its_bytes_is_left_out(self):
        numbers = torch.tensor([1 + 2j, 3 - 4j])
        for name, view in (("conjugate", numbers.conj()), ("negative", numbers.conj().imag)):
            for zipped in (True, False):
                with self.subTest(name, zipped=zipped):
                    said = self.imported({"a": torch.ones(2), name: view}, {"a": torch.ones(2)},
                                         _use_new_zipfile_serialization=zipped)
                    self.assertIn(f"left out: {name}", said)

    def test_of_a_gpu(self):
        weights = trained_net()[0].state_dict()
        self.imported(weights, weights, change=archive_on_cuda)
        self.imported(weights, weights, change=lambda path: path.write_bytes(on_cuda(path.read_bytes())),
                      _use_new_zipfile_serialization=False)

    def test_of_data_parallel_and_of_an_average(self):
        net = trained_net()[0]
        weights = net.state_dict()
        self.imported(torch.nn.DataParallel(net).state_dict(), weights)
        self.imported(torch.optim.swa_utils.AveragedModel(net).state_dict(), weights)
        self.imported({"module." + name: value for name, value in weights.items()}, weights)

    def test_checkpoint_of_torchvisions_trainer(self):
        """references/classification/train.py saves these entries."""
        net, optimizer = trained_net()
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 30)
        ema = torch.optim.swa_utils.AveragedModel(torch.nn.Linear(1, 1))
        checkpoint = {"model": net.state_dict(), "optimizer": optimizer.state_dict(),
                      "lr_scheduler": schedule.state_dict(), "epoch": 3,
                      "args": argparse.Namespace(lr=0.1, model="resnet18", data=pathlib.Path("/data")),
                      "model_ema": ema.state_dict(), "scaler": torch.amp.GradScaler("cpu").state_dict()}
        for zipped in (True, False):
            said = self.imported(checkpoint, net.state_dict(), _use_new_zipfile_serialization=zipped)
            self.assertIn("left out: args, argparse.Namespace", said)
            self.assertIn("left out: epoch, 3", said)
            self.assertIn("left out: optimizer, a dictionary", said)

    def test_checkpoint_of_pytorchs_imagenet_example(self):
        net, optimizer = trained_net()
        self.imported({"epoch": 1, "arch": "net", "state_dict": {"module." + k: v for k, v in net.state_dict().items()},
                       "best_acc1": torch.tensor(71.5), "optimizer": optimizer.state_dict()}, net.state_dict())

    def test_parameters_are_their_tensors(self):
        net = trained_net()[0]
        self.imported(dict(net.named_parameters()), dict(net.named_parameters()))

    def test_nothing_is_executed(self):
        class Hostile:
            def __reduce__(self):
                return (pathlib.Path.touch, (pathlib.Path("ran"),))
        weights = trained_net()[0].state_dict()
        with contextlib.chdir(self.folder):
            said = self.imported({"model": weights, "trap": Hostile()}, weights)
            self.assertFalse(pathlib.Path("ran").exists())
        self.assertIn("left out: trap", said)

    def test_whole_modules_and_damage_are_refused(self):
        net = trained_net()[0]
        torch.save(net, self.folder / "net.pt")
        self.assertIn("save the state_dict() of a model",
                      checkpoint_command("import", self.folder / "net.pt", self.folder / "a.safetensors", code=2))
        torch.save(net.state_dict(), self.folder / "a.pt")
        content = (self.folder / "a.pt").read_bytes()
        (self.folder / "a.pt").write_bytes(content[:-100])
        self.assertIn("the archive is cut off",
                      checkpoint_command("import", self.folder / "a.pt", self.folder / "a.safetensors", code=2))
        with zipfile.ZipFile(io.BytesIO(content)) as source, \
                zipfile.ZipFile(self.folder / "a.pt", "w", zipfile.ZIP_DEFLATED) as packed:
            for name in source.namelist():
                packed.writestr(name, source.read(name))
        self.assertIn("compressed or encrypted",
                      checkpoint_command("import", self.folder / "a.pt", self.folder / "a.safetensors", code=2))
        self.assertFalse((self.folder / "a.safetensors").exists())

    def test_what_is_written_is_an_archive_of_torch(self):
        weights = trained_net()[0].state_dict()
        torch.save(weights, self.folder / "a.pt")
        for name in ("b.pt", "c.pth"):
            checkpoint_command("export", self.folder / "a.pt", self.folder / name)
        self.assertEqual((self.folder / "b.pt").read_bytes(), (self.folder / "c.pth").read_bytes())
        loaded = torch.load(self.folder / "b.pt", mmap=True)
        self.assertIsInstance(loaded, collections.OrderedDict)
        self.assert_equal(loaded, weights)
        Net().load_state_dict(loaded)
        with zipfile.ZipFile(self.folder / "b.pt") as file:
            self.assertIsNone(file.testzip())
            self.assertTrue(all(entry.compress_type == zipfile.ZIP_STORED for entry in file.infolist()))

    def test_diff_and_average(self):
        a, b = trained_net()[0].state_dict(), trained_net()[0].state_dict()
        b["fc.bias"] = b["fc.bias"] + torch.tensor([0.0, 0.25])
        b["bn.num_batches_tracked"] += 4
        torch.save(a, self.folder / "a.pt")
        torch.save({"model": b}, self.folder / "b.pt")
        self.assertIn("equal to the bit", checkpoint_command("diff", self.folder / "a.pt", self.folder / "a.pt"))
        said = checkpoint_command("diff", self.folder / "a.pt", self.folder / "b.pt", code=1)
        self.assertIn("fc.bias: F32 [2], 1 of 2 elements differ", said)
        self.assertIn("bn.num_batches_tracked: I64 [], 1 of 1 elements differ, by 4 at most", said)
        self.assertEqual(len(said.splitlines()), 2)
        checkpoint_command("diff", self.folder / "a.pt", self.folder / "gone.pt", code=2)
        checkpoint_command("average", self.folder / "mean.safetensors", self.folder / "a.pt", self.folder / "b.pt")
        mean = read_safetensors(self.folder / "mean.safetensors")
        for name, tensor in a.items():
            wanted = ((tensor.double() + b[name].double()) / 2).to(tensor.dtype) if tensor.is_floating_point() else b[name]
            self.assertTrue(torch.equal(mean[name], wanted), name)

    def test_average_of_16_bits(self):
        torch.manual_seed(3)
        for dtype in (torch.float16, torch.bfloat16):
            files = [{"w": torch.randn(1000).to(dtype)} for _ in range(3)]
            for number, weights in enumerate(files):
                torch.save(weights, self.folder / f"{number}.pt")
            checkpoint_command("average", self.folder / "mean.pt", *(self.folder / f"{n}.pt" for n in range(3)))
            exact = sum(weights["w"].double() for weights in files) / 3
            given = torch.load(self.folder / "mean.pt")["w"]
            self.assertEqual(given.dtype, dtype)
            nearest = (exact - given.double()).abs()
            for way in (1, -1):  # the numbers beside it, as bits
                beside = (given.view(torch.int16) + way).view(dtype).double()
                self.assertTrue(((nearest <= (exact - beside).abs()) | (nearest == 0)).all())

    def test_a_model_trains_on(self):
        """The weights of Python's model, through --weights of lockstep train and back."""
        for name, prefix in (("a.pth", ""), ("b.pth.tar", "module.")):
            lockstep.initial_weights("mlp", 3, self.folder / "ours.safetensors")
            weights = read_safetensors(self.folder / "ours.safetensors")
            torch.save({"model": {prefix + key: value for key, value in weights.items()}, "epoch": 1}, self.folder / name)
            lockstep.initial_weights("mlp", 5, self.folder / "again.safetensors", "--weights", self.folder / name)
            self.assert_equal(read_safetensors(self.folder / "again.safetensors"), weights)

    def test_a_resnet_of_torchvision(self):
        """As download.pytorch.org has them: the older format."""
        torch.manual_seed(4)
        weights = MODELS["resnet18"]().state_dict()
        for zipped in (True, False):
            torch.save(weights, self.folder / "resnet18.pth", _use_new_zipfile_serialization=zipped)
            lockstep.initial_weights("resnet18", 1, self.folder / "again.safetensors", "--weights",
                                     self.folder / "resnet18.pth", "--dataset", "cifar10", "--data-path", ".")
            self.assert_equal(read_safetensors(self.folder / "again.safetensors"), weights)
        # The published ones are older than BatchNorm's counts.
        torch.save({name: value for name, value in weights.items() if not name.endswith("num_batches_tracked")},
                   self.folder / "resnet18.pth", _use_new_zipfile_serialization=False)
        lockstep.initial_weights("resnet18", 1, self.folder / "again.safetensors", "--weights",
                                 self.folder / "resnet18.pth", "--dataset", "cifar10", "--data-path", ".")
        self.assert_equal(read_safetensors(self.folder / "again.safetensors"), weights)


if __name__ == "__main__":
    unittest.main()
