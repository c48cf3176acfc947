"""What a run of the campaign decides: which job, and which verbs disturbed by what. All of it follows from the seed and the
number of the run; nothing that happens has a say, so that a run can be had again."""

import dataclasses
import random

# A job by its name: what of it is in jobs.py.
JOBS = ("counter", "mlp", "gpt", "cnn", "stencil", "vector", "nccl_ring", "ddp", "pipeline", "tp", "ddp-tree")
ROUNDS = (5, 9)

# Each leads from a job that runs to one that runs, in one or two steps.
VERBS = {
    "pause": ("pause", "resume"),
    "checkpoint": ("checkpoint",),
    "stop": ("checkpoint --stop", "restore"),
    "move": ("move",),
    "migrate": ("migrate",),
}
WITH_CRIU = ("checkpoint", "stop", "migrate")
WEIGHTS = {"pause": 3, "checkpoint": 3, "stop": 3, "move": 1, "migrate": 3}
VIAS = ("agent", "agent", "command")

# What may happen during a verb, by the kind that the totals count it under.
STRIKES = {
    "kill": ("program", "init", "ghost", "ghosts", "criu", "agent", "peer-agent", "command", "softgpud"),
    "stop": ("program", "init", "ghost", "criu", "agent", "softgpud"),
    "disk": ("here", "there"),
    "network": ("cut", "slow", "far"),
    "memory": ("ghost", "device"),
    "device": ("fell-off-bus", "ecc", "slow"),
    "clock": ("step",),
}
# What is done to files of a job that runs, in the place of a verb.
DAMAGES = ("pack", "index", "manifest", "job-image", "status", "database")
KINDS = ("none", *STRIKES, "damage")
KIND_WEIGHTS = {"none": 2, "kill": 8, "stop": 5, "disk": 2, "network": 3, "memory": 2, "device": 2, "clock": 1, "damage": 3}
# Those happen to a job that goes from node to node, or not at all.
NEEDS_MIGRATION = {("kill", "peer-agent"), ("disk", "there"), ("network", "cut"), ("network", "slow"), ("network", "far")}
# And those to a verb that the command itself carries out.
NEEDS_COMMAND = {("kill", "command")}
NEEDS_CRIU = {("kill", "criu"), ("stop", "criu")}


@dataclasses.dataclass(frozen=True)
class Round:
    verb: str       # of VERBS; "damage"
    via: str        # who carries it out: the agent, or `stasis --embedded`
    step: int       # of the verb, the one that is disturbed
    kind: str       # of KINDS
    what: str       # of that kind
    moment: float   # of what the step usually takes
    amount: float   # from 0 to 1: how much of it
    victim: int     # which of those there are
    options: tuple  # of the verb

    def text(self):
        options = " ".join(f"{name}={value}" for name, value in self.options)
        fault = f"{self.kind} {self.what}".strip()
        when = f" of step {self.step} at {self.moment:.3f}, amount {self.amount:.3f}, victim {self.victim}"
        return f"{self.verb} by {self.via} [{options}]: {fault}" + ("" if self.kind == "none" else when)


@dataclasses.dataclass(frozen=True)
class Run:
    seed: int
    number: int
    job: str
    strategy: str
    rounds: tuple

    def lines(self):
        yield f"run {self.number} of seed {self.seed}: {self.job}, {self.strategy}"
        for number, each in enumerate(self.rounds):
            yield f"  {number}: {each.text()}"


def verb_options(chance, verb):
    """For the request of the agent and the command line alike."""
    options = []
    if verb == "pause":
        options.append(("residency", chance.choice(("device", "host", "disk"))))
    if verb == "checkpoint":
        options.append(("snapshot", chance.choice(("auto", "device", "host", "off"))))
    if verb == "migrate":
        options.append(("precopy", chance.choice(("auto", "always", "never"))))
    return tuple(options)


def weighted(chance, weights):
    return chance.choices(list(weights), list(weights.values()))[0]


def a_verb(chance, kind, what):
    """One that this can happen to, and who carries it out."""
    if (kind, what) in NEEDS_MIGRATION:
        return "migrate", "agent"
    weights = dict(WEIGHTS)
    if (kind, what) in NEEDS_COMMAND:
        del weights["migrate"]
    if (kind, what) in NEEDS_CRIU:
        weights = {verb: weight for verb, weight in weights.items() if verb in WITH_CRIU}
    verb = weighted(chance, weights)
    if verb == "migrate":
        return verb, "agent"
    return verb, "command" if (kind, what) in NEEDS_COMMAND else chance.choice(VIAS)


def a_round(chance):
    kind = weighted(chance, KIND_WEIGHTS)
    what = chance.choice(DAMAGES if kind == "damage" else STRIKES.get(kind, ("",)))
    verb, via = ("damage", "agent") if kind == "damage" else a_verb(chance, kind, what)
    step = chance.randrange(len(VERBS.get(verb, ("",))))
    return Round(verb, via, step, kind, what, moment=chance.random(), amount=chance.random(),
                 victim=chance.randrange(1 << 16), options=verb_options(chance, verb))


def a_run(seed, number):
    # Every so many runs all jobs have been there, in another order each time.
    order = list(JOBS)
    random.Random(f"{seed} jobs {number // len(JOBS)}").shuffle(order)
    chance = random.Random(f"{seed} run {number}")
    strategy = chance.choice(("reconstruct", "driver-checkpoint"))
    rounds = tuple(a_round(chance) for _ in range(chance.randint(*ROUNDS)))
    return Run(seed, number, order[number % len(JOBS)], strategy, rounds)
