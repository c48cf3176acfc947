"""A real Slurm on this machine: munged, slurmctld and a slurmd a node, all of it in a PID namespace of its own.

Call own_namespaces() first: daemons leave slurmstepd and programs behind when they are ended, and a namespace leaves nothing."""

import errno
import os
import socket
import subprocess
import sys
import tempfile
import time

import hung
from softgpu import die_with_parent

UP_SECONDS = 240
FREEZER = "/sys/fs/cgroup/freezer"
INSIDE = "STASIS_SLURM_LAB"

CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/sock,cred_expire=15
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
PlugStackConfig={folder}/plugstack.conf
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,sched_min_interval=0,bf_interval=1,batch_sched_delay=0
SlurmdTimeout=120
MessageTimeout=60
BatchStartTimeout=120
ReturnToService=2
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
{more}
"""
NODE = ("NodeName={name} NodeHostName={name} NodeAddr=127.0.0.1 Port={port} CPUs=8 Boards=1 SocketsPerBoard=1 "
        "CoresPerSocket=8 ThreadsPerCore=1 RealMemory=4000 Gres=gpu:{gpus}\n")


def own_namespaces():
    """Runs this very program again in a PID and a mount namespace that end with it, unless that is where it runs."""
    if not os.environ.get(INSIDE):
        command = ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child", sys.executable, "-B", *sys.argv]
        sys.exit(subprocess.run(command, env={**os.environ, INSIDE: "1"}, preexec_fn=die_with_parent, check=False).returncode)
    test = os.fork()
    if test == 0:
        return
    # The first process of the namespace has to reap whatever lost its parent.
    while True:
        pid, status = os.wait()
        if pid == test:
            os._exit(max(os.waitstatus_to_exitcode(status), 0) or int(os.WIFSIGNALED(status)))


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class SlurmLab:
    """`gpus`: of each node, as GRES without devices. `plugins`: lines of plugstack.conf. `more`: lines of slurm.conf."""

    def __init__(self, nodes=2, gpus=2, plugins=(), more=()):
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.gpus = gpus
        self.plugins = plugins
        self.more = more
        self.daemons = []
        self.proctrack = None  # how Slurm knows the processes of a step

    def __enter__(self):
        self.holder = tempfile.TemporaryDirectory(prefix="slurm-lab-")
        self.folder = self.holder.name
        os.chmod(self.folder, 0o755)  # munged wants it passable
        self.env = {**os.environ, "SLURM_CONF": self.path("slurm.conf")}
        try:
            self.configure()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if len(self.daemons) == 2 + len(self.names):
            self.end_jobs()
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(60)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.remove_cgroups()
        self.holder.cleanup()

    def choose_proctrack(self):
        """As clusters have it: by cgroups. Where none can be made, or somebody else uses these, by the parents of processes."""
        if any(os.path.exists(cgroup) for cgroup in self.cgroups()) or not os.access(FREEZER, os.W_OK):
            return "linuxproc"
        probe = os.path.join(FREEZER, f"slurm-lab-{os.getpid()}")
        try:
            os.mkdir(probe)
            os.rmdir(probe)
        except OSError:
            return "linuxproc"
        return "cgroup"

    def cgroups(self):
        return [os.path.join(FREEZER, f"slurm_{name}") for name in self.names]

    def remove_cgroups(self):
        """Slurm leaves those of its nodes."""
        for cgroup in self.cgroups() if self.proctrack == "cgroup" else []:
            for folder, _, _ in os.walk(cgroup, topdown=False):
                self.until(lambda there=folder: self.is_removed(there), f"{folder} is not empty")

    @staticmethod
    def is_removed(cgroup):
        try:
            os.rmdir(cgroup)
        except FileNotFoundError:
            pass  # the last step that was in it has removed it
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False  # what was in it is ending
        return True

    def end_jobs(self):
        """Slurm's daemons leave them running when they end."""
        self.run("scancel", *self.run("squeue", "-h", "-o", "%A").stdout.split(), check=False)
        self.until(lambda: not self.run("squeue", "-h").stdout, "jobs do not end")

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def configure(self):
        for name in ("munge", "state", "log", "gpu", *(f"spool-{node}" for node in self.names)):
            os.mkdir(self.path(name), 0o755)
        for gpu in range(self.gpus):
            os.symlink("/dev/null", self.path("gpu", f"gpu{gpu}"))
        self.ports = free_ports(1 + len(self.names))
        self.proctrack = self.choose_proctrack()
        text = CONFIGURATION.format(proctrack=self.proctrack, host=socket.gethostname(), port=self.ports[0], user="root", folder=self.folder,
                                    more="\n".join(self.more))
        for name, port in zip(self.names, self.ports[1:]):
            text += NODE.format(name=name, port=port, gpus=self.gpus)
        text += ("PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=60\n"
                 "PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF\n")
        self.write("slurm.conf", text)
        self.write("gres.conf", f"Name=gpu Flags=nvidia_gpu_env File={self.path('gpu')}/gpu[0-{self.gpus - 1}]\n")
        self.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        self.write("plugstack.conf", "".join(line + "\n" for line in self.plugins))
        subprocess.run(["mungekey", "--create", f"--keyfile={self.path('munge', 'key')}", "--bits=1024"], check=True)

    def daemon(self, log, *command):
        with open(self.path("log", log), "a", encoding="utf-8") as output:
            self.daemons.append(subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=output,
                                                 stderr=output, preexec_fn=die_with_parent))
        return self.daemons[-1]

    def start(self):
        munge = self.path("munge")
        self.daemon("munged.out", "munged", "-F", f"--key-file={munge}/key", f"--socket={munge}/sock",
                    f"--pid-file={munge}/pid", f"--log-file={self.path('log', 'munged.log')}", f"--seed-file={munge}/seed")
        self.until(lambda: os.path.exists(f"{munge}/sock"), "munged did not start")
        self.daemon("slurmctld.out", "slurmctld", "-D", "-i", "-f", self.path("slurm.conf"))
        for name in self.names:
            # A host name of its own for each: that is how a slurmd, and what it runs, knows where it is.
            self.daemon(f"slurmd-{name}.out", "unshare", "--uts", "sh", "-c",
                        f"hostname {name} && exec slurmd -D -N {name} -f {self.path('slurm.conf')}")
        self.until(self.idle, "the nodes did not come up")

    def idle(self):
        result = self.run("sinfo", "-h", "-p", "low", "-o", "%D %t", check=False)
        return result.stdout.split() == [str(len(self.names)), "idle"]

    def until(self, true, complaint, seconds=UP_SECONDS):
        """Slurm's daemons tell nobody what becomes of a job: they have to be asked."""
        give_up = time.monotonic() + seconds
        while not true():
            if time.monotonic() > give_up:
                raise AssertionError(f"{complaint}\n{self.logs()}")
            time.sleep(0.05)

    def logs(self):
        text = ""
        for name in sorted(os.listdir(self.path("log"))):
            if name.endswith(".log"):
                with open(self.path("log", name), encoding="utf-8", errors="replace") as file:
                    text += f"---- {name}\n" + "".join(file.readlines()[-20:])
        return text

    def run(self, *command, check=True, env=None, timeout=300):
        result = hung.run_within(timeout, [str(word) for word in command], env={**self.env, **(env or {})},
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 preexec_fn=die_with_parent)
        if check and result.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, command))}: {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result

    def submit(self, script, *options, become=(), env=None):
        """A batch job of these lines; its id. `become`: a command that makes another user of who submits it."""
        file = self.path(f"job-{time.monotonic_ns()}.sh")
        with open(file, "w", encoding="utf-8") as text:
            text.write("#!/bin/bash\n" + script)
        return self.run(*become, "sbatch", "--parsable", *options, file, env=env).stdout.strip()

    def job(self, number):
        """What the controller has on record of a job, as `scontrol` prints it."""
        text = self.run("scontrol", "-o", "show", "job", number).stdout
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def await_job(self, number, wanted, seconds=300):
        """Until the job's record is as wanted; the record."""
        record = {}

        def right():
            record.update(self.job(number))
            return wanted(record)
        try:
            self.until(right, f"job {number} did not become what was wanted", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{record}") from None
        return record


def processes():
    """Of this namespace, but its first one and this one: (pid, command line)."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, os.getpid()):
            found.append((int(name), hung.read(f"/proc/{name}/cmdline")))
    return found


__all__ = ["SlurmLab", "own_namespaces", "processes"]
