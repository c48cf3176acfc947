#!/usr/bin/env python3
"""What the Debian packages hold, installed into a folder: every file in its place, and nothing else is needed to run,
checkpoint and restore a program. With STASIS_TEST_FULL=1 the packages are made, too, and installed and used in a new Debian.
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import yaml

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["STASIS_BUILD_DIR"])
VERSION = os.environ["STASIS_VERSION"]
FULL = os.environ.get("STASIS_TEST_FULL") == "1"
RUNTIME = f"usr/lib/stasis/{VERSION}"
COMPONENTS = {
    "stasis": ["usr/bin/stasis", "usr/bin/stasisd", "usr/bin/stasis-schedd", "usr/bin/stasis-step", "usr/lib/stasis/stasis-ghost",
               "usr/lib/stasis/stasis-sim", "usr/lib/stasis/stasis_spank.so", "usr/lib/systemd/system/stasisd.service",
               "usr/lib/systemd/system/stasis-schedd.service", "usr/share/stasis/slurm/stasis-agents.sbatch", "usr/include/stasis/memory.h",
               "usr/share/stasis/proto/stasis/v1/agent.proto", "usr/share/doc/stasis/copyright", "usr/share/doc/stasis/docs/cli.md",
               "usr/share/doc/stasis/docs/cli-reference.md", "usr/share/doc/stasis/docs/rpc-reference.md", "usr/share/man/man1/stasis.1.gz",
               "usr/share/man/man1/stasis-checkpoint.1.gz", "usr/share/man/man1/stasis-step.1.gz", "usr/share/man/man8/stasisd.8.gz",
               "usr/share/man/man8/stasis-schedd.8.gz", "usr/share/bash-completion/completions/stasis",
               "usr/share/zsh/vendor-completions/_stasis", "usr/share/fish/vendor_completions.d/stasis.fish",
               "usr/share/stasis/deploy/kubernetes/agent.yaml", "usr/share/stasis/torch/stasis_torch.py"],
    "runtime": [f"{RUNTIME}/libstasis.so", f"{RUNTIME}/libcuda.so", f"{RUNTIME}/stasis-init"],
    "softgpu": ["usr/lib/stasis/softgpud", "usr/lib/stasis/softgpu-smi", "usr/share/man/man8/softgpud.8.gz", *(
        f"usr/lib/stasis/softgpu/lib{name}" for name in
        ("cuda.so.1", "cudart.so.13", "cublas.so.13", "cublasLt.so.13", "cudnn.so.9", "nccl.so.2"))],
    "criu": ["usr/lib/stasis/criu", "usr/share/doc/stasis-criu/copyright"]}
# Where the machine's own CRIU is good enough there is none to be packaged.
OWN_CRIU = "criu" in re.search(r'CPACK_COMPONENTS_ALL "(.*)"', (BUILD / "CPackConfig.cmake").read_text())[1].split(";")
if not OWN_CRIU:
    del COMPONENTS["criu"]
PROGRAMS = re.compile(r"^(usr/bin/|usr/lib/stasis/)")


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="stasis-installed-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.roots = {}
        cls.root = pathlib.Path(cls.folder.name) / "all"
        for component in COMPONENTS:
            subprocess.run([os.environ["STASIS_CMAKE"], "--install", BUILD, "--component", component, "--prefix", "/usr"], check=True,
                           env={**os.environ, "DESTDIR": str(cls.root)}, stdout=subprocess.PIPE)
            manifest = (BUILD / f"install_manifest_{component}.txt").read_text().split()
            cls.roots[component] = {path.lstrip("/") for path in manifest}

    def env(self):
        """That of a user whose machine has nothing of ours but the packages."""
        run = pathlib.Path(self.folder.name)
        criu = {} if OWN_CRIU else {"STASIS_CRIU": os.environ["STASIS_CRIU"]}
        return {**criu, "PATH": f"{self.root}/usr/bin:/usr/bin:/bin", "HOME": str(run / "home"), "STASIS_STATE_DIR": str(run / "state"),
                "STASIS_RUN_DIR": str(run / "run"), "SOFTGPU_SOCKET": str(run / "softgpud.sock"), "SOFTGPU_IDLE_EXIT": "1"}

    def stasis(self, verb, *arguments):
        result = subprocess.run(["stasis", verb, "--json", *arguments], env=self.env(), capture_output=True, text=True, check=False, timeout=120)
        answer = json.loads(result.stdout)
        self.assertEqual(0, result.returncode, (answer, result.stderr))
        return answer

    def test_every_file_is_in_its_package(self):
        for component, files in COMPONENTS.items():
            self.assertEqual(set(), set(files) - self.roots[component], component)
        everything = sorted(path for files in self.roots.values() for path in files)
        self.assertEqual(len(everything), len(set(everything)), "a file is in two packages")

    def test_nothing_runs_as_somebody_else(self):
        files = [path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink()]
        self.assertGreater(len(files), 10)
        for path in files:
            self.assertEqual(0, path.stat().st_mode & 0o6000, f"{path} is setuid or setgid")
            self.assertNotIn("security.capability", os.listxattr(path), path)

    def test_no_program_looks_into_a_checkout(self):
        for path in sorted(path for files in self.roots.values() for path in files if PROGRAMS.match(path)):
            tags = subprocess.run(["readelf", "-d", self.root / path], capture_output=True, text=True, check=False).stdout
            for folder in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", tags):
                self.assertEqual("$ORIGIN", folder, path)

    def test_a_program_is_run_checkpointed_and_restored_from_what_is_installed(self):
        doctor = self.stasis("doctor")
        findings = {finding["name"]: finding for finding in doctor["findings"]}
        self.assertIn(f"{self.root}/usr/lib/stasis/criu" if OWN_CRIU else os.environ["STASIS_CRIU"], findings["criu"]["detail"])
        self.stasis("run", "--detach", "--name", "counter", "--device", "soft", "--", str(BUILD / "samples/counter"), "--port", "0")
        self.addCleanup(subprocess.run, ["stasis", "cancel", "--quiet", "--grace", "1ms", "counter"], env=self.env(), check=False)
        task = json.loads((pathlib.Path(self.folder.name) / "state/tasks/counter/task.json").read_text())
        self.assertIn(str(self.root), task["driver"])
        self.stasis("checkpoint", "counter", "--stop")
        self.stasis("restore", "counter", "--detach")
        maps = pathlib.Path(f"/proc/{self.stasis('ps')['tasks'][0]['pid']}/maps").read_text()
        self.assertIn(f"{self.root}/{RUNTIME}/libstasis.so", maps)
        self.assertNotIn(f"{BUILD}/lib", maps)

    def test_units_are_well_formed(self):
        for unit in ("stasisd.service", "stasis-schedd.service"):
            text = (self.root / "usr/lib/systemd/system" / unit).read_text()
            there = pathlib.Path(self.folder.name) / unit
            there.write_text(text.replace("ExecStart=/usr/bin", f"ExecStart={self.root}/usr/bin"))
            result = subprocess.run(["systemd-analyze", "verify", "--man=no", there], capture_output=True, text=True, check=False)
            complaints = [line for line in result.stderr.splitlines() if unit in line]
            self.assertEqual(([], 0), (complaints, result.returncode), result.stderr)

    if FULL:
        def test_packages_are_made_of_the_same_files(self):
            subprocess.run([SOURCE / "scripts" / "package.sh"], check=True)
            names = {"stasis": "stasis", "runtime": f"stasis-runtime-{VERSION}", "softgpu": "stasis-softgpu", "criu": "stasis-criu"}
            for component, name in names.items():
                (package,) = (BUILD / "packages").glob(f"{name}_*.deb")
                listed = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE).stdout
                files = subprocess.run(["tar", "t"], input=listed, check=True, stdout=subprocess.PIPE).stdout.decode().split()
                self.assertEqual(self.roots[component], {file.removeprefix("./") for file in files if not file.endswith("/")})
            subprocess.run([SOURCE / "scripts" / "check_package.sh"], check=True)


class Manifests(unittest.TestCase):
    """Of Kubernetes: what they start is there. scripts/check_deploy.sh compares them with its schemas."""

    def containers(self):
        for file in sorted((SOURCE / "deploy" / "kubernetes").glob("*.yaml")):
            for document in yaml.safe_load_all(file.read_text()):
                pod = document.get("spec", {}).get("template", {}).get("spec", {})
                for container in pod.get("containers", []):
                    yield pod, container

    def test_every_option_is_one_of_the_program(self):
        programs = {program["name"]: program for program in json.loads((BUILD / "docs" / "cli-model.json").read_text())}
        seen = []
        for _, container in self.containers():
            (name,) = container["command"]
            known = {word for option in programs[name]["options"] for word in option["names"]}
            given = {argument.split("=")[0] for argument in container["args"]}
            self.assertEqual(set(), given - known, name)
            for probe in (container[key] for key in ("readinessProbe", "livenessProbe") if key in container):
                program, verb, *arguments = probe["exec"]["command"]
                (found,) = (entry for entry in programs[program]["verbs"] if entry["name"] == verb)
                known = {word for option in found["options"] for word in option["names"]}
                self.assertEqual(set(), {word for word in arguments if word.startswith("-")} - known)
            seen.append(name)
        self.assertEqual(["stasisd", "stasis-schedd"], seen)

    def test_every_variable_and_volume_is_given(self):
        (config,) = (document for document in yaml.safe_load_all((SOURCE / "deploy/kubernetes/namespace.yaml").read_text())
                     if document["kind"] == "ConfigMap")
        for pod, container in self.containers():
            given = set(config["data"]) | {entry["name"] for entry in container.get("env", [])}
            used = {name for argument in container["args"] for name in re.findall(r"\$\((\w+)\)", argument)}
            self.assertEqual(set(), used - given, container["name"])
            volumes = {volume["name"] for volume in pod["volumes"]} | {"state"}
            self.assertEqual(set(), {mount["name"] for mount in container["volumeMounts"]} - volumes)


if __name__ == "__main__":
    unittest.main()
