"""Steps of a real Slurm under Stasis: the option of srun and sbatch, what becomes of a step when Slurm takes its job away, and
agents in an allocation."""


import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

import slurm_lab
from agents import Agent, pb

from slurm_lab import SlurmLab
from softgpu import die_with_parent
from stasis_job import Site, built

AGENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "slurm", "stasis-agents.sbatch")
AS_USER = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
PAIR = ("n1", "n2")  # nodes of an allocation
STEPS = 150  # most of them left when a test has seen what it waits for
ENDS = ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL")
GPUS = 2  # of each node; the nodes share the software devices
CHECKPOINTED = "124"  # exit code of a step that was ended by an image


class Tools:
    """What Slurm's users need of the build, where all of them can read it."""

    FILES = ("bin/stasis", "bin/stasisd", "bin/stasis-init", "bin/stasis-ghost", "bin/stasis-step", "bin/softgpud", "lib/libstasis.so",
             "lib/softgpu", "lib/stasis_spank.so", "samples/ddp_train")

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="stasis-tools-")
        os.chmod(self.folder.name, 0o755)
        for name in self.FILES:
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            copy = shutil.copytree if os.path.isdir(built(name)) else shutil.copy2
            copy(built(name), self.path(name))
        shutil.copy2(os.environ["STASIS_CRIU"], self.path("criu"))
        shutil.copy2(AGENTS, self.path("agents"))
        with open(os.open(self.path("step"), os.O_CREAT | os.O_WRONLY, 0o755), "w", encoding="utf-8") as file:
            file.write(f"""#!/bin/bash
# A job's first life may be told to end before anything of its task is there.
[ -z "${{EARLY:-}}" ] || [ -n "${{SLURM_RESTART_COUNT:-}}" ] || kill -s "$EARLY" $$
exec {self.path("bin/stasis-step")} "$@"
""")
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)


def setUpModule():
    global TOOLS, SITE, LAB
    TOOLS = enter(Tools())
    SITE = enter(Site("--gpus", str(GPUS)))
    LAB = enter(SlurmLab(nodes=3, gpus=GPUS, plugins=[f"required {TOOLS.path('lib/stasis_spank.so')} {TOOLS.path('step')}"],
                         more=[f"RequeueExit={CHECKPOINTED}", "KillWait=60"]))


def enter(context):
    unittest.addModuleCleanup(context.__exit__, None, None, None)
    return context.__enter__()


def tearDownModule():
    unittest.doModuleCleanups()
    give_up = time.monotonic() + 60
    while (left := slurm_lab.processes()) and time.monotonic() < give_up:
        time.sleep(0.05)  # what Slurm has started for a step ends after the step
    assert not left, f"still there after everything has been ended: {left}"


def srun(*arguments, env=None, **extra):
    return LAB.run("srun", *arguments, env=env or SITE.env(), **extra)


class BatchJob:
    """A batch job of one line, whose output is kept over its restarts."""

    def __init__(self, line, *options, become=(), folder=None, **env):
        folder = folder or LAB.folder
        self.out = os.path.join(folder, f"out-{len(os.listdir(folder))}")
        self.number = LAB.submit(line + "\n", "--requeue", "--open-mode=append", "-o", self.out, "-D", folder, *options,
                                 become=become, env={**SITE.env(), **env})

    def output(self):
        try:
            with open(self.out, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def printed(self):
        """What its program has printed: neither Slurm nor Stasis."""
        others = ("stasis:", "srun:", "slurmstepd-", "devices")
        return [line for line in self.output().splitlines() if not line.startswith(others)]

    def devices(self):
        """That it was given by Slurm, each time it was started."""
        return [line.removeprefix("devices ") for line in self.output().splitlines() if line.startswith("devices")]

    def until_printed(self, text):
        def printed():
            state = LAB.job(self.number)["JobState"]
            if text in self.output():
                return True
            if state in ENDS:
                raise AssertionError(f"job {self.number} has ended without printing {text!r}:\n{self.output()}")
            return False
        LAB.until(printed, f"job {self.number} has not printed {text!r}")

    def until(self, wanted):
        try:
            return LAB.await_job(self.number, wanted)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output()}") from None

    def limit(self):
        """It comes to its time limit in half a minute or more, which is how often Slurm looks at limits."""
        hours, minutes, seconds = map(int, LAB.job(self.number)["RunTime"].split(":"))
        LAB.run("scontrol", "update", f"JobId={self.number}", f"TimeLimit={hours * 60 + minutes + (1 if seconds < 25 else 2)}")

    def requeued(self):
        """Once or, for its time limit may come again before anybody has looked, more often."""
        return self.until(lambda record: record["Restarts"] != "0" and record["JobState"] != "COMPLETING")

    def ended(self):
        record = self.until(lambda record: record["JobState"] in ENDS)
        return record["JobState"], record["ExitCode"]


def program(steps):
    """Trains so many steps, one or two a second until it is told to hurry."""
    return [built("samples/ddp_train"), "--steps", str(steps), "--log-every", "1", "--pace-ms", "1500"]


def undisturbed(steps):
    return SITE.node.run(*program(steps), PACE_UNTIL="/").stdout.splitlines()


def training(name, steps, *options, option="--stasis", step=""):
    """A job that rests between its steps until SITE.hurry(name)."""
    return BatchJob(f"echo devices $CUDA_VISIBLE_DEVICES\nsrun {option} {step} {' '.join(program(steps))}", *options,
                    **SITE.rest(name))


class Option(unittest.TestCase):
    def test_a_step_is_a_task(self):
        result = srun("--stasis", "-n1", "--gres=gpu:1", built("samples/vector"), "--rounds", "2")
        plain = SITE.node.run(built("samples/vector"), "--rounds", "2")
        lines = [line for line in result.stdout.splitlines() if "device time" not in line]
        self.assertEqual(lines, [line for line in plain.stdout.splitlines() if "device time" not in line])
        self.assertIn("task slurm-", result.stderr)

    def test_exit_code_and_arguments_are_the_programs(self):
        result = srun("--stasis", "-n1", "sh", "-c", 'echo "[$1]" "$2"; exit 7', "sh", "a  b", "$HOME", check=False)
        self.assertEqual(result.returncode, 7)
        self.assertEqual(result.stdout, "[a  b] $HOME\n")

    def test_functions_of_the_environment_are_the_programs_alone(self):
        """As modules of clusters export them."""
        env = SITE.env(**{"BASH_FUNC_dirname%%": "() { echo called >&2; command dirname \"$@\"; }"})
        result = srun("--stasis", "-n1", "bash", "-c", "dirname /a/b", env=env)
        self.assertEqual(result.stdout, "called\n/a\n")
        self.assertNotIn("called", result.stderr)

    def test_several_programs_are_refused(self):
        LAB.write("programs", "0 echo a\n1 echo b\n")
        result = srun("--stasis", "-n2", "--multi-prog", LAB.path("programs"), check=False)
        self.assertNotEqual(result.returncode, 0)
        self.assertEqual(result.stdout, "")
        self.assertIn("--multi-prog does not go with --stasis", result.stderr)

    def test_an_unknown_word_is_refused(self):
        result = srun("--stasis=fast", "-n1", "true", check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("unknown option 'fast'", result.stderr)

    def test_what_stays_on_record(self):
        for option, stays in (("--stasis", []), ("--stasis=keep", ["exited"])):
            number = srun(option, "-n1", "sh", "-c", "echo $SLURM_JOB_ID").stdout.strip()
            tasks = [task["state"] for task in SITE.tasks() if task["name"] == f"slurm-{number}.0.0"]
            self.assertEqual(tasks, stays)

    def test_allocation_by_salloc(self):
        result = LAB.run("salloc", "-n1", "--stasis", "srun", "echo", "here", env=SITE.env())
        self.assertEqual(result.stdout, "here\n")
        self.assertIn("stasis: task slurm-", result.stderr)

    def test_without_the_option_nothing_is_different(self):
        result = srun("-n1", "env")
        self.assertNotIn("STASIS_STEP", result.stdout)
        self.assertEqual(result.stderr, "")


class Requeue(unittest.TestCase):
    """What takes its time, until Slurm looks at limits or starts a job again, it takes for all of them at once: on n1 jobs that
    are told to end, on n2 one that runs into its time limit, on n3 one that is preempted."""

    @classmethod
    def setUpClass(cls):
        # What goes to n2 gets another device there.
        cls.first = BatchJob("echo held; exec sleep 3600", "--gres=gpu:1", "-w", "n2")
        cls.addClassCleanup(LAB.run, "scancel", cls.first.number, check=False)
        cls.first.until_printed("held")
        cls.limited = training("limited", 400, "-w", "n2", "-t", "60", "--signal=USR1@29")
        cls.tasks = training("tasks", STEPS, "-n2", "-w", "n1", step="-n2")
        cls.ranks = training("ranks", STEPS, "--gres=gpu:2", "-w", "n1", option="--stasis=ranks=2")
        cls.script = BatchJob(f"echo begin; {' '.join(program(STEPS))}; srun -n1 echo end", "--stasis=batch", "-w", "n1",
                              **SITE.rest("script"))
        cls.early = BatchJob(f"srun --stasis -n1 {' '.join(program(STEPS))}", "-w", "n1", EARLY="USR1", PACE_UNTIL="/")
        wait = "until [ -e {} ]; do sleep 0.1; done".format(SITE.rest("anew")["PACE_UNTIL"])
        cls.anew = BatchJob(f"srun --stasis=on=USR2 -n1 sh -c 'echo begun; {wait}; echo done'", "-w", "n1")
        cls.anew.until_printed("begun")
        LAB.run("scontrol", "requeue", cls.anew.number)
        cls.limited.until_printed("step 3 ")
        cls.limited.limit()
        for job, how in ((cls.tasks, ["-s", "USR1"]), (cls.ranks, ["-s", "TERM"]), (cls.script, ["--batch", "-s", "TERM"])):
            job.until_printed("step 3 ")
            LAB.run("scancel", *how, job.number)

    def goes_on(self, job, name):
        """To its end, once it has been started again."""
        job.requeued()
        self.assertIn("checkpointing slurm-", job.output())
        SITE.hurry(name)
        self.assertEqual(job.ended(), ("COMPLETED", "0:0"), job.output())
        self.assertIn("again from image", job.output())

    def test_preempted(self):
        """And restored on another node, where it gets another device: the job that has taken its place lasts longer."""
        job = training("preempted", STEPS, "--gres=gpu:1", "-w", "n3")
        job.until_printed("step 3 ")
        other = BatchJob("srun -n1 sleep 600", "-p", "high", "-w", "n3", "--exclusive")
        self.assertEqual(job.requeued()["JobState"], "PENDING")
        LAB.run("scontrol", "update", f"JobId={job.number}", "ReqNodeList=n2")
        self.goes_on(job, "preempted")
        self.assertEqual(LAB.job(job.number)["BatchHost"], "n2")
        self.assertEqual(LAB.job(other.number)["JobState"], "RUNNING")
        LAB.run("scancel", other.number)
        self.assertEqual(job.devices(), ["0", "1"])
        self.assertEqual(job.printed(), undisturbed(STEPS))

    def test_several_tasks(self):
        self.goes_on(self.tasks, "tasks")
        self.assertEqual(sorted(self.tasks.printed()), sorted(2 * undisturbed(STEPS)))

    def test_ranks(self):
        """That have NCCL between them."""
        self.goes_on(self.ranks, "ranks")
        plain = LAB.run(built("bin/stasis"), "run", "--embedded", "--ranks", "2", "--device", "soft", "--rm", "--", *program(STEPS),
                        env=SITE.env(PACE_UNTIL="/"))
        self.assertEqual(sorted(self.ranks.printed()), sorted(plain.stdout.splitlines()))

    def test_script_as_a_task(self):
        """Of which Slurm's steps are no part: it starts one after it was restored."""
        self.goes_on(self.script, "script")
        self.assertEqual(self.script.printed(), ["begin", *undisturbed(STEPS), "end"])

    def test_time_limit(self):
        self.goes_on(self.limited, "limited")
        self.assertIn("User defined signal 1: checkpointing", self.limited.output())
        self.assertEqual(self.limited.printed(), undisturbed(400))

    def test_signal_before_the_program(self):
        self.assertEqual(self.early.ended(), ("COMPLETED", "0:0"))
        self.assertIn("User defined signal 1: checkpointing", self.early.output())
        self.assertIn("again from image", self.early.output())
        self.assertEqual(self.early.printed(), undisturbed(STEPS))

    def test_other_signals(self):
        job = BatchJob("srun --stasis=on=USR2+HUP -n1 sh -c 'trap \"exit 6\" TERM; echo begun; while :; do sleep 0.1; done'")
        job.until_printed("begun")
        LAB.run("scancel", "-s", "TERM", job.number)
        self.assertEqual(job.ended(), ("FAILED", "6:0"))

    def test_begins_anew_without_an_image(self):
        self.anew.requeued()
        SITE.hurry("anew")
        self.assertEqual(self.anew.ended(), ("COMPLETED", "0:0"))
        self.assertEqual(self.anew.printed(), ["begun", "begun", "done"])
        self.assertIn("has no image here to go on from: it begins anew", self.anew.output())

    def test_killed_step_leaves_nothing(self):
        """The command that stays with the task can do nothing about it, and Slurm does not know the task as its descendant."""
        job = training("killed", STEPS, "-w", "n3")
        job.until_printed("step 3 ")
        name = f"slurm-{job.number}.0.0"
        command, = [pid for pid, command in slurm_lab.processes() if f"run --embedded --name {name} " in command]
        os.kill(command, signal.SIGKILL)
        self.assertEqual(job.ended(), ("FAILED", f"{128 + signal.SIGKILL}:0"))
        task, = [task for task in SITE.tasks() if task["name"] == name]
        self.assertEqual(task["state"], "killed")

    def test_signal_is_the_programs_where_no_image_can_be_made(self):
        job = BatchJob("srun --stasis -n1 sh -c 'trap \"exit 5\" TERM; echo begun; while :; do sleep 0.1; done'",
                       STASIS_CRIU="/nonexistent")
        job.until_printed("begun")
        LAB.run("scancel", "-s", "TERM", job.number)
        self.assertEqual(job.ended(), ("FAILED", "5:0"))
        self.assertIn("no image, so the signal is passed on", job.output())


class User(unittest.TestCase):
    """One without privileges, who has devices of his own."""

    @classmethod
    def setUpClass(cls):
        cls.folder = LAB.path("user")
        os.mkdir(cls.folder)
        shutil.chown(cls.folder, "nobody")
        cls.devices = subprocess.Popen([*AS_USER, TOOLS.path("bin/softgpud"), "--socket", f"{cls.folder}/devices/socket", "--gpus", "1"],
                                       stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        cls.addClassCleanup(cls.devices.wait)
        cls.addClassCleanup(cls.devices.terminate)
        LAB.until(lambda: os.path.exists(f"{cls.folder}/devices/socket"), "softgpud does not come up")

    def env(self, hurry):
        return {"HOME": self.folder, "PACE_UNTIL": hurry, "STASIS_STATE_DIR": f"{self.folder}/state",
                "STASIS_RUN_DIR": f"{self.folder}/run", "STASIS_CRIU": TOOLS.path("criu"),
                "SOFTGPU_SOCKET": f"{self.folder}/devices/socket", "SOFTGPU_AUTOSTART": "0"}

    def start(self, option, signal_name):
        """A job that trains until it is hurried, whose step has taken this signal after some steps."""
        command = " ".join([TOOLS.path("samples/ddp_train"), *program(STEPS)[1:]])
        job = BatchJob(f"srun {option} -n1 {command}", become=AS_USER, folder=self.folder,
                       **self.env(f"{self.folder}/hurry{signal_name}"))
        job.until_printed("step 3 ")
        LAB.run("scancel", "-s", signal_name, job.number)
        return job

    def test_goes_on(self):
        job = self.start("--stasis=userns", "TERM")
        job.requeued()
        with open(f"{self.folder}/hurryTERM", "x", encoding="utf-8"):
            pass
        self.assertEqual(job.ended(), ("COMPLETED", "0:0"), job.output())
        self.assertEqual(job.printed(), undisturbed(STEPS))
        self.assertIn("runs again from image", job.output())

    def test_agent(self):
        env = {**SITE.env(), **self.env("/"), "STASIS_USERNS": "1", "STASIS_BIN": TOOLS.path("bin")}
        number = LAB.run(*AS_USER, "sbatch", "--parsable", "-N1", "-D", self.folder, TOOLS.path("agents"), env=env).stdout.strip()
        self.addCleanup(LAB.run, "scancel", number)

        def run(*words, **options):
            return LAB.run(*AS_USER, TOOLS.path("bin/stasis"), *words, env={**env, "PACE_UNTIL": f"{self.folder}/hurry"}, **options)

        def stasis(*words):
            return run(*words).stdout
        LAB.until(lambda: run("ops", "ls", check=False).returncode == 0, "the agent does not come up")
        stasis("run", "--detach", "--name", "t", "--", TOOLS.path("samples/ddp_train"), *program(STEPS)[1:])
        stasis("checkpoint", "--stop", "t")
        with open(f"{self.folder}/hurry", "x", encoding="utf-8"):
            stasis("restore", "t")
        self.assertEqual(stasis("logs", "t").splitlines(), undisturbed(STEPS))

    def test_is_told_why_there_is_no_image(self):
        job = self.start("--stasis", "USR1")
        self.assertEqual(job.ended(), ("FAILED", f"{128 + signal.SIGUSR1}:0"))
        self.assertIn("no image, so the signal is passed on", job.output())


class Agents(unittest.TestCase):
    """One on each node of an allocation, each with a state folder of its own."""

    def setUp(self):
        folder = os.path.join(SITE.folder.name, "%N")
        self.env = {**SITE.env(**SITE.rest("agents")), "STASIS_BIN": os.path.dirname(built("bin/stasis")),
                    "STASIS_STATE_DIR": os.path.join(folder, "state"), "STASIS_RUN_DIR": os.path.join(folder, "run")}
        self.out = LAB.path("agents")
        self.number = LAB.run("sbatch", "--parsable", "-N2", "-w", ",".join(PAIR), f"--gres=gpu:{GPUS}", "-o", self.out, AGENTS,
                              env=self.env).stdout.strip()
        self.addCleanup(self.end)
        self.agents = {name: self.reach(name) for name in PAIR}

    def end(self):
        LAB.run("scancel", self.number, check=False)
        for agent in self.agents.values():
            agent.close()
        return LAB.await_job(self.number, lambda record: record["JobState"] == "CANCELLED")

    def on(self, name):
        """The environment of a command on this node."""
        return {key: value.replace("%N", name) for key, value in self.env.items()}

    def reach(self, name):
        agent = Agent(f"unix:{self.on(name)['STASIS_RUN_DIR']}/stasisd.sock")
        agent.wait_until_ready(300)
        return agent

    def stasis(self, name, *words):
        return LAB.run(built("bin/stasis"), *words, env=self.on(name)).stdout

    def test_in_an_allocation(self):
        self.assertEqual({name: agent.info().name for name, agent in self.agents.items()}, {name: name for name in PAIR})
        step = subprocess.Popen(["srun", "--jobid", self.number, "--overlap", "-w", "n1", "-n1", "--stasis", *program(STEPS)],
                                env={**LAB.env, **self.env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        first = step.stdout.readline()
        self.assertEqual(list(self.agents["n2"].jobs()), [])
        (name, job), = self.agents["n1"].jobs().items()
        self.assertEqual((name.split(".")[0], job.condition), (f"slurm-{self.number}", pb.CONDITION_RUNNING))
        self.stasis("n1", "checkpoint", name)
        SITE.hurry("agents")
        rest, _ = step.communicate(timeout=300)
        self.assertEqual(step.returncode, 0)
        self.assertEqual((first + rest).splitlines(), undisturbed(STEPS))

    def test_the_allocation_ends(self):
        """What the agent has started is no step of Slurm's, and must be ended with it."""
        self.env.update(SITE.rest("own"))
        self.stasis("n2", "run", "--detach", "--name", "own", "--", *program(STEPS))
        self.agents["n2"].wait_for_output("own", "step 3 ")
        self.end()
        state, = json.loads(self.stasis("n2", "ps", "--json"))["tasks"]
        self.assertEqual((state["name"], state["state"]), ("own", "checkpointed"))
        SITE.hurry("own")
        self.stasis("n2", "restore", "own")
        self.assertEqual(self.stasis("n2", "logs", "own").splitlines(), undisturbed(STEPS))


class Cluster(unittest.TestCase):
    """A scheduler whose node is that of an allocation, as long as that lasts."""

    def setUp(self):
        self.socket = os.path.join(SITE.folder.name, "schedd.sock")
        folder = os.path.join(SITE.folder.name, "cluster", "%N")
        self.env = {**SITE.env(**SITE.rest("cluster")), "STASIS_SCHEDULER": f"unix:{self.socket}"}
        self.node_env = {**self.env, "STASIS_BIN": os.path.dirname(built("bin/stasis")),
                         "STASIS_STATE_DIR": os.path.join(folder, "state"), "STASIS_RUN_DIR": os.path.join(folder, "run")}
        with open(LAB.path("log", "schedd.log"), "w", encoding="utf-8") as log:
            self.schedd = subprocess.Popen([built("bin/stasis-schedd"), "--state", LAB.path("schedd"), "--listen",
                                            f"unix:{self.socket}"], env=self.env, stdin=subprocess.DEVNULL, stdout=log,
                                           stderr=log, preexec_fn=die_with_parent)
        self.addCleanup(self.schedd.wait)
        self.addCleanup(self.schedd.terminate)
        LAB.until(self.is_ready, "stasis-schedd does not come up")
        self.stasis("tenants", "set", "a", "1")

    def is_ready(self):
        with open(LAB.path("log", "schedd.log"), encoding="utf-8") as log:
            return any(json.loads(line)["message"] == "ready" for line in log if line.endswith("\n"))

    def stasis(self, *words):
        return json.loads(LAB.run(built("bin/stasis"), *words, "--json", env=self.env).stdout)

    def allocate(self):
        """A node for the scheduler: there is none to move a job to. The number of Slurm's job."""
        number = LAB.run("sbatch", "--parsable", "-N1", "-w", "n1", f"--gres=gpu:{GPUS}", "-o", LAB.path("cluster"), AGENTS,
                         "--join", f"unix:{self.socket}", env=self.node_env).stdout.strip()
        self.addCleanup(LAB.run, "scancel", number, check=False)
        LAB.until(lambda: [node["reachable"] and not node["draining"] for node in self.stasis("nodes")["nodes"]] == [True],
                  "the node does not join")
        return number

    def end(self, number):
        LAB.run("scancel", number)
        LAB.until(lambda: not LAB.run("squeue", "-h", "-j", number).stdout, "the allocation does not end")

    def on_node(self, *words):
        """What a command says there."""
        env = {key: value.replace("%N", "n1") for key, value in self.node_env.items()}
        return LAB.run(built("bin/stasis"), *words, check=False, env=env).stdout

    def output(self):
        return self.on_node("logs", "--embedded", "long")

    def tasks(self):
        return json.loads(self.on_node("ps", "--embedded", "--all", "--json"))["tasks"]

    def queued(self):
        job, = self.stasis("queue", "--all")["jobs"]
        return job

    def test_jobs_outlive_allocations(self):
        allocation = self.allocate()
        LAB.run(built("bin/stasis"), "submit", "--name", "long", "--tenant", "a", "--", *program(STEPS), env=self.env)
        LAB.until(lambda: "step 3 " in self.output(), "the job does not run")
        self.end(allocation)
        self.assertEqual([task["state"] for task in self.tasks() if task["name"] == "long"], ["checkpointed"])
        allocation = self.allocate()
        SITE.hurry("cluster")
        LAB.until(lambda: self.queued()["state"] == "done", "the job does not come to its end")
        self.assertEqual(self.queued()["exit_code"], 0)
        self.assertEqual(self.output().splitlines(), undisturbed(STEPS))
        self.end(allocation)


if __name__ == "__main__":
    slurm_lab.own_namespaces()
    unittest.main()
