"""What the toolkit's public headers say about the driver API: names, prototypes and versions."""
import re
import subprocess

HEADERS = ["cuda.h", "cudaProfiler.h", "cudaTypedefs.h", "cudaProfilerTypedefs.h"]
SUFFIX = r"(?:_v(\d+))?(_pt[ds][sz])?"


def preprocess(cxx, include):
    """All the headers' text with every version of every function visible under its exact name."""
    command = [cxx, "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", "-I" + include, "-xc++"]
    for header in HEADERS:
        command += ["-include", header]
    return subprocess.run(command + ["/dev/null"], capture_output=True, text=True, check=True).stdout


def prototypes(text):
    """Name -> list of (declaration, parameter name)."""
    found = {}
    for name, params in re.findall(r"CUresult\s+(cu\w+)\s*\(([^;{]*?)\)\s*;", text):
        parts = [" ".join(p.split()) for p in params.split(",")]
        found[name] = [(p, re.search(r"(\w+)(\[\w*\])?$", p)[1]) for p in parts if p != "void" and p]
    return found


def introduced(text):
    """(base name, "" or "_ptsz"/"_ptds") -> sorted CUDA versions, one for each version of the function."""
    table = {}
    for base, version, suffix in re.findall(r"\(\s*\*\s*PFN_(cu\w+?)_v(\d+)((?:_pt[ds][sz])?)\s*\)", text):
        table.setdefault((base, suffix), set()).add(int(version))
    return {key: sorted(versions) for key, versions in table.items()}


def split(name):
    """cuMemcpy3D_v2_ptds -> ("cuMemcpy3D", 2, "_ptds")."""
    match = re.fullmatch(r"(cu\w+?)" + SUFFIX, name)
    return match[1], int(match[2] or 1), match[3] or ""
