//! A version of a model in memory: read from its file, warmed, and asked.

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

use crate::command::model::without_control;

/// Examples that a version answers before it is put to use.
const WARM_EXAMPLES: usize = 2;
/// Characters of such an example, where examples are texts.
const WARM_LENGTH: usize = 4;
/// A batch that takes no longer may be computed by a thread that reads requests, whose other connections wait meanwhile.
const QUICK: Duration = Duration::from_millis(2);
/// The share of a slower batch by which the pace rises: what else the processor did meanwhile is no part of it.
const RISE: u64 = 64;

/// Examples to ask a model about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Input {
    /// Examples after each other, of `width` numbers each.
    Rows { values: Vec<f32>, width: usize },
    /// Texts after each other, of `length` characters each, by their numbers in the vocabulary.
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

    /// Number of numbers, or of characters.
    fn len(&self) -> usize {
        match self {
            Self::Rows { values, .. } => values.len(),
            Self::Texts { characters, .. } => characters.len(),
        }
    }

    /// Some of the examples.
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

/// What a model says of some examples.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Prediction {
    /// Before softmax: by example, then position where examples are texts, then class.
    pub(crate) scores: Vec<f32>,
    /// The class with the highest score, by example, then position.
    pub(crate) classes: Vec<u32>,
}

impl Prediction {
    fn of(scores: &Scores) -> Self {
        Self { scores: scores.values().to_vec(), classes: scores.best() }
    }

    /// Adds what it says of further examples.
    pub(crate) fn extend(&mut self, other: Self) {
        self.scores.extend(other.scores);
        self.classes.extend(other.classes);
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.scores.len() + self.classes.len())
    }
}

/// Why a file is no model that can be served.
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

/// A version in memory. Shared by whoever computes with it; the last one frees it.
pub(crate) struct Loaded {
    pub(crate) version: u32,
    /// SHA-256 of the file.
    pub(crate) sha256: Digest,
    /// The task that it is of, if its record tells.
    pub(crate) task: Option<TaskId>,
    architecture: Architecture,
    parameters: Arc<Parameters>,
    batch: usize,
    device: Device,
    /// Computing with it has panicked once, and that was told.
    pub(crate) has_panicked: AtomicBool,
    /// Prepared for a thread each, which no thread uses now.
    idle: Mutex<Vec<Predictor>>,
    /// Nanoseconds that an example takes.
    pace: AtomicU64,
}

impl Loaded {
    /// Reads a file, by the architecture that its task tells, or the one that its tensors tell.
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
        let found = without_control(&found).map_err(|error| unreadable(&error))?;
        let architecture = match told {
            Some(told) => told.clone(),
            None => Architecture::of_tensors(&found).ok_or(Unservable::OtherModel)?,
        };
        let layout = architecture.layout().map_err(|error| unreadable(&error))?;
        let parameters = scaffold::read_model(file, &Arc::new(layout)).map_err(|error| unreadable(&error))?;
        let parameters = Arc::new(parameters);
        let (has_panicked, idle, pace) = (AtomicBool::new(false), Mutex::default(), AtomicU64::new(u64::MAX));
        let device = Device::Cpu;
        Ok(Self { version, sha256, task: None, architecture, parameters, batch, device, has_panicked, idle, pace })
    }

    /// The same, computed on this device.
    pub(crate) fn on(self, device: Device) -> Self {
        Self { device, ..self }
    }

    /// The same, of this task.
    pub(crate) fn of(self, task: Option<TaskId>) -> Self {
        Self { task, ..self }
    }

    /// Has it answer sample inputs, so that the first request finds it prepared.
    ///
    /// # Errors
    /// [`Unservable`]: it must not be used.
    pub(crate) fn warm(&self) -> Result<Warm, Unservable> {
        let (input, positions) = match self.architecture.input() {
            InputKind::Features(width) => (Input::Rows { values: vec![0.0; WARM_EXAMPLES * width], width }, 1),
            InputKind::Characters => {
                (Input::Texts { characters: vec![0; WARM_EXAMPLES * WARM_LENGTH], length: WARM_LENGTH }, WARM_LENGTH)
            }
        };
        // The first time it is prepared; the second time tells its pace.
        self.compute(&input)?;
        let (said, classes) = (self.compute(&input)?, self.architecture.classes() as usize);
        Ok(Warm::judge(self.parameters.values(), &said.scores, WARM_EXAMPLES, positions * classes)?)
    }

    /// What it says of the examples; the calling thread computes, or waits for the device.
    ///
    /// # Errors
    /// [`TrainError`]: they do not fit the model, or the device failed.
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
            // Texts are computed one by one: the model goes through each from its beginning.
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

    /// It falls at once, and rises slowly.
    fn note_pace(&self, examples: usize, took: Duration) {
        let each = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) / examples.max(1) as u64;
        let pace = self.pace.load(Ordering::Relaxed);
        let pace = if each < pace { each } else { pace + (each - pace) / RISE };
        self.pace.store(pace, Ordering::Relaxed);
    }

    /// Whether a whole batch takes so little time that it may be computed anywhere. How long texts take, who asks decides.
    pub(crate) fn is_quick(&self) -> bool {
        let each = self.pace.load(Ordering::Relaxed);
        match self.architecture.input() {
            InputKind::Features(_) => Duration::from_nanos(each.saturating_mul(self.batch as u64)) <= QUICK,
            InputKind::Characters => false,
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

/// Examples of several requests in one; none if they do not go together.
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
        let read = |values| Loaded::read(3, Digest([0; 32]), &file(values), None, 4).unwrap();
        let good = read(&[0.0, 1.0, 1.0, 0.0, 0.0, 0.5]);
        good.warm().unwrap();
        let said = good.compute(&Input::Rows { values: vec![3.0, 1.0], width: 2 }).unwrap();
        assert_eq!(said, Prediction { scores: vec![1.0, 3.5], classes: vec![1] });
        // `checkpoint::write` writes no such file.
        let mut nan = file(&[0.0, 7.0, 1.0, 0.0, 0.0, 0.5]);
        let place = nan.windows(4).position(|bytes| bytes == 7.0_f32.to_le_bytes()).unwrap();
        nan[place..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(Loaded::read(3, Digest([0; 32]), &nan, None, 4).and_then(|bad| bad.warm()).is_err());
        good.set_pace(Duration::from_micros(500));
        assert!(good.is_quick(), "a batch of four takes 2 ms");
        good.set_pace(Duration::from_micros(501));
        assert!(!good.is_quick());
        let overflows = read(&[f32::MAX, f32::MAX, 1.0, 0.0, f32::MAX, 0.5]);
        overflows.warm().unwrap();
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
