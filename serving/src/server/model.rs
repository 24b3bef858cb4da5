//! A model version in memory: loading, warm-up, prediction.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client_sdk::models::{Architecture, InputKind};
use client_sdk::train::{Device, Inputs, Predictor, TrainError};
use inference::versions::{Unfit, Warm};
use learning::contribution::scaffold;
use learning::{Parameters, checkpoint};
use task_spec::TableSpec;
use tokio::time::Instant;
use wire::{Digest, TaskId};

use super::graphs;
use super::input::{Input, Prediction};
use super::v2::{Datatype, Signature, signature};

/// Examples of a sample that a version answers before it is put to use.
const WARM_EXAMPLES: usize = 2;
/// Numbers of these examples: weights that overflow for ordinary inputs answer none of them.
const WARM_NUMBERS: [[f32; WARM_EXAMPLES]; 4] = [[0.0, 0.0], [1.0, -1.0], [-1.0, 1.0], [100.0, -100.0]];
/// Most characters of such an example, where examples are texts.
const WARM_LENGTH: usize = 256;
/// A batch that takes no longer may be computed by a thread that reads requests, whose other connections wait meanwhile.
const QUICK: Duration = Duration::from_millis(2);
/// Weight of a slower batch in the estimated pace, because its duration includes other work of the processor.
const RISE: u64 = 64;

/// Why a file cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unservable {
    #[error("it is no model that can be read: {0}")]
    Unreadable(String),
    #[error(
        "its tensors are those of no ready model, and its record names no graph: serve its file elsewhere (`tributary model fetch` writes it)"
    )]
    OtherModel,
    #[error("its graph cannot be served: {0}")]
    Graph(String),
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error("it cannot answer: {0}")]
    Fails(#[from] TrainError),
}

/// The prepared state of a thread.
enum Prepared {
    Ready(Predictor),
    Graph(Box<graphs::Prepared>),
}

/// A version in memory, shared by all computations. The last owner frees it.
pub(crate) struct Loaded {
    pub(crate) version: u32,
    /// SHA-256 of the file.
    pub(crate) sha256: Digest,
    /// Its task, if its record names one.
    pub(crate) task: Option<TaskId>,
    /// The columns of a table that it takes beside a tensor.
    table: Option<TableSpec>,
    architecture: Architecture,
    /// The same, if it is a graph.
    graph: Option<graphs::Served>,
    signature: Signature,
    parameters: Arc<Parameters>,
    batch: usize,
    device: Device,
    /// A panic of its computation has been logged.
    pub(crate) has_panicked: AtomicBool,
    /// Prepared states of threads that are idle.
    idle: Mutex<Vec<Prepared>>,
    /// Estimated duration of a prediction, in nanoseconds per example.
    pace: AtomicU64,
}

impl Loaded {
    /// Loads a file, with the architecture from its task or from its tensors.
    ///
    /// # Errors
    /// [`Unservable`].
    pub(crate) fn read(
        version: u32,
        sha256: Digest,
        file: &[u8],
        told: Option<&Architecture>,
        batch: usize,
    ) -> Result<Self, Unservable> {
        let unreadable = |error: &dyn std::fmt::Display| Unservable::Unreadable(error.to_string());
        let found = checkpoint::read_layout(file).map_err(|error| unreadable(&error))?;
        let found = scaffold::without_control(&found).map_err(|error| unreadable(&error))?;
        let architecture = match told {
            Some(told) => told.clone(),
            None => Architecture::of_tensors(&found).ok_or(Unservable::OtherModel)?,
        };
        let graph = match &architecture {
            Architecture::Graph(model) => Some(graphs::Served::new(model).map_err(Unservable::Graph)?),
            _ => None,
        };
        let signature = signature(&architecture).map_err(Unservable::Graph)?;
        let layout = architecture.layout().map_err(|error| unreadable(&error))?;
        let parameters = architecture.read_published(file, &Arc::new(layout)).map_err(|error| unreadable(&error))?;
        let parameters = Arc::new(parameters);
        let (has_panicked, idle, pace) = (AtomicBool::new(false), Mutex::default(), AtomicU64::new(u64::MAX));
        let device = Device::Cpu;
        let (task, table) = (None, None);
        Ok(Self {
            version,
            sha256,
            task,
            table,
            architecture,
            graph,
            signature,
            parameters,
            batch,
            device,
            has_panicked,
            idle,
            pace,
        })
    }

    /// The same version, computed on this device.
    pub(crate) fn on(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// The same version, with its task, and the task's table if the model has one input for its columns.
    pub(crate) fn of(self, task: Option<TaskId>, table: Option<TableSpec>) -> Self {
        let fits = |table: &TableSpec| match &*self.signature.inputs {
            [input] => {
                input.datatype == Datatype::Fp32 && input.shape == [-1, i64::try_from(table.width()).unwrap_or(-1)]
            }
            _ => false,
        };
        Self { task, table: table.filter(fits), ..self }
    }

    /// The columns that it takes beside a tensor.
    pub(crate) fn table(&self) -> Option<&TableSpec> {
        self.table.as_ref()
    }

    /// Predicts sample inputs, so that the first request finds a prepared state.
    ///
    /// # Errors
    /// [`Unservable`]: the version must not be used.
    pub(crate) fn warm(&self) -> Result<Warm, Unservable> {
        if let Some(graph) = &self.graph {
            return self.warm_graph(graph);
        }
        let (samples, positions) = self.samples();
        let mut scores = Vec::new();
        for sample in &samples {
            // The first time it is prepared; the second time tells its pace.
            scores.extend(self.compute(sample)?.scores);
        }
        let classes = self.architecture.classes() as usize;
        Ok(Warm::judge(self.parameters.values(), &scores, samples.len() * WARM_EXAMPLES, positions * classes)?)
    }

    /// Predicts sample inputs of a graph, together and one by one.
    fn warm_graph(&self, graph: &graphs::Served) -> Result<Warm, Unservable> {
        let mut floats = Vec::new();
        let samples = graph.samples(WARM_NUMBERS);
        for [sample, zeros] in &samples {
            // A table may have one row: then all integers are 0.
            let (sample, together) = match self.compute(&Input::Tensors(sample.clone())) {
                Ok(said) => (sample, said),
                Err(TrainError::Prediction(_)) => (zeros, self.compute(&Input::Tensors(zeros.clone()))?),
                Err(error) => return Err(error.into()),
            };
            for example in 0..sample.count {
                let alone = self.compute(&Input::Tensors(sample.part(example..example + 1)))?;
                let of_all = together.part(sample.count, example..example + 1);
                if alone.floats().zip(of_all.floats()).any(|(one, other)| is_another(one, other)) {
                    return Err(Unservable::Graph("an example's outputs depend on the other examples".to_owned()));
                }
            }
            floats.extend(together.floats());
        }
        let (examples, count) = (samples.len() * WARM_EXAMPLES, floats.len());
        Ok(Warm::judge(self.parameters.values(), &floats, examples, count / examples.max(1))?)
    }

    /// Inputs that every model of use answers with finite scores, and the positions of each example.
    fn samples(&self) -> (Vec<Input>, usize) {
        match self.architecture.input() {
            InputKind::Features(width) => {
                // The first example repeats the first number; the second one alternates between both.
                let values = |[first, second]: [f32; WARM_EXAMPLES]| {
                    let alternating = (0..width).map(move |at| if at % 2 == 0 { first } else { second });
                    std::iter::repeat_n(first, width).chain(alternating).collect()
                };
                (WARM_NUMBERS.map(|numbers| Input::Rows { values: values(numbers), width }).to_vec(), 1)
            }
            // A graph has other samples.
            InputKind::Tensors => (Vec::new(), 0),
            InputKind::Characters => {
                let vocabulary = self.architecture.classes();
                let length = WARM_LENGTH.min(vocabulary as usize).max(1);
                let text = (0..vocabulary.max(1)).cycle().take(length).collect::<Vec<_>>();
                let same = vec![0; length];
                (
                    vec![
                        Input::Texts { characters: [same.clone(), text].concat(), length },
                        Input::Texts { characters: same.repeat(WARM_EXAMPLES), length },
                    ],
                    length,
                )
            }
        }
    }

    /// Predicts examples on the calling thread, or waits for the device.
    ///
    /// # Errors
    /// [`TrainError`]: the examples do not fit the model, or the device failed.
    pub(crate) fn compute(&self, input: &Input) -> Result<Prediction, TrainError> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = idle().pop();
        let mut prepared = waiting.map_or_else(|| self.prepare(), Ok)?;
        let began = Instant::now();
        let said = match (&mut prepared, input, &self.graph) {
            (Prepared::Graph(prepared), Input::Tensors(asked), Some(graph)) => {
                prepared.compute(graph, asked, self.batch)
            }
            (Prepared::Ready(predictor), Input::Rows { values, .. }, _) => {
                predictor.scores(Inputs::Rows(values)).map(|scores| Prediction::of(&scores))
            }
            // Texts are computed one by one, because the model processes each from its start.
            (Prepared::Ready(predictor), Input::Texts { characters, length }, _) => {
                characters.chunks((*length).max(1)).try_fold(Prediction::default(), |mut all, text| {
                    all.extend(Prediction::of(&predictor.scores(Inputs::Characters(text))?));
                    Ok(all)
                })
            }
            (Prepared::Graph(_) | Prepared::Ready(_), _, _) => {
                Err(TrainError::WrongKind { kind: self.architecture.kind(), needs: "inputs of its own kind" })
            }
        };
        if said.is_ok() {
            self.note_pace(input.examples(), began.elapsed());
        }
        let is_kept = match &prepared {
            Prepared::Ready(_) => true,
            Prepared::Graph(prepared) => prepared.is_kept(),
        };
        if is_kept {
            idle().push(prepared);
        }
        said
    }

    /// A state for a further thread.
    fn prepare(&self) -> Result<Prepared, TrainError> {
        if let Some(graph) = &self.graph {
            return graphs::Prepared::new(graph, &self.parameters).map(|prepared| Prepared::Graph(Box::new(prepared)));
        }
        let (architecture, parameters) = (self.architecture.clone(), Arc::clone(&self.parameters));
        Predictor::new(architecture, parameters, self.batch, self.device.clone()).map(Prepared::Ready)
    }

    /// The pace falls immediately and rises slowly.
    fn note_pace(&self, examples: usize, took: Duration) {
        let each = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / examples.max(1) as u64;
        let pace = self.pace.load(Ordering::Relaxed);
        let pace = if each < pace { each } else { pace + (each - pace) / RISE };
        self.pace.store(pace, Ordering::Relaxed);
    }

    /// Whether a complete batch is short enough for any thread. The length of texts depends on the client.
    pub(crate) fn is_quick(&self) -> bool {
        let each = self.pace.load(Ordering::Relaxed);
        let has_length = match (&self.graph, self.architecture.input()) {
            (Some(graph), _) => graph.model().graph().lengths.is_some(),
            (None, InputKind::Features(_)) => false,
            (None, InputKind::Characters | InputKind::Tensors) => true,
        };
        !has_length && Duration::from_nanos(each.saturating_mul(self.batch as u64)) <= QUICK
    }

    #[cfg(test)]
    pub(crate) fn set_pace(&self, each: Duration) {
        self.pace.store(u64::try_from(each.as_nanos()).unwrap(), Ordering::Relaxed);
    }

    pub(crate) fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// The graph, if the model is one.
    pub(crate) fn graph(&self) -> Option<&graphs::Served> {
        self.graph.as_ref()
    }

    pub(crate) fn signature(&self) -> &Signature {
        &self.signature
    }
}

/// Whether two results of the same inputs differ by more than rounding.
fn is_another(one: f32, other: f32) -> bool {
    (one - other).abs() > 1e-3 * one.abs().max(other.abs()).max(1.0)
}

#[cfg(test)]
mod tests {
    use client_sdk::models::Linear;

    use super::*;

    fn file(values: &[f32]) -> Vec<u8> {
        let mut parameters = Architecture::Linear(Linear { inputs: 2, classes: 2 }).initial(1).unwrap();
        parameters.values_mut().copy_from_slice(values);
        checkpoint::write(&parameters).unwrap()
    }

    #[test]
    fn a_version_answers_by_its_file_and_one_with_a_nan_is_never_ready() {
        let read = |values: &[f32]| Loaded::read(3, Digest([0; 32]), &file(values), None, 4).unwrap();
        let good = read(&[0.0, 1.0, 1.0, 0.0, 0.0, 0.5]);
        good.warm().unwrap();
        let said = good.compute(&Input::Rows { values: vec![3.0, 1.0], width: 2 }).unwrap();
        assert_eq!(said, Prediction { scores: vec![1.0, 3.5], classes: vec![1], others: vec![] });
        // `checkpoint::write` does not write such a file.
        let mut nan = file(&[0.0, 7.0, 1.0, 0.0, 0.0, 0.5]);
        let place = nan.windows(4).position(|bytes| bytes == 7.0_f32.to_le_bytes()).unwrap();
        nan[place..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(Loaded::read(3, Digest([0; 32]), &nan, None, 4).and_then(|bad| bad.warm()).is_err());
        good.set_pace(Duration::from_micros(500));
        assert!(good.is_quick(), "a batch of four takes 2 ms");
        good.set_pace(Duration::from_micros(501));
        assert!(!good.is_quick());
        let overflows = read(&[f32::MAX, f32::MAX, 1.0, 0.0, f32::MAX, 0.5]);
        assert!(matches!(overflows.warm(), Err(Unservable::Unfit(_))), "no ordinary input has an answer");
        for scale in [1e-3, 1.0, 1e4] {
            let values = [0.0, scale, -scale, 0.0, scale, 0.5];
            read(&values).warm().unwrap();
        }
        assert!(Loaded::read(3, Digest([0; 32]), b"no model", None, 4).is_err());
    }
}
