"""stasis-schedd on a network with agents, and a client of it."""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from agents import CALL_SECONDS, GIVE_UP_SECONDS, INTERFACE, ROOT, grpc, built
from softgpu import die_with_parent



def load_interface():
    proto = os.path.join(ROOT, "proto")
    subprocess.run(["protoc", f"--proto_path={proto}", f"--python_out={INTERFACE.folder.name}",
                    f"--grpc_out={INTERFACE.folder.name}", "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin",
                    os.path.join("stasis", "v1", "scheduler.proto")], check=True)
    return importlib.import_module("stasis.v1.scheduler_pb2"), importlib.import_module("stasis.v1.scheduler_pb2_grpc")


sched, sched_rpc = load_interface()


class Schedd:
    """A scheduler that lives on `place`, a node of `nodes` (AgentNodes) that best has no agent; its state stays from one start to
    the next. `options`: of stasis-schedd."""

    PORT = 7471

    def __init__(self, nodes, place, *options):
        self.nodes = nodes
        self.place = nodes[place]
        self.options = options
        self.process = self.channel = self.stub = None

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="stasis-schedd-")
        self.state = os.path.join(self.folder.name, "state")
        self.socket = os.path.join(self.folder.name, "schedd.sock")
        self.log = open(os.path.join(self.folder.name, "log"), "a+", encoding="utf-8")
        self.address = f"{self.place.address}:{self.PORT}"
        self.certificate, self.key = self.nodes.certificates.make("schedd", "stasis-scheduler", self.place.address)
        self.start()
        return self

    def __exit__(self, *_):
        try:
            self.stop()
        finally:
            self.log.close()
            self.folder.cleanup()

    def command(self):
        return [built("bin/stasis-schedd"), "--state", self.state, "--listen", f"unix:{self.socket}", "--listen", self.address,
                "--tls-ca", self.nodes.certificates.path("ca.pem"), "--tls-cert", self.certificate, "--tls-key", self.key,
                *self.options]

    def start(self):
        told = len(self.lines())
        self.process = subprocess.Popen([*self.place.through, *self.command()], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, preexec_fn=die_with_parent)
        self.wait_for_line(lambda line: line["message"] == "ready", told)
        self.channel = grpc.insecure_channel("unix:" + self.socket, [("grpc.use_local_subchannel_pool", 1)])
        self.stub = sched_rpc.SchedulerStub(self.channel)

    def stop(self, how=signal.SIGTERM, seconds=120):
        """Its exit status; None where it does not run."""
        if self.process is None:
            return None
        self.channel.close()
        self.process.send_signal(how)
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("stasis-schedd does not end:\n" + self.words()) from None
        self.process = None
        return status

    def kill(self):
        self.stop(signal.SIGKILL)

    # ---- its log

    def lines(self):
        with open(self.log.name, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.startswith("{") and line.endswith("\n")]

    def words(self, last=6000):
        with open(self.log.name, encoding="utf-8") as file:
            return file.read()[-last:]

    def wait_for_line(self, wanted, after=0, seconds=GIVE_UP_SECONDS):
        """Nothing else tells that a line was written."""
        give_up = time.monotonic() + seconds
        while True:
            for line in self.lines()[after:]:
                if wanted(line):
                    return line
            if time.monotonic() > give_up or self.process.poll() is not None:
                raise AssertionError(f"not in the log ({self.process.poll()}):\n{self.words()}")
            time.sleep(0.02)

    # ---- its service

    def tenant(self, name, weight=1.0):
        return self.stub.SetTenant(sched.SetTenantRequest(name=name, weight=weight), timeout=CALL_SECONDS)

    def join(self, *names):
        """The nodes' agents, as `stasisd --join` does it; until they are nodes of the cluster."""
        for name in names:
            node = self.nodes[name]
            self.stub.Join(sched.JoinRequest(address=node.peer, node=name, agent_id=node.agent.info().agent_id, device="soft"),
                           timeout=CALL_SECONDS)
        self.wait(lambda: all(self.node(name) and self.node(name).reachable for name in names))

    def submit(self, name, argv, env, tenant="a", gpus=1, folder="/", **fields):
        return self.stub.Submit(sched.SubmitRequest(name=name, tenant=tenant, argv=argv, gpus=gpus, folder=folder, device="soft",
                                                    environment=[f"{key}={value}" for key, value in env.items()], **fields),
                                timeout=CALL_SECONDS)

    def queue(self, ended=True):
        return {job.name: job for job in self.stub.Queue(sched.QueueRequest(ended=ended), timeout=CALL_SECONDS).jobs}

    def job(self, name):
        return self.stub.Queue(sched.QueueRequest(name=name), timeout=CALL_SECONDS).jobs[0]

    def state_of(self, name):
        """"RUNNING"."""
        return sched.QueueState.Name(self.job(name).state).removeprefix("QUEUE_STATE_")

    def node(self, name):
        found = [node for node in self.stub.Nodes(sched.NodesRequest(), timeout=CALL_SECONDS).nodes if node.name == name]
        return found[0] if found else None

    def events(self, job=""):
        """Those that there are, of one job or all."""
        return [event for event in self.stub.Events(sched.EventsRequest(last=10000, until_now=True), timeout=CALL_SECONDS)
                if job in ("", event.job)]

    def wait(self, condition, seconds=GIVE_UP_SECONDS):
        """What `condition()` returns once it is true; it is asked after each event."""
        give_up = time.monotonic() + seconds
        last = max([event.number for event in self.events()], default=0)
        while True:
            found = condition()
            if found:
                return found
            try:
                # An event or not: what is waited for may be no event itself.
                for event in self.stub.Events(sched.EventsRequest(after=last), timeout=min(1, give_up - time.monotonic())):
                    last = event.number
                    break
            except (grpc.RpcError, ValueError) as error:
                late = time.monotonic() >= give_up
                if late or not isinstance(error, grpc.RpcError) or error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                    raise AssertionError(f"not in {seconds} s: {self.story()}\n{self.words()}") from error

    def quiet(self, seconds):
        """What happens to jobs in that time."""
        happened = []
        try:
            for event in self.stub.Events(sched.EventsRequest(after=self.events()[-1].number), timeout=seconds):
                happened += [(event.kind, event.job)] if event.job else []
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
        return happened

    def wait_for_state(self, name, *states, seconds=GIVE_UP_SECONDS):
        self.wait(lambda: self.state_of(name) in states, seconds)

    def story(self):
        return "\n".join(f"{event.at_ms / 1000:.3f} {event.number} {event.kind} {event.job} {event.node} {event.text}"
                         for event in self.events())


__all__ = ["Schedd", "sched"]
