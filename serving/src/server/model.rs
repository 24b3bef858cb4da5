//! A model version in memory: loading, warm-up, prediction.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use client_sdk::models::{Architecture, InputKind};
use client_sdk::train::{Device, Inputs, Predictor, Scores, TrainError};
use inference::versions::{Unfit, Warm};
use learning::contribution::scaffold;
use learning::{Parameters, checkpoint};
use tokio::time::Instant;
use wire::{Digest, TaskId};

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

/// Input of a prediction: examples of one kind and width.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Input {
    /// Consecutive examples of `width` numbers each.
    Rows { values: Vec<f32>, width: usize },
    /// Consecutive texts of `length` characters each, as vocabulary numbers.
    Texts { characters: Vec<u32>, length: usize },
}

impl Input {
    /// Number of examples.
    pub(crate) fn examples(&self) -> usize {
        match self {
            Self::Rows { values, width } => values.len() / (*width).max(1),
            Self::Texts { characters, length } => characters.len() / (*length).max(1),
        }
    }

    /// Number of numbers or characters.
    fn len(&self) -> usize {
        match self {
            Self::Rows { values, .. } => values.len(),
            Self::Texts { characters, .. } => characters.len(),
        }
    }

    /// A range of the examples.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        match self {
            Self::Rows { values, width } => {
                Self::Rows { values: values[range.start * width..range.end * width].to_vec(), width: *width }
            }
            Self::Texts { characters, length } => Self::Texts {
                characters: characters[range.start * length..range.end * length].to_vec(),
                length: *length,
            },
        }
    }

    /// Its bytes, for a digest.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = [u8; 4]> {
        let (rows, texts, length): (&[f32], &[u32], usize) = match self {
            Self::Rows { values, width } => (values, &[], *width),
            Self::Texts { characters, length } => (&[], characters, *length),
        };
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        let values = rows.iter().map(|value| value.to_le_bytes()).chain(texts.iter().map(|value| value.to_le_bytes()));
        std::iter::once(length).chain(values)
    }
}

/// Predictions for some examples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Prediction {
    /// Before softmax: by example, then position for texts, then class.
    pub(crate) scores: Vec<f32>,
    /// The class with the highest score, by example, then position.
    pub(crate) classes: Vec<u32>,
}

impl Prediction {
    fn of(scores: &Scores) -> Self {
        Self { scores: scores.values().to_vec(), classes: scores.best() }
    }

    /// Appends predictions for further examples.
    pub(crate) fn extend(&mut self, other: Self) {
        self.scores.extend(other.scores);
        self.classes.extend(other.classes);
    }

    /// Approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.scores.len() + self.classes.len())
    }
}

/// Why a file cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unservable {
    #[error("it is no model that can be read: {0}")]
    Unreadable(String),
    #[error("its tensors are those of no ready model: serve its file elsewhere (`tributary model fetch` writes it)")]
    OtherModel,
    #[error(transparent)]
    Unfit(#[from] Unfit),
    #[error("it cannot answer: {0}")]
    Fails(#[from] TrainError),
}

/// A version in memory, shared by all computations. The last owner frees it.
pub(crate) struct Loaded {
    pub(crate) version: u32,
    /// SHA-256 of the file.
    pub(crate) sha256: Digest,
    /// Its task, if its record names one.
    pub(crate) task: Option<TaskId>,
    architecture: Architecture,
    parameters: Arc<Parameters>,
    batch: usize,
    device: Device,
    /// A panic of its computation has been logged.
    pub(crate) has_panicked: AtomicBool,
    /// Prepared states of threads that are idle.
    idle: Mutex<Vec<Predictor>>,
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
        if architecture.input() == InputKind::Tensors {
            return Err(Unservable::OtherModel);
        }
        let layout = architecture.layout().map_err(|error| unreadable(&error))?;
        let parameters = scaffold::read_model(file, &Arc::new(layout)).map_err(|error| unreadable(&error))?;
        let parameters = Arc::new(parameters);
        let (has_panicked, idle, pace) = (AtomicBool::new(false), Mutex::default(), AtomicU64::new(u64::MAX));
        let device = Device::Cpu;
        Ok(Self { version, sha256, task: None, architecture, parameters, batch, device, has_panicked, idle, pace })
    }

    /// The same version, computed on this device.
    pub(crate) fn on(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// The same version, with this task.
    pub(crate) fn of(self, task: Option<TaskId>) -> Self {
        Self { task, ..self }
    }

    /// Predicts sample inputs, so that the first request finds a prepared state.
    ///
    /// # Errors
    /// [`Unservable`]: the version must not be used.
    pub(crate) fn warm(&self) -> Result<Warm, Unservable> {
        let (samples, positions) = self.samples();
        let mut scores = Vec::new();
        for sample in &samples {
            // The first time it is prepared; the second time tells its pace.
            scores.extend(self.compute(sample)?.scores);
        }
        let classes = self.architecture.classes() as usize;
        Ok(Warm::judge(self.parameters.values(), &scores, samples.len() * WARM_EXAMPLES, positions * classes)?)
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
            // `load` has rejected it.
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
        let mut predictor = match idle().pop() {
            Some(predictor) => predictor,
            None => {
                let (architecture, parameters) = (self.architecture.clone(), Arc::clone(&self.parameters));
                Predictor::new(architecture, parameters, self.batch, self.device.clone())?
            }
        };
        let began = Instant::now();
        let said = match input {
            Input::Rows { values, .. } => predictor.scores(Inputs::Rows(values)).map(|scores| Prediction::of(&scores)),
            // Texts are computed one by one, because the model processes each from its start.
            Input::Texts { characters, length } => {
                characters.chunks((*length).max(1)).try_fold(Prediction::default(), |mut all, text| {
                    all.extend(Prediction::of(&predictor.scores(Inputs::Characters(text))?));
                    Ok(all)
                })
            }
        };
        if said.is_ok() {
            self.note_pace(input.examples(), began.elapsed());
        }
        idle().push(predictor);
        said
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
        match self.architecture.input() {
            InputKind::Features(_) => Duration::from_nanos(each.saturating_mul(self.batch as u64)) <= QUICK,
            InputKind::Characters | InputKind::Tensors => false,
        }
    }

    #[cfg(test)]
    pub(crate) fn set_pace(&self, each: Duration) {
        self.pace.store(u64::try_from(each.as_nanos()).unwrap(), Ordering::Relaxed);
    }

    pub(crate) fn architecture(&self) -> &Architecture {
        &self.architecture
    }
}

/// Combines the examples of several requests; `None` if they cannot be combined.
pub(crate) fn joined<'a>(inputs: impl Iterator<Item = &'a Input> + Clone) -> Option<Input> {
    let count = inputs.clone().map(Input::len).sum();
    let mut all = match inputs.clone().next()? {
        Input::Rows { width, .. } => Input::Rows { values: Vec::with_capacity(count), width: *width },
        Input::Texts { length, .. } => Input::Texts { characters: Vec::with_capacity(count), length: *length },
    };
    for input in inputs {
        match (&mut all, input) {
            (Input::Rows { values, .. }, Input::Rows { values: more, .. }) => values.extend_from_slice(more),
            (Input::Texts { characters, length }, Input::Texts { characters: more, length: other })
                if length == other =>
            {
                characters.extend_from_slice(more);
            }
            (Input::Rows { .. } | Input::Texts { .. }, _) => return None,
        }
    }
    Some(all)
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
        assert_eq!(said, Prediction { scores: vec![1.0, 3.5], classes: vec![1] });
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

    #[test]
    fn inputs_are_parted_and_joined_by_examples() {
        let rows = Input::Rows { values: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], width: 2 };
        let parts = [rows.part(0..1), rows.part(1..3)];
        assert_eq!((parts[0].examples(), parts[1].examples()), (1, 2));
        assert_eq!(joined(parts.iter()), Some(rows.clone()));
        let texts = |length| Input::Texts { characters: vec![1; 6], length };
        assert_eq!(joined([texts(2), texts(3)].iter()), None, "of different lengths");
        assert_ne!(rows.bytes().count(), 0);
        assert_ne!(texts(2).bytes().collect::<Vec<_>>(), texts(3).bytes().collect::<Vec<_>>());
    }
}
