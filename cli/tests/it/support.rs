//! Runs the executable as a person or a script would.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// Output of a command.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The path of the executable: another build of it, such as the release, if `TRIBUTARY_TESTED` names one.
pub(crate) fn executable() -> OsString {
    std::env::var_os("TRIBUTARY_TESTED").unwrap_or_else(|| env!("CARGO_BIN_EXE_tributary").into())
}

/// The executable, without this machine's environment variables that could steer it.
pub(crate) fn tributary() -> Command {
    without_environment(Command::new(executable()))
}

/// The build of the executable that has the tests' features, such as repeatable noise.
pub(crate) fn tributary_for_tests() -> Command {
    without_environment(Command::new(env!("CARGO_BIN_EXE_tributary")))
}

fn without_environment(mut command: Command) -> Command {
    for name in ["SERVER", "CA", "TOKEN", "ENROLLMENT_TOKEN", "DATA_DIR", "LOG"] {
        command.env_remove(format!("TRIBUTARY_{name}"));
    }
    command.env_remove("COLUMNS");
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"] {
        command.env_remove(name).env_remove(name.to_lowercase());
    }
    command
}

/// Runs it to its end.
pub(crate) fn run(args: &[&str]) -> Ran {
    finish(tributary().args(args))
}

/// A number that the environment sets, or this one.
pub(crate) fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap())
}

/// Runs a command to its end.
pub(crate) fn finish(command: &mut Command) -> Ran {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ran {
    /// The one envelope on stdout. A part of a list names where the next one begins, a view its entity tag.
    pub(crate) fn envelope(&self) -> Value {
        let envelope: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self}"));
        assert_eq!(envelope["schema_version"], 1, "{self}");
        let keys = envelope.as_object().unwrap().keys().map(String::as_str);
        assert!(
            keys.filter(|key| !matches!(*key, "etag" | "next_cursor")).eq(["data", "schema_version", "status"]),
            "{self}"
        );
        assert_eq!(envelope["status"], if self.code == 0 { "ok" } else { "error" }, "{self}");
        envelope
    }

    /// Data of a successful command.
    pub(crate) fn data(&self) -> Value {
        assert_eq!(self.code, 0, "{self}");
        self.envelope()["data"].clone()
    }

    /// The events on stdout, one a line.
    pub(crate) fn events(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// SHA-256 of each model that an undisturbed demo with these arguments publishes.
pub(crate) fn undisturbed(args: &[&str]) -> Vec<Value> {
    let ran = run(&[&["--format", "json", "demo"][..], args].concat());
    assert_eq!(ran.code, 0, "{ran}");
    let rounds = ran.events().into_iter().filter(|event| event["event"] == "round");
    rounds.map(|round| round["model"]["sha256"].clone()).collect()
}

impl std::fmt::Display for Ran {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "exit code {}\nstdout: {}\nstderr: {}", self.code, self.stdout, self.stderr)
    }
}

/// A process that ends with the test.
pub(crate) struct Background(pub(crate) Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A coordinator in a process of its own.
pub(crate) struct Served {
    pub(crate) process: Background,
    pub(crate) url: String,
    pub(crate) ca: String,
    pub(crate) token: String,
    /// Where signed requests are taken, if anywhere.
    pub(crate) signed: String,
    /// Plain-HTTP address of health checks, if any.
    pub(crate) health: String,
}

/// Where a coordinator with this URL listens.
fn address(url: &str) -> String {
    url.rsplit('/').next().unwrap().replace("localhost", "127.0.0.1")
}

impl Served {
    /// `serve --dev` on a free port.
    pub(crate) fn dev(folder: &Path) -> Self {
        Self::at("127.0.0.1:0", folder)
    }

    /// The same with these variables in its environment.
    pub(crate) fn dev_with(folder: &Path, variables: &[(&str, &str)]) -> Self {
        Self::dev_at("127.0.0.1:0", folder, variables)
    }

    /// The same at this address.
    pub(crate) fn dev_at(listen: &str, folder: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = Self::dev_command(listen, folder);
        command.envs(variables.iter().copied());
        Self::until(command, "serving")
    }

    /// Killed as the kernel kills, without a chance to tidy up, and started anew where it was.
    pub(crate) fn kill_and_restart(self, folder: &Path) -> Self {
        self.kill_and_restart_after(folder, || ())
    }

    /// The same, with something done to the folder in between.
    pub(crate) fn kill_and_restart_after(self, folder: &Path, act: impl FnOnce()) -> Self {
        let Self { process, url, token, .. } = self;
        drop(process);
        act();
        let again = Self::at(&address(&url), folder);
        assert_eq!(again.url, url);
        Self { token, ..again }
    }

    fn at(listen: &str, folder: &Path) -> Self {
        Self::until(Self::dev_command(listen, folder), "serving")
    }

    fn dev_command(listen: &str, folder: &Path) -> Command {
        let mut command = tributary();
        command.args(["--format", "json", "serve", "--dev", "--listen", listen, "--data-dir"]).arg(folder);
        command
    }

    /// `serve --dev` where one was that had this URL; its log, a line of JSON for each event, goes to a file.
    pub(crate) fn dev_logging(url: &str, folder: &Path, log: &Path) -> Self {
        let mut command = Self::dev_command(&address(url), folder);
        command.env("TRIBUTARY_TELEMETRY_FORMAT", "json").stderr(std::fs::File::create(log).unwrap());
        let served = Self::until_in_words(command, "serving");
        assert_eq!(served.url, url);
        served
    }

    /// `serve --config`, whose file has the listen address.
    pub(crate) fn configured(config: &Path) -> Self {
        let mut command = tributary();
        command.args(["--format", "json", "serve", "--config"]).arg(config);
        Self::until(command, "serving")
    }

    /// The demo's, which stays when the rounds are over.
    pub(crate) fn demo(folder: &Path, args: &[&str]) -> Self {
        let mut command = tributary();
        command.args(["--format", "json", "demo", "--inspect", "--dir"]).arg(folder).args(args);
        Self::until(command, "inspecting")
    }

    /// Reads events until the one with the coordinator's address.
    pub(crate) fn until(mut command: Command, stays: &str) -> Self {
        command.stderr(Stdio::null());
        Self::until_in_words(command, stays)
    }

    /// The same, with the command's stderr.
    pub(crate) fn until_in_words(mut command: Command, stays: &str) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let process = Background(child);
        let mut events = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        let event = events.find(|event| event["event"] == stays).expect("it ended before");
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        Self {
            process,
            url: text("url"),
            ca: text("ca"),
            token: text("token"),
            signed: text("signed"),
            health: text("health"),
        }
    }

    /// An operator's command, answered as JSON.
    pub(crate) fn operate(&self, args: &[&str]) -> Ran {
        self.operate_as(&self.token, args)
    }

    /// The same with another token.
    pub(crate) fn operate_as(&self, token: &str, args: &[&str]) -> Ran {
        finish(self.command(token).args(["--format", "json"]).args(args))
    }

    /// A token with which one participant enrols.
    pub(crate) fn enrollment_token(&self) -> String {
        self.operate(&["token", "create", "--enrollment"]).data()["token"].as_str().unwrap().to_owned()
    }

    /// Text of an operator's command that succeeds.
    pub(crate) fn read(&self, args: &[&str]) -> String {
        let ran = finish(self.command(&self.token).args(args));
        assert_eq!(ran.code, 0, "{args:?}: {ran}");
        ran.stdout
    }

    /// An operator's command with this token.
    pub(crate) fn command(&self, token: &str) -> Command {
        let mut command = tributary();
        command.env("TRIBUTARY_SERVER", &self.url).env("TRIBUTARY_CA", &self.ca).env("TRIBUTARY_TOKEN", token);
        command
    }
}
