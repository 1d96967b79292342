"""Writes lockstep_torch as a wheel: a zip file by the rules of PEP 427, for which no package is needed.

wheel.py --package FOLDER --program FILE --suffix .cpython-311-x86_64-linux-gnu.so --strip PROGRAM --license FILE --out FOLDER

The program becomes `lockstep` beside pip's own: `lockstep run` in torchrun's place.
"""
import argparse
import base64
import hashlib
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import zipfile

sys.dont_write_bytecode = True
PROGRAM = (stat.S_IFREG | 0o755) << 16
FILE = (stat.S_IFREG | 0o644) << 16


def stripped(file, strip) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([strip, "-o", f"{folder}/file", file], check=True)
        return pathlib.Path(folder, "file").read_bytes()


def constants(package) -> dict:
    found = {}
    exec((package / "_built.py").read_text(), found)
    return found


def tag_of(suffix) -> str:
    """.cpython-311-x86_64-linux-gnu.so -> cp311-cp311-linux_x86_64"""
    version, machine = re.fullmatch(r"\.cpython-(\d+)-(\w+)-linux-gnu\.so", suffix).groups()
    return f"cp{version}-cp{version}-linux_{machine}"


def contents(options, built) -> dict:
    """name -> (bytes, mode)"""
    info = f"lockstep_torch-{built['VERSION']}.dist-info"
    metadata = (f"Metadata-Version: 2.1\nName: lockstep_torch\nVersion: {built['VERSION']}\n"
                "Summary: torch.distributed's backend \"lockstep\", and the program lockstep\n"
                f"License: BSD-3-Clause\nRequires-Python: >=3.10\nRequires-Dist: torch=={built['TORCH_VERSION']}\n")
    wheel = (f"Wheel-Version: 1.0\nGenerator: lockstep\nRoot-Is-Purelib: false\nTag: {tag_of(options.suffix)}\n")
    module = f"_backend{options.suffix}"
    files = {f"lockstep_torch/{name}": ((options.package / name).read_bytes(), FILE) for name in ("__init__.py", "_built.py")}
    files[f"lockstep_torch/{module}"] = (stripped(options.package / module, options.strip), PROGRAM)
    files[f"lockstep_torch-{built['VERSION']}.data/scripts/lockstep"] = (stripped(options.program, options.strip), PROGRAM)
    files[f"{info}/LICENSE"] = (options.license.read_bytes(), FILE)
    files[f"{info}/METADATA"] = (metadata.encode(), FILE)
    files[f"{info}/WHEEL"] = (wheel.encode(), FILE)
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, (data, _) in files.items())
    files[f"{info}/RECORD"] = ((record + f"{info}/RECORD,,\n").encode(), FILE)
    return files


def digest(data) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--package", "--program", "--license", "--out"):
        parser.add_argument(flag, type=pathlib.Path, required=True)
    for flag in ("--suffix", "--strip"):
        parser.add_argument(flag, required=True)
    options = parser.parse_args()
    built = constants(options.package)
    options.out.mkdir(parents=True, exist_ok=True)
    target = options.out / f"lockstep_torch-{built['VERSION']}-{tag_of(options.suffix)}.whl"
    partial = target.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (data, mode) in contents(options, built).items():
            entry = zipfile.ZipInfo(name)  # of 1980: the same bytes of the same files
            entry.external_attr = mode
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    partial.replace(target)
    print(target)


if __name__ == "__main__":
    main()
