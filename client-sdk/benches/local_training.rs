//! Samples per CPU-second of local training on one thread, compared with PyTorch in the same run.
//!
//! `cargo bench -p client-sdk --bench local_training`. The bench looks for PyTorch at `TRIBUTARY_TORCH_PYTHON`, else at
//! `/work/venv-torch/bin/python`. Without it, only the project's own figures are printed. Both sides take turns of about a second, so
//! other load on the machine affects both. The best turn of each is reported. A sample is one example forward and backward with plain
//! SGD. CPU time is the process's own, on Linux from `/proc/self/stat`.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a bench prints, and may stop at the first surprise")]
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock and its settings")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use client_sdk::models::{Architecture, Cnn, Gru, Linear, Mlp};
use client_sdk::train::{Device, Examples, Sgd, train};
use learning::Parameters;
use task_spec::TrainingPlan;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: usize = 600;
const CHARACTERS: usize = 80;
const TURNS: usize = 5;
const TURN_SECONDS: f64 = 1.0;

/// Reads "model batch seconds" lines; answers each with samples per CPU-second.
const TORCH: &str = r#"
import sys, time
import torch, torch.nn as nn, torch.nn.functional as F
torch.set_num_threads(1)
class Gru(nn.Module):
    def __init__(s):
        super().__init__(); s.e = nn.Embedding(80, 8); s.g = nn.GRU(8, 128, batch_first=True); s.f = nn.Linear(128, 80)
    def forward(s, x): return s.f(s.g(s.e(x))[0]).flatten(0, 1)
def make(name):
    x, y = torch.randn(600, 784), torch.randint(0, 10, (600,))
    if name == "linear": return nn.Linear(784, 10), x, y
    if name == "mlp": return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10)), x, y
    if name == "cnn": return nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10)), x.view(600, 1, 28, 28), y
    return Gru(), torch.randint(0, 80, (600, 80)), torch.randint(0, 80, (600, 80))
made = {}
print(torch.__version__, flush=True)
for line in sys.stdin:
    name, batch, seconds = line.split(); batch = int(batch); seconds = float(seconds)
    if name not in made: net, x, y = make(name); made[name] = net, x, y, torch.optim.SGD(net.parameters(), lr=0.01)
    net, x, y, opt = made[name]; samples = 0; cpu = time.process_time(); wall = time.perf_counter()
    while time.perf_counter() - wall < seconds:
        for i in range(0, 600 - batch + 1, batch):
            opt.zero_grad(); F.cross_entropy(net(x[i:i + batch]), y[i:i + batch].flatten()).backward(); opt.step()
            samples += batch
            if time.perf_counter() - wall > seconds: break
    print(samples / (time.process_time() - cpu), flush=True)
"#;

struct Torch {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Torch {
    fn start() -> Option<Self> {
        let python = std::env::var("TRIBUTARY_TORCH_PYTHON").unwrap_or("/work/venv-torch/bin/python".into());
        let mut child = Command::new(&python)
            .args(["-c", TORCH])
            .env("OMP_NUM_THREADS", "1")
            .env("MKL_NUM_THREADS", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .ok()?;
        let (input, output) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let mut torch = Self { child, input, output };
        let version = torch.line().filter(|line| !line.is_empty())?;
        println!("PyTorch {version} from {python}, one thread");
        Some(torch)
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        self.output.read_line(&mut line).ok()?;
        Some(line.trim().to_owned())
    }

    fn samples_per_second(&mut self, name: &str, batch: usize, seconds: f64) -> Option<f64> {
        writeln!(self.input, "{name} {batch} {seconds}").ok()?;
        self.line()?.parse().ok()
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU seconds of this process, in its own threads and their pools.
fn cpu_seconds(began: Instant) -> f64 {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return began.elapsed().as_secs_f64() };
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |index: usize| fields[index].parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / 100.0
}

fn examples(architecture: &Architecture) -> (Vec<f32>, Vec<u32>) {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let count = if matches!(architecture, Architecture::Gru(_)) { CHARACTERS } else { 1 } * EXAMPLES;
    let features = (0..EXAMPLES * 784).map(|_| next() as f32 / 8_388_608.0 - 1.0).collect();
    let labels = (0..count).map(|_| next() % architecture.classes()).collect();
    (features, labels)
}

struct Bench {
    architecture: Architecture,
    start: Parameters,
    features: Vec<f32>,
    labels: Vec<u32>,
    began: Instant,
}

impl Bench {
    fn samples_per_second(&self, batch: usize, steps: u32) -> f64 {
        let examples = match self.architecture {
            Architecture::Gru(_) => Examples::Text { inputs: &self.labels, targets: &self.labels, length: CHARACTERS },
            _ => Examples::Labelled { features: &self.features, labels: &self.labels, width: 784 },
        };
        let plan = TrainingPlan {
            steps: Some(steps),
            batch_size: u32::try_from(batch).unwrap(),
            learning_rate: 0.01,
            ..TrainingPlan::default()
        };
        let before = cpu_seconds(self.began);
        let trained =
            train(&self.architecture, &self.start, examples, Sgd { plan: &plan, seed: 0 }, &Device::Cpu).unwrap();
        std::hint::black_box(trained.delta);
        (steps as usize * batch) as f64 / (cpu_seconds(self.began) - before)
    }
}

impl Bench {
    /// Steps that take about [`TURN_SECONDS`].
    fn steps_of_a_turn(&self, batch: usize) -> u32 {
        let mut steps = 20;
        loop {
            let began = Instant::now();
            self.samples_per_second(batch, steps);
            if began.elapsed().as_secs_f64() > TURN_SECONDS / 2.0 {
                return steps;
            }
            steps *= 2;
        }
    }
}

fn main() {
    let mut torch = Torch::start();
    if torch.is_none() {
        println!("no PyTorch found: set TRIBUTARY_TORCH_PYTHON to a python that can import torch");
    }
    println!(
        "{:8} {:>5} {:>12} {:>12} {:>6}   samples per CPU-second, best of {TURNS}",
        "model", "batch", "ours", "torch", "ratio"
    );
    let models = [
        Architecture::Linear(Linear { inputs: 784, classes: 10 }),
        Architecture::Mlp(Mlp::default()),
        Architecture::Cnn(Cnn::default()),
        Architecture::Gru(Gru::with_vocabulary(80)),
    ];
    for architecture in models {
        let (features, labels) = examples(&architecture);
        let start = architecture.initial(1).unwrap();
        let bench = Bench { architecture, start, features, labels, began: Instant::now() };
        for batch in [10, 32] {
            let steps = bench.steps_of_a_turn(batch);
            let name = bench.architecture.kind();
            let (mut ours, mut theirs) = (0.0_f64, 0.0_f64);
            for _ in 0..TURNS {
                ours = ours.max(bench.samples_per_second(batch, steps));
                if let Some(rate) = torch.as_mut().and_then(|torch| torch.samples_per_second(name, batch, TURN_SECONDS))
                {
                    theirs = theirs.max(rate);
                }
            }
            println!("{name:8} {batch:5} {ours:12.0} {theirs:12.0} {:6.2}", ours / theirs);
        }
    }
}
