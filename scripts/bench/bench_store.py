"""The image store: its stages beside memory and disk, the size of chunks, and other stores on the same bytes.

Every write is measured to stable storage (fdatasync, fsync of folders). Before every read the files' pages are dropped from
the page cache (posix_fadvise); what a virtual machine's host keeps of its disk nobody here can drop.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import report
from plain_dump import PlainProgram, checked, tree_bytes
from softgpu import built, die_with_parent
from stasis_job import Site

RUNS = int(os.environ.get("STASIS_BENCH_RUNS", "6"))
MIB = os.environ.get("STASIS_BENCH_STORE_MIB", "512")
CHUNK = 64 << 10
KINDS = ("incompressible", "weights", "mostly-zero")
CHUNKS = [4096 << i for i in range(9)]
CORES = sorted(os.sched_getaffinity(0))
GB = 1e9

# Programs, lines that tell that they are at work, and where the second image is taken.
SAMPLES = {"mlp_train": (["--steps", "1000000", "--log-every", "20"], "step 20 ", "step 60 "),
           "gpt_train": (["--steps", "1000000"], "step 3 ", "step 6 ")}


def store_bench(*words, cores=None):
    chosen = CORES[:cores] if cores else CORES

    def before():
        die_with_parent()
        os.sched_setaffinity(0, chosen)

    result = subprocess.run([built("bin/store_bench"), *[str(word) for word in words]], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, check=False, preexec_fn=before)
    if result.returncode != 0:
        sys.exit(f"store_bench {' '.join(map(str, words))}: {result.stderr}")
    return json.loads(result.stdout)


def rate_row(name, rounds, key, base_key, goal=None, limit=None):
    base = [min(r[k] for k in base_key) / GB for r in rounds]
    result = report.row(name, "GB/s", [r[key] / GB for r in rounds], base, goal)
    if goal is not None:
        result["met"] = result["ratio"] >= limit
    return result


def stages(folder, kind, cores):
    rounds = []
    for run in range(RUNS):
        print(f"{kind}, {cores} core(s), run {run + 1} of {RUNS}", file=sys.stderr, flush=True)
        rounds.append(store_bench("rates", folder, kind, MIB, cores, CHUNK, ("disk", "store")[run % 2],
                                  cores=cores))
    head = f"{kind}, {cores} core{'s' if cores > 1 else ''}: "
    goal = ">= 0.8 of the slower of hash and disk" if kind == "incompressible" else None
    return [rate_row(head + "hash / memcpy", rounds, "hash", ["memcpy"]),
            rate_row(head + "compress / memcpy", rounds, "compress", ["memcpy"]),
            rate_row(head + "all known / hash", rounds, "dedup", ["hash"]),
            rate_row(head + "write / slower of hash, disk", rounds, "write", ["hash", "raw_write"], goal, 0.8),
            rate_row(head + "read / disk", rounds, "read", ["raw_read"]),
            report.row(head + "size / bytes", "MiB", [r["pack_bytes"] / 2**20 for r in rounds],
                       [r["bytes"] / 2**20 for r in rounds])]


def take_images(site):
    """Two successive checkpoints of each sample: the store's root, and the images by sample."""
    images = {}
    for name, (options, first, second) in SAMPLES.items():
        job = site.start(name, built(f"samples/{name}"), *options)
        images[name] = []
        for line in (first, second):
            job.wait_for_output(line)
            images[name].append(f"{name}/{job.verb('checkpoint')['image']}")
        job.verb("cancel")
        job.wait()
    return os.path.join(site.state, "store"), images


def sparsely_changed(folder):
    """Two folders with one file each, of random bytes; in the second a page of a hundred is another, as with a large table of
    which each step changes some rows."""
    page, pages = 4096, 32768
    content = bytearray(os.urandom(page * pages))
    folders = []
    for name in ("before", "after"):
        folders.append(os.path.join(folder, name))
        os.mkdir(folders[-1])
        with open(os.path.join(folders[-1], "table"), "wb") as file:
            file.write(content)
        for index in random.Random(1).sample(range(pages), pages // 100):
            content[index * page:(index + 1) * page] = os.urandom(page)
    return folders


def chunk_curve(folder, root, images, dumps):
    rows = []
    sources = {f"device memory of {name}": lambda chunk, pair=pair: ("streams", folder, chunk, 1, len(CORES), root, *pair)
               for name, pair in images.items()}
    sources["CRIU's dumps of mlp_train"] = lambda chunk: ("folders", folder, chunk, 1, *dumps)
    changed = sparsely_changed(folder)
    sources["1% of pages changed"] = lambda chunk: ("folders", folder, chunk, 1, *changed)
    for name, command in sources.items():
        rounds = {chunk: [] for chunk in CHUNKS}
        for run in range(RUNS):
            print(f"chunks of {name}, run {run + 1} of {RUNS}", file=sys.stderr, flush=True)
            for chunk in CHUNKS if run % 2 == 0 else reversed(CHUNKS):
                rounds[chunk].append(store_bench(*command(chunk)))
        for chunk, results in rounds.items():
            head = f"{name}, {chunk >> 10} KiB: "
            rows.append(report.row(head + "size of two images", "MiB", [r["stored_bytes"] / 2**20 for r in results],
                                   [r["bytes"] / 2**20 for r in results]))
            rows.append(report.row(head + "added by the second", "MiB", [r["added"][1] / 2**20 for r in results],
                                   [r["bytes"] / 2**21 for r in results]))
            rows.append(report.row(head + "write", "GB/s", [r["write"] / GB for r in results]))
            rows.append(report.row(head + "read", "GB/s", [r["read"] / GB for r in results]))
    return rows


def plain_dumps(site, folder):
    """Two successive dumps of a training run by the driver's checkpoint and CRIU."""
    options, first, second = SAMPLES["mlp_train"]
    program = PlainProgram(site.node.env(), [built("samples/mlp_train"), *options], first)
    dumps = []
    for line in (first, second):
        program.wait_for(line)
        program.driver("lock", "checkpoint")
        dumps.append(os.path.join(folder, f"dump-{len(dumps)}"))
        program.dump(dumps[-1], "--leave-running")
        program.driver("restore", "unlock")
    program.end()
    return dumps


def timed(command, **options):
    started = time.monotonic()
    checked(command, **options)
    checked(["sync", "-f", options["cwd"]])
    return time.monotonic() - started


def by_zstd(folder, dumps):
    seconds = sum(timed(["bash", "-c", 'set -o pipefail; tar -C "$1" -c . | zstd -q -T0 -1 -o "$2"', "-", dump, f"{i}.tar.zst"],
                        cwd=folder) for i, dump in enumerate(dumps))
    return seconds, tree_bytes(folder)


def by_borg(folder, dumps):
    env = dict(os.environ, BORG_BASE_DIR=os.path.join(folder, "borg"), BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK="yes",
               BORG_RELOCATED_REPO_ACCESS_IS_OK="yes")
    repository = os.path.join(folder, "repository")
    checked(["borg", "init", "-e", "none", repository], env)
    seconds = sum(timed(["borg", "create", "-C", "zstd,1", f"{repository}::{i}", "."], env=env, cwd=dump)
                  for i, dump in enumerate(dumps))
    return seconds, tree_bytes(repository)


def other_stores(folder, dumps):
    """The same two dumps into each store, alternately."""
    size = sum(os.path.getsize(os.path.join(at, name)) for dump in dumps for at, _, names in os.walk(dump) for name in names)
    others = {"criu dump + zstd -T0": by_zstd, "borg": by_borg}
    ours, theirs = [], {name: [] for name in others}
    for run in range(RUNS):
        print(f"other stores, run {run + 1} of {RUNS}", file=sys.stderr, flush=True)
        result = store_bench("folders", folder, CHUNK, 1, *dumps)
        ours.append((result["bytes"] / result["write"], result["stored_bytes"]))
        for name, store in others.items():
            place = tempfile.mkdtemp(prefix="other-", dir=folder)
            theirs[name].append(store(place, dumps))
            shutil.rmtree(place)
    rows = [report.row("two dumps of mlp_train: ours / raw", "MiB", [size_of / 2**20 for _, size_of in ours],
                       [size / 2**20] * len(ours))]
    for name, results in theirs.items():
        rows.append(report.row(f"two dumps: size, ours / {name}", "MiB", [s / 2**20 for _, s in ours],
                               [s / 2**20 for _, s in results]))
        rows.append(report.row(f"two dumps: time, ours / {name}", "s", [t for t, _ in ours], [t for t, _ in results]))
    return rows


def main():
    rows = []
    with tempfile.TemporaryDirectory(prefix="store-bench-", dir=os.environ.get("STASIS_BENCH_DISK")) as folder:
        for kind in KINDS:
            for cores in range(1, min(len(CORES), 2) + 1):
                rows += stages(folder, kind, cores)
        with Site("--gpus", "1", "--memory", "2GiB") as site:
            root, images = take_images(site)
            dumps = plain_dumps(site, folder)
            rows += chunk_curve(folder, root, images, dumps)
            rows += other_stores(folder, dumps)
    report.write(sys.argv[1], "store", RUNS, rows)


if __name__ == "__main__":
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    main()
