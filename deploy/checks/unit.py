#!/usr/bin/env python3
"""Starts what deploy/systemd/tributary.service starts, as its comment says to set it up: unit.py BINARY.

The program, the configuration and the state are in a folder of their own instead of the places that the unit names, and the port is a free one.
"""
import configparser
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
UNIT = ROOT / "deploy/systemd/tributary.service"
STATE = "/var/lib/tributary"
LIMIT_S = 60


def main():
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    setup = f"sed 's|tributary-data|{STATE}|' docs/config/coordinator.toml"
    for page in (UNIT, ROOT / "docs/OPERATIONS.md"):
        if setup not in page.read_text():
            sys.exit(f"{page.relative_to(ROOT)} does not say: {setup}")
    if f"/var/lib/{service['StateDirectory']}" != STATE:
        sys.exit(f"the unit's StateDirectory is not {STATE}")

    with tempfile.TemporaryDirectory() as folder:
        state, configuration = pathlib.Path(folder, "state"), pathlib.Path(folder, "coordinator.toml")
        state.mkdir(mode=0o700)
        made = subprocess.run(["bash", "-c", setup], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        configuration.write_text(made.replace(STATE, str(state)))
        places = {"/usr/local/bin/tributary": os.path.realpath(sys.argv[1]), "/etc/tributary/coordinator.toml": str(configuration)}
        name, _, value = service["Environment"].partition("=")
        environment = {**os.environ, name: value, "TRIBUTARY_HTTP_LISTEN": "127.0.0.1:0"}
        # A bare folder of its own: a path that the configuration leaves relative would lead here.
        started = pathlib.Path(folder, "elsewhere")
        started.mkdir()
        command = {key: [places.get(word, word) for word in service[key].split()] for key in ("ExecStartPre", "ExecStart")}
        subprocess.run(command["ExecStartPre"], cwd=started, env=environment, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
        with subprocess.Popen(command["ExecStart"], cwd=started, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as serve:
            said = []
            for line in serve.stdout:
                said.append(line)
                if "Serving at" in line:
                    serve.send_signal(getattr(signal, service["KillSignal"]))
        if serve.returncode != 0:
            sys.exit(f"{''.join(said)}what the unit starts ended with {serve.returncode} at {service['KillSignal']}, or before")
        if any(started.iterdir()) or not (state / "coordinator.db").exists():
            sys.exit("what the unit starts keeps something outside its StateDirectory")
    print("the systemd unit: what it starts serves with the configuration that its comment describes, and ends at its signal")


if __name__ == "__main__":
    main()
