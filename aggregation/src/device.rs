//! Device selection: the operator's choice, the devices present, the one selected, and why the others were not.
//!
//! A device is trusted only after its self-test. If a device was chosen by name and is missing or fails, start-up
//! fails; `auto` takes the best device that passes, and the CPU is always available.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::cpu::CpuAggregator;
use crate::fallback::Fallback;
use crate::panic::panic_message;
use crate::{AggregationError, Aggregator, self_test};

/// The operator's choice: `auto`, `cuda`, `cuda:N`, `wgpu`, `wgpu:NAME` or `cpu`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum DeviceChoice {
    /// The best device that passes its self-test: NVIDIA's GPUs, then other GPUs, then the processor.
    #[default]
    Auto,
    /// NVIDIA GPUs: the one with this number, or all of them with each vector divided among them.
    Cuda(Option<usize>),
    /// A GPU through Vulkan, Metal or Direct3D: the first with this text in its name, or the best one except software renderers.
    Wgpu(Option<String>),
    Cpu,
}

/// Reasons a name is not a valid choice of device.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeviceChoiceError {
    /// The device is known, but this program was built without it.
    #[error("device \"{name}\" needs a program built with the feature \"{feature}\"; this one offers {}", offered())]
    NotBuiltIn {
        name: String,
        /// The cargo feature for it.
        feature: &'static str,
    },
    /// The GPU's number is invalid.
    #[error("\"{name}\" names no GPU: cuda:0 is the first")]
    Number { name: String },
    #[error("there is no device \"{name}\"; this program offers {}", offered())]
    Unknown { name: String },
}

/// The choices of this build.
const fn offered() -> &'static str {
    match (cfg!(feature = "cuda"), cfg!(feature = "wgpu")) {
        (false, false) => "auto and cpu",
        (true, false) => "auto, cuda, cuda:N and cpu",
        (false, true) => "auto, wgpu, wgpu:NAME and cpu",
        (true, true) => "auto, cuda, cuda:N, wgpu, wgpu:NAME and cpu",
    }
}

impl FromStr for DeviceChoice {
    type Err = DeviceChoiceError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let (kind, which) = name.split_once(':').map_or((name, None), |(kind, which)| (kind, Some(which)));
        let missing = |feature| DeviceChoiceError::NotBuiltIn { name: name.to_owned(), feature };
        match (kind, which) {
            ("auto", None) => Ok(Self::Auto),
            ("cpu", None) => Ok(Self::Cpu),
            ("cuda", _) if !cfg!(feature = "cuda") => Err(missing("cuda")),
            ("wgpu", _) if !cfg!(feature = "wgpu") => Err(missing("wgpu")),
            ("cuda", which) => match which.map(str::parse).transpose() {
                Ok(number) => Ok(Self::Cuda(number)),
                Err(_) => Err(DeviceChoiceError::Number { name: name.to_owned() }),
            },
            ("wgpu", None) => Ok(Self::Wgpu(None)),
            ("wgpu", Some(which)) if !which.is_empty() => Ok(Self::Wgpu(Some(which.to_owned()))),
            _ => Err(DeviceChoiceError::Unknown { name: name.to_owned() }),
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cuda(None) => f.write_str("cuda"),
            Self::Cuda(Some(number)) => write!(f, "cuda:{number}"),
            Self::Wgpu(None) => f.write_str("wgpu"),
            Self::Wgpu(Some(name)) => write!(f, "wgpu:{name}"),
            Self::Cpu => f.write_str("cpu"),
        }
    }
}

/// One row of the device table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceReport {
    /// The device as an operator would choose it; its full name if it is present.
    pub device: String,
    pub verdict: Verdict,
}

/// Result of the selection for a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Chosen,
    /// Not chosen, for this reason.
    NotChosen(String),
}

/// The selected device, and a table with the reasons.
pub struct Selected {
    pub aggregator: Arc<dyn Aggregator>,
    /// All known devices, the chosen one first.
    pub report: Vec<DeviceReport>,
}

impl fmt::Debug for Selected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Selected").field("aggregator", &self.aggregator.name()).field("report", &self.report).finish()
    }
}

/// Selects a device, tests it and logs the result. A GPU has the processor as fallback (see [`crate::fallback`]).
///
/// `threads` is the number of CPU threads, 0 for one per core.
///
/// # Errors
/// [`AggregationError::Device`] if no eligible device is present and passes its self-test.
pub fn select(choice: DeviceChoice, threads: usize) -> Result<Selected, AggregationError> {
    let cpu = Arc::new(CpuAggregator::new(threads)?);
    let selected = select_from(&choice, cpu, gpus(&choice))?;
    for line in &selected.report {
        if let Verdict::NotChosen(reason) = &line.verdict {
            tracing::info!(device = line.device, reason, "aggregation device not chosen");
        }
    }
    tracing::info!(device = selected.aggregator.name(), asked = %choice, "aggregation device chosen");
    Ok(selected)
}

type Open = Box<dyn FnOnce() -> Result<Arc<dyn Aggregator>, AggregationError>>;

/// An eligible GPU, or the reason against it.
struct Candidate {
    device: String,
    open: Result<Open, String>,
}

impl Candidate {
    fn absent(device: &str, reason: impl Into<String>) -> Self {
        Self { device: device.to_owned(), open: Err(reason.into()) }
    }
}

/// The candidates, best first. Drivers are loaded only if the choice allows them.
fn gpus(choice: &DeviceChoice) -> Vec<Candidate> {
    let not_asked = |device| vec![Candidate::absent(device, format!("not looked for: \"{choice}\" was asked for"))];
    let mut all = match choice {
        DeviceChoice::Auto => cuda(None),
        DeviceChoice::Cuda(number) => cuda(*number),
        DeviceChoice::Wgpu(_) | DeviceChoice::Cpu => not_asked("cuda"),
    };
    all.extend(match choice {
        DeviceChoice::Auto => wgpu(None),
        DeviceChoice::Wgpu(name) => wgpu(name.as_deref()),
        DeviceChoice::Cuda(_) | DeviceChoice::Cpu => not_asked("wgpu"),
    });
    all
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: Option<usize>) -> Vec<Candidate> {
    vec![Candidate::absent("cuda", "this program was built without the feature \"cuda\"")]
}

#[cfg(feature = "cuda")]
fn cuda(number: Option<usize>) -> Vec<Candidate> {
    use crate::cuda;

    let device = DeviceChoice::Cuda(number).to_string();
    let open = move || Ok(Arc::new(cuda::open(number)?) as Arc<dyn Aggregator>);
    vec![Candidate { device, open: cuda::count().map(|_| Box::new(open) as Open) }]
}

#[cfg(not(feature = "wgpu"))]
fn wgpu(_: Option<&str>) -> Vec<Candidate> {
    vec![Candidate::absent("wgpu", "this program was built without the feature \"wgpu\"")]
}

#[cfg(feature = "wgpu")]
fn wgpu(name: Option<&str>) -> Vec<Candidate> {
    let Ok(adapters) = catch_unwind(crate::wgpu::adapters) else {
        return vec![Candidate::absent("wgpu", "a graphics driver is broken: looking for adapters panicked")];
    };
    if adapters.is_empty() {
        return vec![Candidate::absent("wgpu", "no driver for Vulkan, Metal or Direct3D 12 offers a device")];
    }
    let candidate = |found: crate::wgpu::Found| {
        let device = format!("wgpu:{}", found.name());
        let refusal = match name {
            Some(name) if !found.answers_to(name) => Some(format!("its name does not contain \"{name}\"")),
            None if found.is_software() => {
                Some("software, slower than the processor's own code: only taken by name".to_owned())
            }
            _ => None,
        };
        let open = move || Ok(Arc::new(found.open()?) as Arc<dyn Aggregator>);
        Candidate { device, open: refusal.map_or_else(|| Ok(Box::new(open) as Open), Err) }
    };
    adapters.into_iter().map(candidate).collect()
}

/// The first candidate that opens and passes its self-test, with `cpu` as fallback; otherwise `cpu`, if the choice
/// allows it.
fn select_from(
    choice: &DeviceChoice,
    cpu: Arc<CpuAggregator>,
    candidates: Vec<Candidate>,
) -> Result<Selected, AggregationError> {
    let mut chosen: Option<Arc<dyn Aggregator>> = None;
    let mut others = Vec::new();
    for Candidate { device, open } in candidates {
        let outcome = match (&chosen, open) {
            (Some(better), Ok(_)) => Err(format!("{} comes first", better.name())),
            (None, Ok(open)) => tested(open),
            (_, Err(reason)) => Err(reason),
        };
        match outcome {
            Ok(aggregator) => chosen = Some(aggregator),
            Err(reason) => others.push(DeviceReport { device, verdict: Verdict::NotChosen(reason) }),
        }
    }
    let may_be_cpu = matches!(choice, DeviceChoice::Auto | DeviceChoice::Cpu);
    let aggregator: Arc<dyn Aggregator> = match chosen {
        Some(gpu) => {
            let verdict = Verdict::NotChosen(format!("in reserve behind {}", gpu.name()));
            others.push(DeviceReport { device: cpu.name().to_owned(), verdict });
            Arc::new(Fallback::new(gpu, cpu))
        }
        None if may_be_cpu => {
            self_test::run(&*cpu)?;
            cpu
        }
        None => return Err(none_of(choice, &others)),
    };
    let mut report = vec![DeviceReport { device: aggregator.name().to_owned(), verdict: Verdict::Chosen }];
    report.append(&mut others);
    Ok(Selected { aggregator, report })
}

/// Opens and tests a device; a panic in a driver's wrapper counts as a failure.
fn tested(open: Open) -> Result<Arc<dyn Aggregator>, String> {
    let attempt = catch_unwind(AssertUnwindSafe(|| {
        let aggregator = open()?;
        self_test::run(&*aggregator)?;
        Ok(aggregator)
    }));
    match attempt {
        Ok(Ok(aggregator)) => Ok(aggregator),
        Ok(Err(AggregationError::Device { reason, .. })) => Err(reason),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(format!("it panicked: {}", panic_message(&*panic))),
    }
}

/// The error for an unavailable device that was chosen by name.
fn none_of(choice: &DeviceChoice, others: &[DeviceReport]) -> AggregationError {
    let kind = if matches!(choice, DeviceChoice::Wgpu(_)) { "wgpu" } else { "cuda" };
    let reasons = others.iter().filter(|line| line.device.starts_with(kind)).map(|line| match &line.verdict {
        Verdict::NotChosen(reason) => format!("{}: {reason}", line.device),
        Verdict::Chosen => line.device.clone(),
    });
    let reason = reasons.collect::<Vec<_>>().join("; ");
    AggregationError::Device { device: choice.to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::robust::robust_from;
    use crate::{Accumulator, Shape};
    use secure_agg::mask::MaskPlan;

    /// The processor under another name; optionally answers incorrectly.
    struct Gpu(&'static str, bool, CpuAggregator);

    robust_from!(Gpu, 2);

    impl Aggregator for Gpu {
        fn name(&self) -> &str {
            self.0
        }

        fn begin(&self, shape: Shape) -> Result<Box<dyn Accumulator>, AggregationError> {
            self.2.begin(shape)
        }

        fn unmask_slice(
            &self,
            plan: &MaskPlan,
            offset: u64,
            sum: &[u32],
            out: &mut [u32],
        ) -> Result<(), AggregationError> {
            self.2.unmask_slice(plan, offset, sum, out)?;
            out[0] ^= u32::from(self.1);
            Ok(())
        }
    }

    fn good(device: &'static str) -> Candidate {
        let open = move || Ok(Arc::new(Gpu(device, false, CpuAggregator::new(1)?)) as Arc<dyn Aggregator>);
        Candidate { device: device.to_owned(), open: Ok(Box::new(open)) }
    }

    fn wrong(device: &'static str) -> Candidate {
        let open = move || Ok(Arc::new(Gpu(device, true, CpuAggregator::new(1)?)) as Arc<dyn Aggregator>);
        Candidate { device: device.to_owned(), open: Ok(Box::new(open)) }
    }

    fn panicking(device: &'static str) -> Candidate {
        Candidate { device: device.to_owned(), open: Ok(Box::new(|| panic!("a symbol is missing"))) }
    }

    fn selected(choice: &DeviceChoice, candidates: Vec<Candidate>) -> Result<Selected, AggregationError> {
        select_from(choice, Arc::new(CpuAggregator::new(1).unwrap()), candidates)
    }

    fn table(selected: &Selected) -> Vec<(&str, &str)> {
        let reason = |line: &'_ DeviceReport| match &line.verdict {
            Verdict::Chosen => "chosen".to_owned(),
            Verdict::NotChosen(reason) => reason.clone(),
        };
        selected.report.iter().map(|line| (&*line.device, &*reason(line).leak())).collect()
    }

    #[test]
    fn names_are_parsed_and_printed() {
        let mut names = vec!["auto", "cpu"];
        if cfg!(feature = "cuda") {
            names.extend(["cuda", "cuda:0", "cuda:3"]);
        }
        if cfg!(feature = "wgpu") {
            names.extend(["wgpu", "wgpu:llvmpipe", "wgpu:AMD: 7900"]);
        }
        for name in names {
            assert_eq!(name.parse::<DeviceChoice>().unwrap().to_string(), name);
        }
        for name in ["", "cpu:1", "auto:cpu", "tpu", "cuda:", "cuda:x", "cuda:-1", "wgpu:"] {
            assert!(name.parse::<DeviceChoice>().is_err(), "{name}");
        }
    }

    #[test]
    fn a_device_that_is_not_built_in_names_its_feature() {
        let lacking =
            [("cuda", cfg!(feature = "cuda")), ("cuda:1", cfg!(feature = "cuda")), ("wgpu:x", cfg!(feature = "wgpu"))];
        for (name, _) in lacking.into_iter().filter(|(_, built_in)| !built_in) {
            let message = name.parse::<DeviceChoice>().unwrap_err().to_string();
            assert!(message.contains("built with the feature") && message.contains(name), "{message}");
        }
        let message = "tpu".parse::<DeviceChoice>().unwrap_err().to_string();
        assert_eq!(message, format!("there is no device \"tpu\"; this program offers {}", offered()));
    }

    #[test]
    fn the_cpu_passes_its_self_test_and_leads_the_table() {
        let selected = select(DeviceChoice::Cpu, 2).unwrap();
        assert!(selected.aggregator.name().starts_with("cpu ("));
        assert_eq!(selected.report[0].verdict, Verdict::Chosen);
        assert!(selected.report[1..].iter().all(|line| matches!(line.verdict, Verdict::NotChosen(_))));
    }

    #[test]
    fn auto_takes_what_is_here_and_says_why_not_the_rest() {
        let selected = select(DeviceChoice::Auto, 1).unwrap();
        for line in &selected.report {
            println!("{line:?}");
        }
        assert!(selected.report.iter().any(|line| line.device.starts_with("cuda")));
        assert!(selected.report.iter().any(|line| line.device.starts_with("wgpu")));
        assert!(selected.report.iter().any(|line| line.device.starts_with("cpu")));
    }

    #[test]
    fn auto_takes_the_first_that_passes_and_keeps_the_cpu_behind_it() {
        let candidates = vec![
            Candidate::absent("cuda", "no driver"),
            wrong("wgpu:wrong"),
            panicking("wgpu:old"),
            good("wgpu:good"),
            good("wgpu:other"),
        ];
        let selected = selected(&DeviceChoice::Auto, candidates).unwrap();
        let expected = [
            ("wgpu:good", "chosen"),
            ("cuda", "no driver"),
            ("wgpu:wrong", "its self-test gave a wrong answer to the comparison of a kept sum with the definition"),
            ("wgpu:old", "it panicked: a symbol is missing"),
            ("wgpu:other", "wgpu:good comes first"),
        ];
        let table = table(&selected);
        assert_eq!(table[..5], expected);
        assert!(table[5].0.starts_with("cpu (") && table[5].1 == "in reserve behind wgpu:good", "{:?}", table[5]);
    }

    #[test]
    fn auto_without_a_gpu_is_the_cpu() {
        let candidates = vec![Candidate::absent("cuda", "no driver"), wrong("wgpu:wrong")];
        let selected = selected(&DeviceChoice::Auto, candidates).unwrap();
        assert!(selected.aggregator.name().starts_with("cpu ("));
        assert_eq!(selected.report.len(), 3);
    }

    #[test]
    fn a_device_asked_for_by_name_that_is_absent_or_fails_is_an_error_with_the_reason() {
        let lone = |candidate| selected(&DeviceChoice::Cuda(Some(1)), vec![candidate]).unwrap_err().to_string();
        let message = lone(Candidate::absent("cuda:1", "no driver"));
        assert_eq!(message, "device cuda:1 failed: cuda:1: no driver");
        assert!(lone(wrong("cuda:1")).contains("its self-test gave a wrong answer"));
        assert!(lone(panicking("cuda:1")).contains("it panicked"));
    }
}
