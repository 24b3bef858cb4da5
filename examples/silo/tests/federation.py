"""A coordinator and participants whose trainers are programs, of the executable that TRIBUTARY_BINARY names."""
import json
import os
import pathlib
import subprocess
import tempfile
import threading


class Federation:
    """A coordinator in a folder of its own, and silos."""

    def __init__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="tributary-silo-")
        self.path = pathlib.Path(self.temporary.name)
        self.binary = os.environ["TRIBUTARY_BINARY"]
        self.silos = []
        serve = [self.binary, "--format", "json", "serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir", self.path / "data"]
        self.coordinator = subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in self.coordinator.stdout:
            event = json.loads(line)
            if event["event"] == "serving":
                break
        else:
            raise RuntimeError("the coordinator did not start")
        threading.Thread(target=self.coordinator.stdout.read, daemon=True).start()
        self.url, self.ca = event["url"], event["ca"]
        self.variables = {**os.environ, "TRIBUTARY_SERVER": self.url, "TRIBUTARY_CA": self.ca, "TRIBUTARY_TOKEN": event["token"]}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for silo in self.silos:
            if silo.poll() is None:
                silo.terminate()
                silo.wait()
        self.coordinator.terminate()
        self.coordinator.wait()
        self.coordinator.stdout.close()

    def operate(self, *words, timeout=600):
        """An operator's command; what it answers."""
        command = [self.binary, "--format", "json", *map(str, words)]
        ran = subprocess.run(command, env=self.variables, capture_output=True, text=True, timeout=timeout)
        if ran.returncode != 0:
            raise RuntimeError(f"{words} ended with {ran.returncode}: {ran.stderr}{ran.stdout[-2000:]}")
        return [json.loads(line) for line in ran.stdout.splitlines()]

    def create(self, text):
        (self.path / "task.toml").write_text(text)
        self.operate("task", "create", self.path / "task.toml")

    def finish(self, task, silos, seconds=600):
        """Waits until the task is over, for silos that end with it; a busy machine may not answer at once."""
        for index, silo in enumerate(silos):
            try:
                ended = silo.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                ended = f"nothing after {seconds} s"
            if ended != 0:
                said = (self.path / f"said-{index}").read_text()[-3000:]
                raise AssertionError(f"{task}: silo {index} ended with {ended}:\n{said}")

    def silo(self, task, index, trainer, *more, enrolled=False):
        """A participant; what it says goes to a file, said-INDEX."""
        environment = {name: value for name, value in self.variables.items() if name != "TRIBUTARY_TOKEN"}
        if not enrolled:
            answer = self.operate("token", "create", "--enrollment", "--name", f"silo-{index}")
            environment["TRIBUTARY_ENROLLMENT_TOKEN"] = answer[0]["data"]["token"]
        command = [self.binary, "--format", "json", "participant", "run", "--task", task, "--name", f"silo-{index}"]
        command += ["--seed", "42", "--min-cohort", "3", "--min-tolerated-colluders", "0", "--journal", self.path / f"journal-{index}"]
        command += ["--trainer", trainer, "--trainer-dir", self.path / f"jobs-{index}", *more]
        said = open(self.path / f"said-{index}", "a")
        with said:
            self.silos.append(subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT))
        return self.silos[-1]

    def model(self, task, version):
        """Where a version of the model is."""
        out = self.path / f"{task}-{version}.safetensors"
        self.operate("model", "fetch", task, "--model-version", version, "--out", out)
        return out
