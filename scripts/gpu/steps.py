"""The steps of the check. Each takes the place and the amount of work, and returns a sentence and details, or raises Failed or
Absent."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
import uuid as uuid_module

from place import ROOT, Absent, Failed, FailedAlone, run
import symbols

sys.path.insert(0, os.path.join(ROOT, "samples"))
import run_cycle  # noqa: E402  pylint: disable=wrong-import-position

NO_TIME = 5  # a step that has less than that left is not begun
LINES = r"^(step|round|iteration|sha256|rank|test accuracy|digest) ?"

# name: (program and arguments on softgpu, on NVIDIA's driver)
SAMPLES = {
    "vector": (["vector", "--elements", "20000", "--rounds", "3"], ["vector"]),
    "stencil by capture": (["stencil", "--width", "64", "--height", "64", "--iterations", "60"], ["stencil", "--iterations", "5000"]),
    "stencil by explicit graph": (["stencil", "--width", "64", "--height", "64", "--iterations", "60", "--graph", "explicit"],
                                  ["stencil", "--iterations", "5000", "--graph", "explicit"]),
    "mlp_train": (["mlp_train", "--steps", "6", "--batch", "32", "--width", "32"], ["mlp_train", "--steps", "2000"]),
    "gpt_train": (["gpt_train", "--steps", "4", "--batch", "2", "--context", "16", "--layers", "1", "--width", "16"],
                  ["gpt_train", "--steps", "200"]),
    "gpt_train with cuBLAS": (["gpt_train", "--blas", "--steps", "4", "--batch", "2", "--context", "16", "--layers", "1", "--width",
                               "16"], ["gpt_train", "--blas", "--steps", "200"]),
    "cnn_train with cuDNN": (["cnn_train", "--steps", "4", "--batch", "8", "--channels", "4", "--hidden", "16", "--test", "64"],
                             ["cnn_train"]),
    "nccl_ring": (["nccl_ring", "--ranks", "2", "--elements", "1000", "--rounds", "3"], ["nccl_ring", "--ranks", "{gpus}"]),
    "ddp_train": (["ddp_train", "--steps", "4", "--batch", "8", "--width", "32", "--layers", "2", "--rows", "64"], ["ddp_train"]),
    "pipeline_train": (["pipeline_train", "--steps", "4", "--batch", "8", "--micro-batches", "2", "--width", "16", "--layers", "2",
                        "--rows", "64"], ["pipeline_train"]),
    "tp_train": (["tp_train", "--steps", "4", "--batch", "8", "--width", "16", "--blocks", "1", "--rows", "64"], ["tp_train"]),
}
DEMO = (["gpt_train", "--steps", "40", "--batch", "2", "--context", "16", "--layers", "1", "--width", "16", "--log-every", "1", "--pace-ms",
         "300"], ["mlp_train", "--steps", "600", "--log-every", "1", "--pace-ms", "20"])
TORCH = [["mlp.py", "--steps", "60"], ["mlp.py", "--steps", "60", "--graphs", "--expandable"],
         ["cnn.py", "--steps", "40", "--amp", "fp16", "--workers", "2", "--pin"], ["gpt.py", "--steps", "40", "--amp", "bf16"],
         ["gpt.py", "--steps", "40", "--compile"]]
TORCH_MORE = [["mlp.py", "--steps", "60", "--compile", "--expandable"], ["cnn.py", "--steps", "40", "--graphs", "--amp", "bf16"],
              ["cnn.py", "--steps", "40", "--compile", "--workers", "2", "--pin"], ["gpt.py", "--steps", "40", "--graphs"],
              ["gpt.py", "--steps", "40", "--compile", "--amp", "bf16", "--expandable", "--workers", "2"]]


class Work:
    """How much is to be done: the deadline of the whole check, and whether everything is wanted."""

    def __init__(self, minutes, full):
        self.end = time.monotonic() + 60 * minutes
        self.full = full

    def left(self):
        return self.end - time.monotonic()

    def limit(self, most):
        """Seconds for one command."""
        if self.left() < NO_TIME:
            raise Absent("no time is left; --minutes gives more")
        return min(most, self.left())


def each(what, parts):
    """Runs `parts`, pairs of a name and a function, one after the other; Failed names those that failed, after all have run."""
    details, failed, absent = {}, [], []
    for name, part in parts:
        try:
            details[name] = part()
        except (Absent, run_cycle.UndisturbedFailed) as reason:
            details[name] = {"absent": str(reason), "failed_alone": isinstance(reason, (FailedAlone, run_cycle.UndisturbedFailed))}
            absent.append(name)
        except (Failed, run_cycle.CycleFailed) as reason:
            details[name] = {"failed": str(reason), "logs": getattr(reason, "logs", {})}
            failed.append(name)
    if failed:
        error = Failed(f"{', '.join(failed)}: {details[failed[0]]['failed']}")
        error.details = details
        raise error
    if len(absent) == len(details):
        error = Absent(details[absent[0]]["absent"] if absent else f"no {what}")
        error.details = details
        raise error
    note = f"; absent: {', '.join(absent)} ({details[absent[0]]['absent']})" if absent else ""
    return f"{len(details) - len(absent)} {what}{note}", details


# What in the environment, or on the machine, changes how drivers and libraries behave.
VARIABLES = r"(CUDA|NVIDIA|NCCL|CUDNN|CUBLAS|PYTORCH|TORCH|TRITON|GPU_CHECK)_|LD_(PRELOAD|LIBRARY_PATH)$"
FACTS = ["/proc/driver/nvidia/version", "/proc/driver/nvidia/params", "/sys/module/nvidia/version", "/proc/sys/kernel/yama/ptrace_scope"]


def text_of(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4000).strip()
    except OSError as error:
        return error.strerror


def managed(place, work, details):
    """What NVIDIA's own tool says, where it is there."""
    query = "name,uuid,driver_version,memory.total,persistence_mode,mig.mode.current,ecc.mode.current,compute_mode,pci.bus_id"
    try:
        smi = run(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"], work.limit(60))
    except (Absent, Failed) as reason:
        details["nvidia-smi"] = str(reason)
        return ""
    details["gpus"] = [dict(zip(query.split(","), (part.strip() for part in line.split(",")))) for line in smi.stdout.splitlines()]
    details["confidential_compute"] = run(["nvidia-smi", "conf-compute", "-f"], work.limit(60), check=False).stdout.strip()
    details["topology"] = run(["nvidia-smi", "topo", "-m"], work.limit(60), check=False).stdout.strip()
    return f", release {details['gpus'][0]['driver_version']}"


def machine(place, work):
    """What the report is about."""
    seen = place.look()
    details = {"kernel": os.uname().release, "python": sys.version.split()[0], "glibc": os.confstr("CS_GNU_LIBC_VERSION"),
               "driver": place.driver, "driver_file": os.path.realpath(place.driver), "loader_knows_driver": place.loader_knows_driver,
               "cuda": seen["version"], "devices": seen["devices"], "libraries": place.libraries, "criu": place.criu,
               "environment": {name: value for name, value in os.environ.items() if re.match(VARIABLES, name)},
               "files": {path: text_of(path) for path in ["/etc/os-release", *([] if place.soft else FACTS)]}}
    if place.soft:
        return f"{place.gpus} software devices", details
    details["device_files"] = sorted(name for name in os.listdir("/dev") if name.startswith("nvidia"))
    details["mps"] = os.path.exists(os.path.join(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control"))
    release = managed(place, work, details)
    version = seen["version"]
    return f"{place.gpus} x {seen['devices'][0]['name']}, CUDA {version // 1000}.{version % 1000 // 10}{release}", details


def doctor(place, _):
    answer = place.doctor()
    lacking = [verb for verb, works in answer["works"].items() if not works]
    if lacking:
        missing = [f"{f['name']}: {f['detail']}" for f in answer["findings"] if not f["ok"] and f["needed_for"]]
        error = Failed(f"{', '.join(lacking)} will not work: {'; '.join(missing)}")
        error.details = answer
        raise error
    return "run, pause and checkpoint can work", answer


def driver_symbols(place, _):
    """Of all names the interposer exports, those the driver lacks; and those of the driver that the interposer does not know."""
    ours, theirs = ({name for name in symbols.exported_functions(path) if re.match(r"cu[A-Z]", name)}
                    for path in (place.built("lib/libstasis.so"), place.driver))
    found = symbols.present(place.driver, ours)
    details = {"exported": len(ours), "present": len(found), "absent": sorted(ours - found), "unknown_to_interposer": sorted(theirs - ours),
               "bound_to_itself": symbols.bound_to_itself(place.driver)}
    if not found:
        error = Failed(f"{place.driver} has none of the {len(ours)} functions that the interposer exports")
        error.details = details
        raise error
    return f"{len(found)} of {len(ours)} are there; the driver has {len(theirs - ours)} others", details


def driver_facts(place, work):
    done = run([place.built("bin/driver_facts"), place.driver], work.limit(360), place.env(), check=False)
    facts = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    details = {fact["fact"]: fact for fact in facts}
    fails = [fact for fact in facts if fact["result"] == "fails" and fact["needed"]]
    if fails or not facts:
        error = Failed("; ".join(f"{f['fact']}: {f['detail']}" for f in fails) or done.stderr[-500:])
        error.details = details
        raise error
    return f"{sum(f['result'] == 'holds' for f in facts)} of {len(facts)} hold, all that are needed", details


def reads(program):
    """Options for what the sample reads: of the bundle where this is one, and not of where the sample was built."""
    if program == "gpt_train":
        return ["--text", os.path.join(ROOT, "LICENSE")]
    data = os.path.join(ROOT, "data")
    return ["--data", data] if program in ("mlp_train", "cnn_train") and os.path.isdir(data) else []


def sample_command(place, sizes):
    program, *arguments = sizes[0 if place.soft else 1]
    return [place.built("samples/" + program), *(argument.format(gpus=place.gpus) for argument in arguments), *reads(program)]


def alone_under(place, command, limit, **extra):
    """What the program prints without stasis."""
    try:
        return run(command, limit, dict(place.env(), **extra)).stdout
    except Failed as reason:
        raise FailedAlone(f"without stasis it fails, too: {reason}") from None


def under_stasis(place, command, name, limit, options=(), **extra):
    """What the program prints as a task."""
    with run_cycle.Task(place.stasis, dict(place.stasis_env(), **extra), name, limit) as task:
        task.start([*place.run_options, *options], command)
        return task.finish()


def counted(port, limit):
    """What the counter answers to a client."""
    with socket.create_connection(("127.0.0.1", port), limit) as client, client.makefile("rw") as lines:
        answers = []
        for request in ("inc", "inc", "get"):
            lines.write(request + "\n")
            lines.flush()
            answers.append(lines.readline().strip())
        lines.write("quit\n")
        lines.flush()
        return answers


def counter(place, limit):
    command = [place.built("samples/counter")]
    with subprocess.Popen(command, env=place.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as plain:
        try:
            line = plain.stdout.readline()
            expected = counted(int(line.rsplit(":", 1)[1]), limit)
        except (IndexError, ValueError):
            raise Failed(f"counter printed {line!r}") from None
        finally:
            plain.kill()
    with run_cycle.Task(place.stasis, place.stasis_env(), "counter", limit) as task:
        task.start(place.run_options, command)
        task.wait_for(lambda text: re.search(r"127\.0\.0\.1:\d+\n", text), "port")
        got = counted(int(re.search(r":(\d+)\n", task.output())[1]), limit)
    if got != expected:
        raise Failed(f"counter answered {got} instead of {expected}")
    return {"answers": got}


def samples(place, work):
    """Every sample as a task prints what it prints alone."""
    place.need_runtime()

    def both(name, sizes):
        limit = work.limit(120)
        command = sample_command(place, sizes)
        alone = alone_under(place, command, limit)
        run_cycle.compare(name, alone, under_stasis(place, command, re.sub(r"\W+", "-", name), limit), LINES)
        return {"lines": len(alone.splitlines())}
    parts = [(name, lambda name=name, sizes=sizes: both(name, sizes)) for name, sizes in SAMPLES.items()]
    text, details = each("samples", [("counter", lambda: counter(place, work.limit(60))), *parts])
    check_some_ran([details[name] for name in SAMPLES], details)
    return text, details


def check_some_ran(parts, details):
    """Programs that all fail by themselves say nothing of stasis, and that the machine is not one to check it on."""
    broken = [part["absent"] for part in parts if part.get("failed_alone")]
    if broken and all("absent" in part for part in parts):
        error = Failed(f"no sample that uses a device runs here: {broken[0]}")
        error.details = details
        raise error


def late_library(place, work):
    """A library that is used only after the task has moved to another device."""
    if not place.can_move:
        raise Absent("needs two devices of one chip, and a driver of release 580 or newer")
    program = [sys.executable, os.path.join(ROOT, "scripts", "gpu", "late_library.py")]
    alone = alone_under(place, [*program, "/"], work.limit(120))
    if alone.splitlines()[-1:] != ["the same"]:
        raise FailedAlone(f"without stasis: {alone[-600:]}")
    hurry = os.path.join(place.work, "late")
    with run_cycle.Task(place.stasis, place.stasis_env(), "late-library", work.limit(120)) as task:
        task.start([*place.run_options, "--gpus", "0"], [*program, hurry])
        task.wait_for(lambda text: "ready" in text, "ready")
        task.verb("migrate", "--gpus", "1")
        with open(hurry, "w", encoding="utf-8"):
            pass
        printed = task.finish()
    if printed.splitlines()[-1:] != ["the same"]:
        raise Failed(printed[-600:])
    return {}


def devices(place, work):
    """NVIDIA's runtime starts although the program sees only some of the machine's devices, or sees them in another order."""
    place.need_runtime()
    if place.gpus < 2:
        raise Absent("needs two devices")
    command = sample_command(place, SAMPLES["vector"])

    def both(name, options, visible, alone):
        limit = work.limit(120)
        expected = alone_under(place, command, limit, CUDA_VISIBLE_DEVICES=alone)
        extra = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        run_cycle.compare(name, expected, under_stasis(place, command, "devices-" + name, limit, options, **extra), LINES)
        return {}
    uuid = str(uuid_module.UUID(place.look()["devices"][1]["uuid"]))
    parts = [("given-the-second", ["--gpus", "1"], None, "1"), ("sees-the-second", [], "1", "1"), ("sees-it-by-its-name", [], "GPU-" + uuid, "1"),
             ("sees-them-turned-round", [], "1,0", "1,0")]
    return each("ways", [*((part[0], lambda part=part: both(*part)) for part in parts), ("a-library-after-a-move", lambda: late_library(place, work))])


def cycle(place, work, program, name, options=(), which=("paused", "restored"), most=240, libraries=True):
    return run_cycle.run_cycle(program, stasis=place.stasis, env=place.env(libraries), run_env=place.stasis_env(libraries),
                               options=[*place.run_options, *options], lines=LINES, limit=work.limit(most), which=which, name=name)


def demo(strategy):
    def step(place, work):
        """A training undisturbed, paused and resumed, checkpointed, killed and restored, and moved where there are two devices."""
        place.need_runtime()
        which = ("paused", "restored") + (("moved",) if place.can_move else ())
        try:
            figures = cycle(place, work, sample_command(place, DEMO), f"demo-{strategy}", ["--strategy", strategy], which)
        except run_cycle.CycleFailed as reason:
            # By the book: NVIDIA's runtime keeps state behind tables of the driver that nobody else knows.
            if strategy == "reconstruct" and not place.soft and "has called cuGetExportTable" in str(reason):
                raise Absent(f"refused by name, as documented: {reason}") from None
            raise
        return f"the same {figures['steps']} losses after {', '.join(which)}", figures
    return step


def torch_python(place, limit):
    """A Python whose PyTorch sees the device."""
    if place.soft:
        raise Absent("PyTorch's libraries need NVIDIA's driver")
    python = shutil.which(os.environ.get("GPU_CHECK_PYTHON", "python3"))
    if not python:
        raise Absent("no python3")
    done = run([python, "-c", "import torch; print(torch.__version__, torch.cuda.is_available())"], limit, place.env(False), check=False)
    if done.returncode != 0:
        raise Absent("no PyTorch for " + python)
    if not done.stdout.strip().endswith("True"):
        raise Failed(f"PyTorch sees no device: {(done.stdout + done.stderr)[-300:]}")
    return python


def pytorch(place, work):
    python = torch_python(place, work.limit(120))

    def part(arguments):
        script = os.path.join(ROOT, "samples", "torch", arguments[0])
        return cycle(place, work, [python, script, "--pace-ms", "100", *arguments[1:]], arguments[0].replace(".py", ""), libraries=False)
    programs = TORCH + (TORCH_MORE if work.full else [])
    return each("programs", [(" ".join(arguments), lambda arguments=arguments: part(arguments)) for arguments in programs])


def overhead(place, work):
    """Programs and single calls, with and without the interposer, alternately."""
    place.need_runtime()
    rounds = 1 if place.soft else 5
    calls, launches = ("200000", "2000") if place.soft else ("5000000", "100000")
    programs = {"mlp_train": sample_command(place, SAMPLES["mlp_train"]), "stencil": sample_command(place, SAMPLES["stencil by capture"]),
                "call, ns": [place.built("bin/call_cost"), "direct", calls], "launch, ns": [place.built("bin/call_cost"), "launch", launches]}
    details = {}
    for name, command in programs.items():
        times = {"bare": [], "interposed": []}
        for turn in range(rounds):
            for arm in ("bare", "interposed") if turn % 2 == 0 else ("interposed", "bare"):
                env = place.env() if arm == "bare" else place.shim_env("overhead")
                started = time.monotonic()
                printed = run(command, work.limit(120), env).stdout
                times[arm].append(float(printed.split()[-1]) if name.endswith("ns") else time.monotonic() - started)
        details[name] = {arm: statistics.median(values) for arm, values in times.items()}
        details[name]["ratio"] = details[name]["interposed"] / details[name]["bare"]
    return ", ".join(f"{name} x {row['ratio']:.3f}" for name, row in details.items()), details


def ours(place, work, mib):
    """Milliseconds of the verbs with so much device memory."""
    figures = {}
    with run_cycle.Task(place.stasis, place.stasis_env(), f"hold-{mib}", work.limit(120)) as task:
        task.start(place.run_options, [place.built("tests/programs/holder"), str(mib)])
        task.wait_for(lambda text: "ready" in text, "ready")
        for residency in ("device", "host"):
            figures[f"pause {residency}"] = task.verb("pause", "--residency", residency)["pause_ms"]
            figures[f"resume {residency}"] = task.verb("resume")["resume_ms"]
        checkpoint = task.verb("checkpoint")
        figures.update(standstill=checkpoint["standstill_ms"], image=checkpoint["total_ms"])
        task.kill()
        figures["restore"] = task.verb("restore", "--detach")["total_ms"]
    return figures


def drivers_own(place, work, mib):
    """The same by what is there without us: the driver's checkpoint functions (NVIDIA's tool, where it is there) and CRIU."""
    if not place.criu:
        raise Absent("no CRIU")
    tool = None if place.soft else shutil.which("cuda-checkpoint")
    env, folder = place.env(), os.path.join(place.work, f"plain-{mib}")
    os.makedirs(os.path.join(folder, "images"))

    def timed(*command):
        started = time.monotonic()
        run(command, work.limit(180), env)
        return (time.monotonic() - started) * 1000

    def driver(pid, *actions):
        return sum(timed(*([tool, "--action", action, "--pid", str(pid)] if tool else
                           [place.built("bin/driver_checkpoint"), action, str(pid)])) for action in actions)

    def criu(verb, *options):
        return timed(place.criu, verb, "-D", os.path.join(folder, "images"), "-o", f"{verb}.log", "--manage-cgroups=ignore", "--libdir",
                     "/proc/self/task", *options)
    figures = {"by": "cuda-checkpoint" if tool else "the driver's functions"}
    log = os.path.join(folder, "out")
    with open(log, "w", encoding="utf-8") as out:
        parent = subprocess.Popen(["unshare", "-p", "-f", "setsid", place.built("tests/programs/holder"), str(mib)], env=env,
                                  stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL)
    pid = 0
    try:
        while "ready" not in open(log, encoding="utf-8").read():
            work.limit(60)
            if parent.poll() is not None:
                raise Failed("holder ended")
            time.sleep(0.02)
        with open(f"/proc/{parent.pid}/task/{parent.pid}/children", encoding="utf-8") as children:
            pid = int(children.read().split()[0])
        figures["pause"] = driver(pid, "lock", "checkpoint")
        figures["resume"] = driver(pid, "restore", "unlock")
        away = driver(pid, "lock", "checkpoint")
        figures["image"] = away + criu("dump", "-t", str(pid))
        parent.wait(60)
        figures["restore"] = criu("restore", "-d", "--pidfile", os.path.join(folder, "pid"))
        with open(os.path.join(folder, "pid"), encoding="utf-8") as file:
            pid = int(file.read())
        figures["restore"] += driver(pid, "restore", "unlock")
    finally:
        if pid:
            # A machine has stood still after a process was killed that the driver had brought back; not so once it has let go again.
            with contextlib.suppress(Absent, Failed):
                driver(pid, "lock", "checkpoint")
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if parent.poll() is None:
            parent.kill()
            parent.wait()
        shutil.rmtree(folder)
    return figures


def free_memory():
    """MiB of main memory to be had."""
    with open("/proc/meminfo", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable:")) // 1024


def sizes_that_fit(place):
    """MiB of device memory to try with: of the device no more than three quarters; host memory and disk hold copies of it."""
    if place.soft:
        return [16]
    room = min(place.look()["devices"][0]["memory"] // 2**20 * 3 // 4, free_memory() // 3, shutil.disk_usage(place.work).free // 2**20 // 4)
    sizes = [size for size in (256, 2048, 8192) if size <= room]
    if not sizes:
        raise Absent(f"no room for 256 MiB: memory {free_memory()} MiB, disk {shutil.disk_usage(place.work).free // 2**20} MiB at {place.work} "
                     "(TMPDIR names another place)")
    return sizes


def pause_and_restore(place, work):
    place.need_runtime()
    sizes = sizes_that_fit(place)

    def part(mib):
        row = {"stasis": ours(place, work, mib)}
        try:
            row["driver"] = drivers_own(place, work, mib)
        except (Absent, Failed) as reason:
            row["driver"] = {"failed": str(reason)}
        return row
    text, details = each("sizes", [(f"{mib} MiB", lambda mib=mib: part(mib)) for mib in sizes])
    last = details[f"{sizes[-1]} MiB"]
    if "stasis" in last:
        beside = last["driver"].get("pause")
        text = (f"{sizes[-1]} MiB: pause {last['stasis']['pause device']:.0f} ms, restore {last['stasis']['restore']:.0f} ms" +
                (f"; the driver's own {beside:.0f} and {last['driver']['restore']:.0f} ms" if beside else ""))
    return text, details


STEPS = {"machine": machine, "doctor": doctor, "symbols": driver_symbols, "facts": driver_facts, "samples": samples, "devices": devices,
         "demo by driver-checkpoint": demo("driver-checkpoint"), "demo by reconstruct": demo("reconstruct"), "pytorch": pytorch,
         "overhead": overhead, "pause and restore": pause_and_restore}
