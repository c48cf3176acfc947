"""Nodes that share nothing but a network, each with its own agent: network, mounts, host name, software devices, state and run
folder of their own. The folders lie at the same paths on every node, so that what runs on one can run on another; the network
between them has a bandwidth and a delay, and can be cut.

An Agent is used through the interface that everybody has (proto/stasis/v1), whose Python is made here by protoc. Everything ends
with the test."""

import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Children are forked while its threads run; none of them uses it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc  # pylint: disable=wrong-import-position

from nodes import Keeper
from softgpu import BUILD, Node, built, die_with_parent

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GIVE_UP_SECONDS = 300
CALL_SECONDS = 120  # for what is answered from memory
PEER_PORT = 7443
MTU = 9000


class Interface:
    """The modules that protoc makes of proto/: `agent`, `operation`, `agent_rpc`."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="stasis-proto-")
        proto = os.path.join(ROOT, "proto")
        sources = [os.path.join("stasis", "v1", name) for name in ("operation.proto", "agent.proto")]
        subprocess.run(["protoc", f"--proto_path={proto}", f"--python_out={self.folder.name}",
                        f"--grpc_out={self.folder.name}", "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin", *sources],
                       check=True)
        sys.path.insert(0, self.folder.name)
        self.operation = importlib.import_module("stasis.v1.operation_pb2")
        self.agent = importlib.import_module("stasis.v1.agent_pb2")
        self.agent_rpc = importlib.import_module("stasis.v1.agent_pb2_grpc")


INTERFACE = Interface()
pb = INTERFACE.agent
op = INTERFACE.operation
ENDED = (op.OPERATION_STATE_SUCCEEDED, op.OPERATION_STATE_FAILED, op.OPERATION_STATE_CANCELLED)


class OperationFailed(AssertionError):
    """`operation`: as it ended; `result`: what it says."""

    def __init__(self, operation):
        self.operation = operation
        self.result = json.loads(operation.result_json or "{}")
        super().__init__(f"{operation.verb} {operation.job}: {op.OperationState.Name(operation.state)} {self.result}")


class Certificates:
    """A CA, and what it has signed. `folder` holds NAME.pem and NAME.key."""

    def __init__(self, folder):
        self.folder = folder
        self.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                     "-subj", "/CN=test CA", "-keyout", self.path("ca.key"), "-out", self.path("ca.pem"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def openssl(self, *arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)

    def make(self, name, role, address="127.0.0.1", days=2):
        """For `role` (the OU) at `address`. Negative days: it has expired."""
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                     "-subj", f"/CN={name}/OU={role}", "-keyout", self.path(f"{name}.key"), "-out", self.path(f"{name}.csr"))
        extensions = self.path(f"{name}.ext")
        with open(extensions, "w", encoding="ascii") as file:
            file.write(f"subjectAltName=IP:{address}\n")
        self.openssl("x509", "-req", "-in", self.path(f"{name}.csr"), "-CA", self.path("ca.pem"), "-CAkey", self.path("ca.key"),
                     "-CAcreateserial", "-days", str(days), "-extfile", extensions, "-out", self.path(f"{name}.pem"))
        os.chmod(self.path(f"{name}.key"), 0o600)
        return self.path(f"{name}.pem"), self.path(f"{name}.key")


class Agent:
    """A client of one stasisd. Calls raise grpc.RpcError; those that change something wait for the operation's end, unless they
    are begun by begin()."""

    def __init__(self, target, credentials=None):
        # An agent that is slow to start is not waited for longer each time.
        options = [("grpc.max_receive_message_length", 16 << 20), ("grpc.use_local_subchannel_pool", 1),
                   ("grpc.max_reconnect_backoff_ms", 1000)]
        self.channel = (grpc.secure_channel(target, credentials, options) if credentials
                        else grpc.insecure_channel(target, options))
        self.stub = INTERFACE.agent_rpc.AgentStub(self.channel)

    def close(self):
        self.channel.close()

    def wait_until_ready(self, seconds=CALL_SECONDS):
        grpc.channel_ready_future(self.channel).result(seconds)

    def info(self):
        return self.stub.Info(pb.InfoRequest(), timeout=CALL_SECONDS)

    def jobs(self, ended=True):
        return {job.name: job for job in self.stub.List(pb.ListRequest(ended=ended), timeout=CALL_SECONDS).jobs}

    def job(self, name):
        """None: there is none."""
        found = self.stub.List(pb.ListRequest(name=name, ended=True), timeout=CALL_SECONDS).jobs
        return found[0] if found else None

    def begin(self, verb, **fields):
        """begin("pause", job=NAME): the operation as it was taken."""
        name = verb[0].upper() + verb[1:]
        return getattr(self.stub, name)(getattr(pb, name + "Request")(**fields), timeout=CALL_SECONDS)

    def call(self, verb, **fields):
        """The operation when it has ended well; else OperationFailed."""
        return self.finish(self.begin(verb, **fields))

    def finish(self, operation, seconds=GIVE_UP_SECONDS, spans=True):
        ended = self.wait(operation.id, seconds, spans)
        if ended.state != op.OPERATION_STATE_SUCCEEDED:
            raise OperationFailed(ended)
        return ended

    def wait(self, operation_id, seconds=GIVE_UP_SECONDS, spans=True):
        for told in self.stub.WatchOperation(op.WatchOperationRequest(id=operation_id, spans=spans), timeout=seconds):
            if told.state in ENDED:
                return told
        raise AssertionError(f"operation {operation_id}: the stream ended before the operation")

    def wait_for_job(self, name, condition, seconds=GIVE_UP_SECONDS):
        """Until `condition(job)`; the job."""
        for event in self.stub.Watch(pb.WatchRequest(name=name), timeout=seconds):
            if event.HasField("job") and condition(event.job):
                return event.job
        raise AssertionError(f"{name}: the stream ended")

    def run(self, name, argv, env, folder="/", gpus=(), ranks=0, device="soft", strategy=""):
        self.call("run", name=name, argv=argv, environment=[f"{key}={value}" for key, value in env.items()], folder=folder,
                  device=device, gpus=gpus, ranks=ranks, strategy=strategy)

    def output(self, name, rank=0):
        return b"".join(chunk.data for chunk in
                        self.stub.Logs(pb.LogsRequest(name=name, rank=rank), timeout=CALL_SECONDS)).decode(errors="replace")

    def wait_for_output(self, name, text, rank=0, seconds=GIVE_UP_SECONDS):
        seen = b""
        for chunk in self.stub.Logs(pb.LogsRequest(name=name, rank=rank, follow=True), timeout=seconds):
            seen += chunk.data
            if text.encode() in seen:
                return
        raise AssertionError(f"{name} ended without printing {text!r}:\n{seen[-2000:]!r}")


class AgentNode(Node):
    """A node of AgentNodes: `name`, `address`, `through` (a prefix for commands), `agent`, and all that softgpu's Node has.
    `state` and `run_dir` are its folders as the node sees them, path() as the test does."""

    def __init__(self, cluster, name, number, options, disk):
        super().__init__(*options)
        self.cluster = cluster
        self.name = name
        self.address = f"10.77.0.{number}"
        self.peer = f"{self.address}:{PEER_PORT}"
        self.disk = disk  # size of its file system, as mount takes it
        self.socket = os.path.join(cluster.root, "gpu", "softgpud.sock")
        self.state = os.path.join(cluster.root, "disk", "state")
        self.run_dir = os.path.join(cluster.root, "run")
        self.stasisd = None
        self.agent = None
        self.agent_options = []
        self.agent_env = {}  # added to what stasisd finds in its environment

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix=f"stasis-node-{self.name}-")
        self.log = open(os.path.join(self.folder.name, "softgpud.log"), "w+", encoding="utf-8")
        self.agent_log = open(os.path.join(self.folder.name, "stasisd.log"), "a+", encoding="utf-8")
        commands = []
        for place in ("gpu", "run", "disk"):
            own = os.path.join(self.folder.name, place)
            os.mkdir(own, 0o700)
            commands.append(f"mount --bind {own} {os.path.join(self.cluster.root, place)}")
        if self.disk:
            commands[-1] = f"mount -t tmpfs -o size={self.disk},mode=0700 disk {os.path.join(self.cluster.root, 'disk')}"
        commands.append(f"hostname {self.name}")
        self.keeper = Keeper(["--net", "--mount", "--uts", "--propagation", "private"], " && ".join(commands))
        # nsenter stays in front of a program for nothing: without a new PID namespace it becomes the program.
        self.through = ["nsenter", "-t", str(self.keeper.pid), "-n", "-m", "-u", "--"]
        try:
            self.start_daemon()
        except BaseException:
            self.keeper.end()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.end_jobs()
        finally:
            self.stop_agent()
            try:
                super().__exit__(None, None, None)
            finally:
                self.agent_log.close()
                self.keeper.end()

    def end_jobs(self):
        """What still runs is ended by hand: the agent may be the one that does not answer."""
        for job in self.tasks():
            with contextlib.suppress(ProcessLookupError, OSError):
                os.kill(job["init_pid"], signal.SIGKILL)
        for ghost in self.ghosts():
            with contextlib.suppress(ProcessLookupError):
                os.kill(ghost, signal.SIGKILL)

    def path(self, path):
        """A file of the node, from outside."""
        return f"/proc/{self.keeper.pid}/root{path}"

    def daemon_command(self, *arguments):
        return [*self.through, *super().daemon_command(*arguments)]

    def start(self, *command, **options):
        return super().start(*self.through, *command, **options)

    def run(self, *command, **options):
        return super().run(*self.through, *command, **options)

    def smi(self, *arguments):
        return subprocess.run([*self.through, built("bin/softgpu-smi"), "--socket", self.socket, *arguments],
                              capture_output=True, text=True, timeout=CALL_SECONDS, check=False)

    def own_env(self, **extra):
        """Of stasisd, and of `stasis` on this node."""
        env = super().env(**extra)
        del env["LD_LIBRARY_PATH"]  # `stasis run` brings its own
        env.update(STASIS_STATE_DIR=self.state, STASIS_RUN_DIR=self.run_dir)
        if os.environ.get("STASIS_CRIU") and "STASIS_CRIU" not in extra:
            env["STASIS_CRIU"] = os.environ["STASIS_CRIU"]
        return env

    def start_agent(self, *options):
        """Until it answers."""
        if options:
            self.agent_options = list(options)
        certificate, key = self.cluster.certificate(self)
        command = [built("bin/stasisd"), "--node-name", self.name, "--listen", f"unix:{self.run_dir}/stasisd.sock", "--listen",
                   self.peer, "--peer-address", self.peer, "--tls-ca", self.cluster.certificates.path("ca.pem"), "--tls-cert",
                   certificate, "--tls-key", key, *self.agent_options]
        self.stasisd = subprocess.Popen([*self.through, *command], env=self.own_env(**self.agent_env),
                                        stdin=subprocess.DEVNULL, stdout=self.agent_log, stderr=self.agent_log, preexec_fn=die_with_parent)
        self.agent = Agent("unix:" + self.path(os.path.join(self.run_dir, "stasisd.sock")))
        try:
            self.agent.wait_until_ready()
        except grpc.FutureTimeoutError:
            raise AssertionError(f"stasisd on {self.name} does not answer ({self.stasisd.poll()}): {self.agent_words()}") from None
        return self.agent

    def agent_words(self, last=4000):
        self.agent_log.flush()
        with open(self.agent_log.name, encoding="utf-8") as file:
            return file.read()[-last:]

    def kill_agent(self):
        self.stasisd.kill()
        self.stasisd.wait()
        self.forget_agent()

    def lose(self):
        """All that runs there is gone, as with its machine, but for the devices."""
        self.kill_agent()
        give_up = time.monotonic() + 60
        # What was just starting something was not the last one.
        while others := self.processes().keys() - {self.keeper.pid, self.daemon.pid}:
            if time.monotonic() > give_up:
                raise AssertionError(f"cannot be ended on {self.name}: {others}")
            for pid in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)  # nothing tells when a process of nobody's has ended

    def forget_agent(self):
        if self.agent:
            self.agent.close()
        self.stasisd = self.agent = None

    def stop_agent(self):
        if not self.stasisd:
            return
        self.stasisd.terminate()
        try:
            self.stasisd.wait(60)
        except subprocess.TimeoutExpired:
            self.stasisd.kill()
            self.stasisd.wait()
        self.forget_agent()

    def stasis(self, verb, *arguments, timeout=GIVE_UP_SECONDS):
        """`stasis VERB --json` on this node, without the agent: (exit status, answer, stderr)."""
        command = [built("bin/stasis"), *verb.split(), "--json", *map(str, arguments)]
        result = subprocess.run([*self.through, *command], env=self.own_env(),
                                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False,
                                preexec_fn=die_with_parent)
        return result.returncode, json.loads(result.stdout or "null"), result.stderr

    # ---- what is on the node, asked of nobody but the files and the kernel

    def task_folder(self, task):
        return self.path(os.path.join(self.state, "tasks", task))

    def tasks(self):
        """process.json of the tasks that live."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for task in sorted(os.listdir(self.path(os.path.join(self.state, "tasks")))):
                process = self.process(task)
                if process and alive(process):
                    found.append({"task": task, **process})
        return found

    def process(self, task):
        try:
            with open(os.path.join(self.task_folder(task), "process.json"), encoding="utf-8") as file:
                return json.load(file)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def live(self, task):
        process = self.process(task)
        return bool(process) and alive(process)

    def output(self, task):
        with open(os.path.join(self.task_folder(task), "output.log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def exit_status(self, task):
        """None: nobody wrote it down."""
        try:
            with open(os.path.join(self.task_folder(task), "exit.json"), encoding="utf-8") as file:
                end = json.load(file)
        except FileNotFoundError:
            return None
        return -end["signal"] if end.get("signal") else end["exit_code"]

    def wait_for_end(self, task, seconds=GIVE_UP_SECONDS):
        process = self.process(task)
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(process["init_pid"])
            try:
                if alive(process) and not select.select([pidfd], [], [], seconds)[0]:
                    raise AssertionError(f"{task} still runs after {seconds} s on {self.name}:\n{self.output(task)[-2000:]}")
            finally:
                os.close(pidfd)
        return self.exit_status(task)

    def processes(self):
        """Processes in this node's network: {pid: command line}."""
        mine = os.stat(f"/proc/{self.keeper.pid}/ns/net").st_ino
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if os.stat(f"/proc/{entry}/ns/net").st_ino == mine:
                    with open(f"/proc/{entry}/cmdline", "rb") as file:
                        found[int(entry)] = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        return found

    def ghosts(self):
        return [pid for pid, command in self.processes().items() if "stasis-ghost" in command.split(" ")[0]]

    def memory_in_the_end(self, seconds=60):
        """Device memory in use once everybody has let go, or then."""
        give_up = time.monotonic() + seconds
        while True:
            used = [device["memory_used"] for device in self.devices()]
            if not any(used) or time.monotonic() > give_up:
                return used
            time.sleep(0.02)  # nothing tells when a process's memory has gone

    def fill_disk(self, leave=0):
        """The node's file system is full but for so many bytes. The file that does it: remove it to end that."""
        place = self.path(os.path.join(os.path.dirname(self.state), "filler"))
        space = os.statvfs(os.path.dirname(place))
        with open(place, "wb") as file:
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, max(4096, space.f_bavail * space.f_frsize - leave))
        return place


def alive(process):
    """`process`: a task's process.json."""
    try:
        with open(f"/proc/{process['init_pid']}/stat", encoding="utf-8") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and int(fields[19]) == process["init_start_time"]


class HeldCriu:
    """CRIU of the agent of `node`, which is to be started afterwards: it waits, before it does anything, for as long as its
    `verb` ("dump", "restore") is held."""

    def __init__(self, node):
        self.node = node
        self.folder = os.path.join(node.cluster.folder, f"criu-{node.name}")
        os.mkdir(self.folder)
        program = os.path.join(self.folder, "criu")
        criu = os.environ.get("STASIS_CRIU") or shutil.which("criu")
        with open(os.open(program, os.O_CREAT | os.O_WRONLY, 0o755), "w", encoding="utf-8") as file:
            file.write(f"""#!/bin/sh
hold={self.folder}/hold-$1 waits={self.folder}/waits-$$
[ ! -e "$hold" ] || : > "$waits"
while [ -e "$hold" ] && [ -e "$waits" ]; do sleep 0.02; done
rm -f "$waits"
exec {criu} "$@"
""")
        node.agent_env["STASIS_CRIU"] = program

    def hold(self, verb):
        with open(os.path.join(self.folder, f"hold-{verb}"), "x", encoding="utf-8"):
            pass

    def let_go(self):
        """From now on none waits."""
        self.remove("hold-")

    def let_these_go(self):
        """Those that wait now; the next ones wait."""
        self.remove("waits-")

    def remove(self, beginning):
        for name in os.listdir(self.folder):
            if name.startswith(beginning):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(self.folder, name))

    def waiting(self):
        """Their process numbers; each is a child of the ghost that it is to work for."""
        pids = [int(name.removeprefix("waits-")) for name in os.listdir(self.folder) if name.startswith("waits-")]
        return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]

    def await_held(self, count=1, seconds=GIVE_UP_SECONDS):
        """Until so many wait."""
        give_up = time.monotonic() + seconds
        while len(self.waiting()) < count:
            if time.monotonic() > give_up:
                raise AssertionError(f"CRIU was not started on {self.node.name}: {self.node.agent_words()}")
            time.sleep(0.01)  # nothing tells when it is started


class AgentNodes:
    """Nodes by name: AgentNodes(a=["--gpus", "2"], b=[...]). `rate`: bits a second of each node, 0: as fast as it goes; `delay`:
    seconds, one way; `disk`: size of a file system of its own on each node, "" : none."""

    def __init__(self, rate=0, delay=0.0, disk="", **options):
        self.options = options
        self.rate, self.delay, self.disk = rate, delay, disk
        self.nodes = {}
        self.stack = contextlib.ExitStack()

    def __getitem__(self, name):
        return self.nodes[name]

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stasis-agents-"))
            self.folder = folder  # at the same path on every node, and the same one
            self.root = os.path.join(folder, "root")
            for place in ("gpu", "run", "disk"):
                os.makedirs(os.path.join(self.root, place), 0o700)
            os.mkdir(os.path.join(folder, "tls"), 0o700)
            self.certificates = Certificates(os.path.join(folder, "tls"))
            self.made = {}
            self.router = Keeper(["--net"])
            stack.callback(self.router.end)
            for number, (name, options) in enumerate(self.options.items(), 2):
                node = stack.enter_context(AgentNode(self, name, number, options, self.disk))
                self.nodes[name] = node
                self.connect(node)
            self.start_wire(stack)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def connect(self, node):
        def inside(pid, *command):
            subprocess.run(["nsenter", "-t", str(pid), "-n", "--", *command], check=True, preexec_fn=die_with_parent)

        inside(node.keeper.pid, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", node.name, "netns",
               str(self.router.pid))
        inside(node.keeper.pid, "ip", "address", "add", f"{node.address}/24", "dev", "eth0")
        for pid, device in ((node.keeper.pid, "eth0"), (self.router.pid, node.name)):
            inside(pid, "ip", "link", "set", "dev", device, "mtu", str(MTU), "up")
        inside(node.keeper.pid, "ip", "link", "set", "dev", "lo", "up")
        inside(node.keeper.pid, sys.executable, "-B", "-c",
               f"import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r}); import packets; "
               "packets.finish('eth0')")

    def start_wire(self, stack):
        wire = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wire.py")
        self.wire = subprocess.Popen(["nsenter", "-t", str(self.router.pid), "-n", "--", sys.executable, "-B", wire],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        stack.callback(self.end_wire)
        self.network(ports={name: name for name in self.nodes}, rate=self.rate, delay=self.delay)

    def end_wire(self):
        self.wire.stdin.close()
        self.wire.wait()
        self.wire.stdout.close()

    def network(self, **fields):
        """What wire.py takes."""
        self.wire.stdin.write(json.dumps(fields) + "\n")
        self.wire.stdin.flush()
        if self.wire.stdout.readline() != "ok\n":
            raise AssertionError("the network has ended")

    def cut(self, *names):
        self.network(cut=list(names))

    def join(self):
        self.network(cut=[])

    def certificate(self, node):
        if node.name not in self.made:
            self.made[node.name] = self.certificates.make(node.name, "stasis-agent", node.address)
        return self.made[node.name]

    def start_agents(self, *options):
        for node in self.nodes.values():
            node.start_agent(*options)


__all__ = ["Agent", "AgentNode", "AgentNodes", "BUILD", "Certificates", "HeldCriu", "OperationFailed", "alive", "built", "grpc", "op", "pb"]
