"""Files of a job are damaged: those whose loss it survives, by an older image or because it still runs."""

import os
import signal

from agents import OperationFailed, pb

# What a restore of a damaged image is refused for, or what is answered where a record cannot be read.
CLEAR = ("CORRUPT", "NOT_FOUND", "UNSUPPORTED", "FAILED_PRECONDITION")


def list_files(folder):
    return {os.path.join(place, name) for place, _, names in os.walk(folder) for name in names}


class Damage:
    """One round of it on a job that runs. `course`: the run."""

    def __init__(self, course, each):
        self.course, self.round = course, each
        self.job, self.node = course.job, course.node
        self.state = self.node.path(self.node.state)

    def carry_out(self):
        if self.round.what in ("status", "database"):
            return getattr(self, self.round.what)()
        return self.newest_image()

    def spoil(self, path):
        """One byte is another, the end is missing, or all of it; which, for the totals."""
        size = os.path.getsize(path)
        at = min(int(self.round.amount * size), size - 1)
        way = ("changed", "cut", "emptied", "removed")[self.round.victim % 4]
        self.course.say(f"{os.path.relpath(path, self.state)} of {size} bytes is {way}" + (f" at {at}" if way != "removed" else ""))
        if way == "removed":
            os.remove(path)
        elif way == "changed":
            with open(path, "r+b") as file:
                file.seek(at)
                byte = file.read(1)
                file.seek(at)
                file.write(bytes([byte[0] ^ 0x41]))
        else:
            os.truncate(path, at if way == "cut" else 0)
        self.course.totals.damage(self.round.what, way)

    # ---- images

    def images(self):
        return sorted(image.id for image in self.node.agent.stub.Images(pb.ImagesRequest(job=self.job.name), timeout=60).images)

    def image_files(self, kind, files):
        """Of what a checkpoint has added."""
        if kind == "pack":
            return [path for path in files if path.endswith(".pack")]
        if kind == "index":
            return [path for path in files if path.endswith(".idx")]
        if kind == "manifest" or not self.job.sample.ranks:
            return [path for path in files if path.endswith(".image")]
        return [path for path in files if "/jobs/" in path]

    def newest_image(self):
        """It is damaged, the job dies, and comes back from it if that can be, else from the one before."""
        self.course.call("checkpoint")
        before, older = list_files(self.state), self.images()[-1]
        self.job.get_on()
        self.course.call("checkpoint")
        newest = self.images()[-1]
        victims = sorted(self.image_files(self.round.what, list_files(self.state) - before))
        if not victims:
            raise AssertionError(f"no {self.round.what} among what image {newest} has added")
        self.spoil(victims[self.round.victim // 4 % len(victims)])
        self.kill()
        if not self.restore(newest):
            self.restore(older, must=True)
        self.forget(newest)
        self.course.bring_back(self.round)
        return "brought back"

    def kill(self):
        for task in self.job.tasks:
            os.kill(self.node.process(task)["init_pid"], signal.SIGKILL)
        for task in self.job.tasks:
            self.node.wait_for_end(task)

    def restore(self, image, must=False):
        try:
            self.course.call("restore", image=image)
            self.job.brought_back()
            self.job.get_on()
        except OperationFailed as failed:
            self.course.say(f"restore of {image}: {failed.result.get('code')} {failed.result.get('message')}")
            if must or failed.result.get("code") not in CLEAR:
                raise
            return False
        self.course.say(f"restored from {image}")
        return True

    def forget(self, image):
        """As who found it damaged does; then everything is as it should be."""
        status, answer, stderr = self.node.stasis("images rm", f"{self.job.name}/{image}", "--force")
        self.course.say(f"images rm: {status} {answer.get('message', '')}")
        if status not in (0, 3):
            raise AssertionError(f"images rm: {answer} {stderr}")
        for verb in ("gc", "verify"):
            status, answer, stderr = self.node.stasis(f"images {verb}")
            if status != 0:
                raise AssertionError(f"images {verb}: {answer} {stderr}")

    # ---- records of a job that runs

    def status(self):
        """The ghost's notes about a task that no ghost is at: the next verb does without, or says why not."""
        task = self.job.tasks[self.round.victim % len(self.job.tasks)]
        path = os.path.join(self.node.task_folder(task), "status.json")
        with open(path, "rb") as file:
            good = file.read()
        self.spoil(path)
        try:
            self.course.call("checkpoint")
            self.course.say("checkpoint: succeeded")
        except OperationFailed as failed:
            self.course.say(f"checkpoint: {failed.result}")
            said = failed.result.get("code") in CLEAR and "status.json" in failed.result.get("message", "")
            if not said or not failed.result.get("remedy"):
                raise
            with open(path, "wb") as file:
                file.write(good)
        return self.course.bring_back(self.round)

    def database(self):
        """The agent's memory is lost: what it knows of jobs is what the files say."""
        self.node.stop_agent()
        for name in os.listdir(self.state):
            if name.startswith("agent.db"):
                os.remove(os.path.join(self.state, name))
        self.course.totals.damage("database", "removed")
        self.node.start_agent()
        return self.course.bring_back(self.round)
