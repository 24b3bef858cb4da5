//! Interruption within a step, and memory that serves batches of several sizes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use graph::Point;
use zeroize::Zeroizing;

use super::statistics::normalized;
use super::{mlp_graph, numbers};
use crate::checkpoints::{Checkpoints, Keep, NotKept};
use crate::model_trainer::{Dataset, ModelTrainer};
use crate::models::{Architecture, InputKind, Mlp};
use crate::train::Device;
use crate::train::graph::executor::{ExecutionError, Executor};
use crate::train::graph::tensor::Tensor;
use crate::trainer::Interrupt;
use crate::trainer::{Cancel, Trained, Trainer, TrainerError, TrainingJob};

fn mlp() -> Architecture {
    mlp_graph(&Mlp { inputs: 6, hidden: vec![9, 5], classes: 3 })
}

fn executor() -> (Executor, graph::ValueId) {
    let Architecture::Graph(model) = mlp() else { unreachable!("it is a graph") };
    (Executor::new(Arc::clone(&model)), model.output())
}

/// Output and gradient of the first examples, computed by this executor.
fn pass(executor: &mut Executor, output: graph::ValueId, batch: u32) -> (Vec<f32>, Vec<f32>) {
    executor.prepare(Point { batch, length: 1 }).unwrap();
    *executor.input(0).unwrap() = Tensor::F32(numbers(batch as usize * 6, 1));
    let parameters = numbers(6 * 9 + 9 + 9 * 5 + 5 + 5 * 3 + 3, 2);
    executor.set_parameters(&parameters);
    executor.forward(None).unwrap();
    let values = executor.value(output).to_vec();
    let mut gradient = vec![f32::NAN; parameters.len()];
    executor.backward(output, &values, &mut gradient).unwrap();
    (values, gradient)
}

#[test]
fn memory_serves_batches_of_several_sizes() {
    let (mut reused, output) = executor();
    for batch in [7, 3, 7, 12, 1] {
        let (mut fresh, _) = executor();
        assert_eq!(pass(&mut reused, output, batch), pass(&mut fresh, output, batch), "batch {batch}");
    }
}

#[test]
fn cancelled_pass_ends_before_the_next_node() {
    let (mut executor, output) = executor();
    pass(&mut executor, output, 2);
    let cancel = Cancel::default();
    executor.interrupt_by(Interrupt::new(&cancel, &Checkpoints::default()));
    executor.forward(None).unwrap();
    cancel.cancel();
    assert!(matches!(executor.forward(None), Err(ExecutionError::Interrupted)));
    let ended = executor.backward(output, &[0.0; 6], &mut [0.0; 146]);
    assert!(matches!(ended, Err(ExecutionError::Interrupted)));
}

/// Requests a pause from the nth question on, in every run.
struct PauseAfter {
    questions: usize,
    asked: AtomicUsize,
    state: Mutex<Option<Vec<u8>>>,
}

impl Keep for PauseAfter {
    fn load(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.asked.store(0, Ordering::Relaxed);
        self.state.lock().unwrap().clone().map(Zeroizing::new)
    }

    fn has_state(&self) -> bool {
        self.state.lock().unwrap().is_some()
    }

    fn save(&self, state: &[u8], _: bool) -> Result<(), NotKept> {
        *self.state.lock().unwrap() = Some(state.to_vec());
        Ok(())
    }

    fn is_due(&self) -> bool {
        false
    }

    fn should_pause(&self) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed) >= self.questions
    }

    fn must_pause(&self) -> bool {
        false
    }
}

fn job(architecture: &Architecture, checkpoints: Checkpoints) -> TrainingJob {
    let plan = task_spec::TrainingPlan { epochs: 2, batch_size: 4, learning_rate: 0.1, ..Default::default() };
    TrainingJob {
        plan,
        architecture: Some(serde_json::to_value(architecture).unwrap()),
        checkpoints,
        ..TrainingJob::of_test()
    }
}

fn train(architecture: &Architecture, job: &TrainingJob, device: &Device) -> Result<Trained, TrainerError> {
    let labels = (0..10).map(|index| index % 3).collect();
    let InputKind::Features(width) = architecture.input() else { unreachable!("it takes rows") };
    let data = Dataset::Labelled { features: numbers(10 * width, 1), labels, width };
    ModelTrainer::new(data.clone(), data, device.clone()).train(&architecture.initial(1).unwrap(), job)
}

#[test]
fn paused_step_is_repeated_with_the_same_bits() {
    // The running statistics of the second one are part of the state, too.
    for architecture in [mlp(), normalized()] {
        pause_everywhere(&architecture, &Device::Cpu);
    }
    #[cfg(feature = "candle")]
    pause_everywhere(&mlp(), &Device::Candle(candle_core::Device::Cpu));
}

/// Leaves each step at another node, in another run, and compares with a run without pauses.
fn pause_everywhere(architecture: &Architecture, device: &Device) {
    let whole = train(architecture, &job(architecture, Checkpoints::default()), device).unwrap();
    // The second step of each run is left at another node; the first has 1 question, of the loop over steps.
    for questions in 1..12 {
        let keep = PauseAfter { questions, asked: AtomicUsize::new(0), state: Mutex::default() };
        let paused = job(architecture, Checkpoints::new(Arc::new(keep)));
        let mut runs = 1;
        let trained = loop {
            match train(architecture, &paused, device) {
                Err(TrainerError::Paused) => runs += 1,
                trained => break trained.unwrap(),
            }
            assert!(runs < 20, "no progress");
        };
        assert!(runs > 1, "{questions}: it was never paused");
        assert_eq!(trained.parameters, whole.parameters, "{questions}");
    }
}
