"""Makes the archive with which scripts/gpu_check.sh runs on a machine that has neither this tree nor a network, and checks there that
the machine can run what is in it.

usage: bundle.py make FILE --build DIR --criu FILE --cuda DIR
       bundle.py check FOLDER
"""

import argparse
import ctypes
import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Each with all it is linked with but the C library: the machine's own may be another distribution's.
PROGRAMS = ["bin/stasis", "bin/stasis-init", "bin/stasis-ghost", "bin/driver_checkpoint", "bin/driver_facts", "bin/call_cost",
            "bin/softgpud"]
PLAIN = ["lib/libstasis.so", "lib/softgpu/libcuda.so.1", "lib/softgpu/libcudart.so.13", "lib/softgpu/libcublas.so.13",
         "lib/softgpu/libcublasLt.so.13", "lib/softgpu/libcudnn.so.9", "lib/softgpu/libnccl.so.2", "tests/programs/holder"]
SAMPLES = ["counter", "vector", "stencil", "mlp_train", "gpt_train", "cnn_train", "nccl_ring", "ddp_train", "pipeline_train", "tp_train"]
TREE = ["scripts/gpu_check.sh", "scripts/gpu", "scripts/lib", "samples/run_cycle.py", "samples/torch", "docs/nvidia.md", "LICENSE"]
C_LIBRARY = re.compile(r"(ld-linux|lib(c|m|dl|rt|pthread|resolv|util)\.so)")
# What every machine has that runs programs in C++; a newer machine's is for a newer C library than an older machine has.
COMPILER_LIBRARY = re.compile(r"lib(stdc\+\+|gcc_s)\.so")
IMAGES = 4096  # of the data set: 60,000 would be most of the archive
SAMPLE_DATA = "/usr/share/datasets/fashion-mnist"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def libraries_of(program):
    """Paths of what the loader would load for it, the libraries of C and C++ left out."""
    found = set()
    for line in subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout.splitlines():
        match = re.match(r"\s*(\S+) => (/\S+)", line)
        if match and not C_LIBRARY.match(match[1]) and not COMPILER_LIBRARY.match(match[1]) and not match[1].startswith("libcuda"):
            found.add(match[2])
    return found


def dynamic_section(path):
    """What readelf says of it; nothing where the file is no program and no library."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return ""
    return output("readelf", "--dynamic", "--wide", path)


def needed_by(path):
    """Names of the libraries that the file is linked with."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic_section(path))


def files_of(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)


def lacking(folder):
    """(file, library) for each library that a file of the bundle needs, and that neither the bundle nor every machine has."""
    files = files_of(folder)
    there = {os.path.basename(path) for path in files}
    return [(os.path.relpath(path, folder), name) for path in files for name in needed_by(path)
            if name not in there and not C_LIBRARY.match(name) and not COMPILER_LIBRARY.match(name)]


def newest(path, name):
    """The newest version that the file names of symbols of `name`: GLIBC, of the C library, or GLIBCXX."""
    with open(path, "rb") as file:
        versions = re.findall(rb"%s_(\d+(?:\.\d+)+)" % name.encode(), file.read())
    return max((tuple(int(part) for part in version.split(b".")) for version in versions), default=(0, 0))


def needed(folder):
    """{name: version} of the libraries of C and C++ for what is run on NVIDIA's driver: the software device may need more."""
    files = [path for path in files_of(folder) if "/lib/softgpu/" not in path and os.path.basename(path) != "softgpud"
             and (path.count("/build/") or path.count("/libraries/") or path.count("/bin/"))]
    return {name.lower(): list(max(newest(path, name) for path in files)) for name in ("GLIBC", "GLIBCXX")}


def library_in_use(name):
    """Where the loader of this machine finds it; None: nowhere."""
    try:
        ctypes.CDLL(name)
    except OSError:
        return None
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return next((line[line.index("/"):].strip() for line in maps if os.path.basename(line.strip()).startswith(name)), None)


def shorten(source, target):
    """The first images, or labels, of an IDX file."""
    with gzip.open(source, "rb") as file:
        data = file.read()
    magic, count = struct.unpack(">II", data[:8])
    kept = min(count, IMAGES)
    header = 8 + 4 * ((magic & 0xff) - 1)
    body = data[header:header + kept * ((len(data) - header) // count)]
    with open(target, "wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as file:
        file.write(data[:4] + struct.pack(">I", kept) + data[8:header] + body)


def look_in(path, place):
    """Where the loader looks for what the program or library is linked with; "": nowhere but at its own places, no more at those of the
    build. Not of the environment, which programs that they start would have, too; and of the old kind, which counts for what the
    libraries themselves are linked with."""
    if place:
        subprocess.run(["patchelf", "--force-rpath", "--set-rpath", place, path], check=True)
    elif re.search(r"\((RPATH|RUNPATH)\)", dynamic_section(path)):
        subprocess.run(["patchelf", "--remove-rpath", path], check=True)


def install(source, target, folder):
    path = os.path.join(folder, target)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    shutil.copy(source, path)
    if not os.path.islink(path):
        os.chmod(path, 0o755)
    subprocess.run(["strip", "--strip-unneeded", path], check=True, capture_output=True)
    return path


def fill(folder, build, criu, cuda):
    for name in TREE:
        source, target = os.path.join(ROOT, name), os.path.join(folder, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.isdir(source):
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    libraries = set()
    programs = [(os.path.join(build, name), "build/release/" + name) for name in PROGRAMS] + [(criu, "bin/criu")]
    for source, target in programs:
        path = install(source, target, folder)
        wanted = libraries_of(source)
        libraries |= wanted
        look_in(path, f"$ORIGIN/{'../' * target.count('/')}libraries" if wanted else "")
    for library in sorted(libraries):
        install(os.path.realpath(library), "libraries/" + os.path.basename(library), folder)
    for name in PLAIN + ["samples/" + name for name in SAMPLES]:
        path = install(os.path.realpath(os.path.join(build, name)), "build/release/" + name, folder)
        look_in(path, "$ORIGIN" if name.startswith("lib/softgpu/") else "")
    for place in ("lib64", "lib"):
        runtime = os.path.join(cuda, place, "libcudart.so.13")
        if os.path.exists(runtime):
            install(os.path.realpath(runtime), "runtime/libcudart.so.13", folder)
            break
    os.makedirs(os.path.join(folder, "data"))
    for name in sorted(os.listdir(SAMPLE_DATA)):
        shorten(os.path.join(SAMPLE_DATA, name), os.path.join(folder, "data", name))


def dotted(version):
    return ".".join(map(str, version))


def make(given):
    with tempfile.TemporaryDirectory(prefix="stasis-bundle-") as work:
        folder = os.path.join(work, "stasis-gpu-check")
        os.mkdir(folder)
        fill(folder, given.build, given.criu, given.cuda)
        if lacks := lacking(folder):
            sys.exit("bundle: not on this machine: " + ", ".join(f"{name} (of {path})" for path, name in lacks))
        versions = needed(folder)
        with open(os.path.join(folder, "bundle.json"), "w", encoding="utf-8") as file:
            json.dump({"version": output("git", "-C", ROOT, "rev-parse", "--short", "HEAD").strip(), "machine": os.uname().machine,
                       **versions}, file)
        with tarfile.open(given.file, "w:gz") as archive:
            archive.add(folder, "stasis-gpu-check")
    print(f"{given.file}: {os.path.getsize(given.file) / 2**20:.1f} MiB, needs glibc {dotted(versions['glibc'])}, libstdc++ with GLIBCXX "
          f"{dotted(versions['glibcxx'])}")


def check(folder):
    """Whether this machine can run what is in the bundle."""
    with open(os.path.join(folder, "bundle.json"), encoding="utf-8") as file:
        bundle = json.load(file)
    have = tuple(int(part) for part in os.confstr("CS_GNU_LIBC_VERSION").split()[1].split("."))
    if os.uname().machine != bundle["machine"]:
        sys.exit(f"gpu_check: the bundle is for {bundle['machine']}, this machine is {os.uname().machine}")
    if have < tuple(bundle["glibc"]):
        sys.exit(f"gpu_check: the bundle needs glibc {dotted(bundle['glibc'])}, this machine has {dotted(have)}; "
                 "make it on an older distribution")
    library = library_in_use("libstdc++.so.6")
    if not library:
        sys.exit("gpu_check: there is no libstdc++.so.6 on this machine: install it (libstdc++6)")
    if newest(library, "GLIBCXX") < tuple(bundle["glibcxx"]):
        sys.exit(f"gpu_check: the bundle needs a libstdc++ with GLIBCXX {dotted(bundle['glibcxx'])}, {library} has "
                 f"{dotted(newest(library, 'GLIBCXX'))}; make it on an older distribution")


def main():
    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers(dest="verb", required=True)
    making = verbs.add_parser("make")
    making.add_argument("file")
    for name in ("build", "criu", "cuda"):
        making.add_argument("--" + name, required=True)
    verbs.add_parser("check").add_argument("folder")
    given = parser.parse_args()
    if given.verb == "make":
        make(given)
    else:
        check(given.folder)


if __name__ == "__main__":
    main()
