//! One model to train, or an analysis to give rows for.

use std::sync::{Arc, Mutex, PoisonError};

use client_sdk::learning::{Layout, MetricValue, Parameters};
use client_sdk::runner::{self, Answer, JobConstraints};
use client_sdk::{Dataset, NotKept, Trained, TrainerError, TrainingJob};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{Error, JournalError, Overdue, UpdateError, of_this_process};
use crate::examples::{GivenExamples, owned};

/// Names and shapes, in the order of a flat vector.
type Tensors = Vec<(String, Vec<u64>)>;

/// One model to train, or an analysis to give rows for: `tributary.Task` wraps it.
#[pyclass(frozen, module = "tributary._tributary")]
pub(crate) struct Job {
    layout: Arc<Layout>,
    training: TrainingJob,
    constraints: JobConstraints,
    /// Until Python has taken them.
    values: Mutex<Option<Vec<f32>>>,
    /// Until it was given.
    answer: Mutex<Option<Answer>>,
    /// The process that got it: an answer in a child that was forked would go nowhere, and a checkpoint into its parent's journal.
    process: u32,
}

impl Job {
    pub(crate) fn new(runner::Job { parameters, training, constraints, answer }: runner::Job) -> Self {
        let layout = Arc::clone(parameters.layout());
        let values = Some(parameters.into_values()).into();
        Self { layout, training, constraints, values, answer: Some(answer).into(), process: std::process::id() }
    }

    /// Answers it as failed, unless it was answered, or saved a checkpoint and should pause. What has raised does not pause.
    pub(crate) fn give_up(&self, reason: &str, has_raised: bool) -> PyResult<()> {
        let checkpoints = &self.training.checkpoints;
        if !has_raised && checkpoints.should_pause() && checkpoints.has_state() {
            return Ok(());
        }
        self.fail(reason.to_owned())
    }

    /// Trains the task's model on these examples from `values`, and sends the result.
    fn train_on(
        &self,
        py: Python<'_>,
        values: &PyReadonlyArray1<'_, f32>,
        examples: Dataset,
        held_out: Option<Dataset>,
    ) -> PyResult<Option<u64>> {
        of_this_process(self.process)?;
        let model = Parameters::new(Arc::clone(&self.layout), owned(values)?);
        let model = model.map_err(|error| UpdateError::new_err(error.to_string()))?;
        let trained = py.detach(|| runner::train_ready(examples, held_out, &model, &self.training, &self.constraints));
        let trained = match trained {
            Ok(trained) => trained,
            Err(TrainerError::Paused) => return Ok(None),
            Err(_) if self.is_overdue() => {
                self.fail("it took too long".to_owned())?;
                return Err(Overdue::new_err(runner::Overdue.to_string()));
            }
            Err(error) => return Err(UpdateError::new_err(error.to_string())),
        };
        let (answer, examples) = (self.take_answer()?, trained.examples);
        let sent = py.detach(|| answer.finish(trained));
        sent.map(|()| Some(examples)).map_err(|overdue| Overdue::new_err(overdue.to_string()))
    }

    fn take_answer(&self) -> PyResult<Answer> {
        of_this_process(self.process)?;
        let mut answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.take().ok_or_else(|| Error::new_err("this task was answered before; each takes one answer"))
    }
}

#[pymethods]
impl Job {
    #[getter]
    fn task(&self) -> &str {
        &self.training.task
    }

    #[getter]
    fn round(&self) -> u32 {
        self.training.round
    }

    /// `shared` or `own`.
    #[getter]
    fn purpose(&self) -> &'static str {
        self.training.purpose.as_str()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.training.seed
    }

    #[getter]
    fn metrics(&self) -> Vec<String> {
        self.training.metrics.clone()
    }

    /// The plan as JSON.
    #[getter]
    fn plan(&self) -> PyResult<String> {
        serde_json::to_string(&self.training.plan).map_err(|error| Error::new_err(error.to_string()))
    }

    /// The task's description of its model as JSON, if it has one.
    #[getter]
    fn architecture(&self) -> Option<String> {
        self.training.architecture.as_ref().map(ToString::to_string)
    }

    /// The analysis as JSON, if it is one.
    #[getter]
    fn analytics(&self) -> Option<String> {
        self.training.analytics.as_ref().map(|analytics| analytics.to_value().to_string())
    }

    /// Names and shapes, in the order of the flat vector.
    #[getter]
    fn tensors(&self) -> Tensors {
        tensors(&self.layout)
    }

    /// What the proximal term pulls towards, flat, if not the model that the job begins with.
    fn anchor<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        self.constraints.anchor().map(|anchor| PyArray1::from_slice(py, anchor.values()))
    }

    /// Names of the tensors that stay as they are.
    #[getter]
    fn frozen(&self) -> Vec<String> {
        let tensors = self.layout.tensors().iter().enumerate();
        let frozen = tensors.filter(|(number, _)| self.constraints.is_frozen(*number));
        frozen.map(|(_, tensor)| tensor.name.clone()).collect()
    }

    /// What is added to the gradient of every step, flat, if anything.
    fn correction<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyArray1<f32>>> {
        self.constraints.correction().map(|correction| PyArray1::from_slice(py, correction.values()))
    }

    /// The frozen model whose adapters are trained, flat, with its tensors and the factor of what the adapters add; if they are.
    fn base<'py>(&self, py: Python<'py>) -> Option<(Bound<'py, PyArray1<f32>>, Tensors, f32)> {
        let (base, adapters) = self.constraints.base()?;
        Some((PyArray1::from_slice(py, base.values()), tensors(base.layout()), adapters.scale()))
    }

    #[getter]
    fn is_overdue(&self) -> bool {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        answer.as_ref().is_some_and(Answer::is_overdue)
    }

    /// What an earlier, unfinished training of this job saved last.
    fn checkpoint<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.training.checkpoints.load().map(|state| PyBytes::new(py, &state))
    }

    /// Keeps the state of the training.
    fn save_checkpoint(&self, py: Python<'_>, state: &[u8]) -> PyResult<()> {
        of_this_process(self.process)?;
        py.detach(|| self.training.checkpoints.save(state)).map_err(|error| match error {
            NotKept::Over => Overdue::new_err(error.to_string()),
            NotKept::Journal(_) => JournalError::new_err(error.to_string()),
            _ => UpdateError::new_err(error.to_string()),
        })
    }

    /// Whether the last checkpoint is old enough for a new one.
    #[getter]
    fn is_checkpoint_due(&self) -> bool {
        self.training.checkpoints.is_due()
    }

    /// Whether the training should rest.
    #[getter]
    fn should_pause(&self) -> bool {
        self.training.checkpoints.should_pause()
    }

    /// The model as one flat array that Python owns; once.
    fn take_values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let values = self.values.lock().unwrap_or_else(PoisonError::into_inner).take();
        let values = values.ok_or_else(|| Error::new_err("the parameters of this task were taken before"))?;
        Ok(PyArray1::from_vec(py, values))
    }

    /// Hands in the trained model, flat, with metrics as (name, value, count).
    fn finish(
        &self,
        py: Python<'_>,
        values: PyReadonlyArray1<'_, f32>,
        examples: u64,
        metrics: Vec<(String, f64, u64)>,
    ) -> PyResult<()> {
        let values = owned(&values)?;
        let metrics: Vec<_> =
            metrics.into_iter().map(|(name, value, count)| (name, MetricValue { value, count })).collect();
        py.detach(|| runner::check_update(&self.layout, &values, examples, &metrics))
            .map_err(|error| UpdateError::new_err(error.to_string()))?;
        let parameters = Parameters::new(Arc::clone(&self.layout), values);
        let parameters = parameters.map_err(|error| UpdateError::new_err(error.to_string()))?;
        let answer = self.take_answer()?;
        let sent = py.detach(|| answer.finish(Trained { parameters, examples, metrics }));
        sent.map_err(|overdue| Overdue::new_err(overdue.to_string()))
    }

    /// Hands in rows of `width` numbers for an analysis, with what is to be predicted of each if it predicts something. The number of rows.
    #[pyo3(signature = (values, width, targets = None))]
    fn answer(
        &self,
        py: Python<'_>,
        values: PyReadonlyArray1<'_, f64>,
        width: usize,
        targets: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<u64> {
        let (values, targets) = (owned(&values)?, targets.as_ref().map(owned).transpose()?);
        let table = py.detach(|| runner::checked_rows(self.constraints.analysis(), width, values, targets));
        let table = table.map_err(|error| UpdateError::new_err(error.to_string()))?;
        let (answer, rows) = (self.take_answer()?, table.rows() as u64);
        let sent = py.detach(|| answer.rows(table));
        sent.map(|()| rows).map_err(|overdue| Overdue::new_err(overdue.to_string()))
    }

    /// Trains the task's ready model on rows, each with a class, from `values`, and sends the result, with the metrics of the initial
    /// model on rows that are held out. Returns the number of examples; `None` if it was paused, and the job is issued again.
    #[pyo3(signature = (values, features, labels, width, held_out = None))]
    fn train(
        &self,
        py: Python<'_>,
        values: PyReadonlyArray1<'_, f32>,
        features: PyReadonlyArray1<'_, f32>,
        labels: PyReadonlyArray1<'_, u32>,
        width: usize,
        held_out: Option<(PyReadonlyArray1<'_, f32>, PyReadonlyArray1<'_, u32>)>,
    ) -> PyResult<Option<u64>> {
        let rows = rows(&features, &labels, width)?;
        let held_out = held_out.map(|(features, labels)| self::rows(&features, &labels, width)).transpose()?;
        self.train_on(py, &values, rows, held_out)
    }

    /// As [`Self::train`], for a graph: examples are the inputs in the graph's order, targets, the number of examples and the length
    /// of their sequences.
    #[pyo3(signature = (values, examples, held_out = None))]
    fn train_graph(
        &self,
        py: Python<'_>,
        values: PyReadonlyArray1<'_, f32>,
        examples: GivenExamples<'_>,
        held_out: Option<GivenExamples<'_>>,
    ) -> PyResult<Option<u64>> {
        let held_out = held_out.map(GivenExamples::dataset).transpose()?;
        self.train_on(py, &values, examples.dataset()?, held_out)
    }

    fn fail(&self, reason: String) -> PyResult<()> {
        self.take_answer()?.fail(reason).map_err(|overdue| Overdue::new_err(overdue.to_string()))
    }

    fn refuse(&self, reason: String) -> PyResult<()> {
        self.take_answer()?.refuse(reason).map_err(|overdue| Overdue::new_err(overdue.to_string()))
    }
}

fn tensors(layout: &Layout) -> Tensors {
    layout.tensors().iter().map(|tensor| (tensor.name.clone(), tensor.shape.clone())).collect()
}

fn rows(features: &PyReadonlyArray1<'_, f32>, labels: &PyReadonlyArray1<'_, u32>, width: usize) -> PyResult<Dataset> {
    let rows = runner::labelled(owned(features)?, owned(labels)?, width);
    rows.map_err(|error| UpdateError::new_err(error.to_string()))
}
