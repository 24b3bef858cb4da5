//! A trainer that hands jobs to the app's threads.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::time::Duration;

use learning::{Adapters, MetricValue, Parameters, Table};

use super::jobs::asking::trainer_that_asks;
use super::jobs::constraints::{Capabilities, JobConstraints};
use super::jobs::job::{Answer, Answered, Job, PAUSE_GRACE, no_model, rests};
use super::runner_message::{RunnerMessage, Switches};
use crate::trainer::{Constraints, Trained, Trainer, TrainerError, TrainingJob};

/// Interval at which abandoned jobs are detected.
const CANCEL_CHECK: Duration = Duration::from_millis(20);

/// A trainer that hands over each job and waits for the answer. During a pause a job is withdrawn once it has saved a
/// checkpoint, or after its time limit. The trainer does not evaluate models: metrics in an answer count as
/// [`Answer::finish`] describes.
pub(super) struct QueueTrainer {
    say: Sender<RunnerMessage>,
    switches: Arc<Switches>,
    capabilities: Capabilities,
}

impl QueueTrainer {
    pub(super) fn new(say: Sender<RunnerMessage>, switches: Arc<Switches>, capabilities: Capabilities) -> Self {
        Self { say, switches, capabilities }
    }

    fn ask(
        &self,
        parameters: &Parameters,
        job: &TrainingJob,
        constraints: JobConstraints,
    ) -> Result<Answered, TrainerError> {
        let (answer, answered, taken_back) = Answer::to(job);
        let handed = Job { parameters: parameters.clone(), training: job.clone(), constraints, answer };
        self.say
            .send(RunnerMessage::Job(Box::new(handed)))
            .map_err(|_| TrainerError::failed("nobody asks for jobs any more"))?;
        loop {
            match answered.recv_timeout(CANCEL_CHECK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) if job.cancel.is_cancelled() => {
                    return Err(TrainerError::failed("nobody waits for the result any more"));
                }
                // The app gets the job again with its last checkpoint. Without one, the round is abandoned.
                Err(RecvTimeoutError::Timeout) if job.checkpoints.must_pause() => {
                    taken_back.take();
                    // The app may have answered just before, and that answer was accepted.
                    return answered.try_recv().unwrap_or(Err(TrainerError::Paused));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if rests(job) => return Err(TrainerError::Paused),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(TrainerError::failed("the app dropped the job without an answer"));
                }
            }
        }
    }
}

impl Trainer for QueueTrainer {
    trainer_that_asks!();

    fn examples(&self) -> u64 {
        self.switches.examples.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    use learning::{Layout, TensorSpec};
    use zeroize::Zeroizing;

    use super::*;
    use crate::checkpoints::{Checkpoints, Keep, NotKept};

    /// An app that answers its job at the moment of its withdrawal.
    struct InTheLastMoment(Mutex<Receiver<RunnerMessage>>);

    impl Keep for InTheLastMoment {
        fn load(&self) -> Option<Zeroizing<Vec<u8>>> {
            None
        }

        fn has_state(&self) -> bool {
            false
        }

        fn save(&self, _: &[u8], _: bool) -> Result<(), NotKept> {
            Err(NotKept::Over)
        }

        fn is_due(&self) -> bool {
            false
        }

        fn should_pause(&self) -> bool {
            true
        }

        fn must_pause(&self) -> bool {
            let Ok(RunnerMessage::Job(job)) = self.0.lock().unwrap().try_recv() else { panic!("there is no job") };
            let Job { parameters, answer, .. } = *job;
            answer.finish(Trained { parameters, examples: 3, metrics: vec![] }).unwrap();
            true
        }
    }

    #[test]
    fn an_answer_that_was_taken_counts_though_the_job_is_taken_back_meanwhile() {
        let (say, said) = channel();
        let checkpoints = Checkpoints::new(Arc::new(InTheLastMoment(said.into())));
        let job = TrainingJob { checkpoints, ..TrainingJob::of_test() };
        let model = Parameters::zeros(Arc::new(
            Layout::new(vec![TensorSpec { name: "w".to_owned(), shape: vec![2] }]).unwrap(),
        ));
        let trained = QueueTrainer::new(say, Arc::default(), Capabilities::default()).train(&model, &job).unwrap();
        assert_eq!((trained.parameters, trained.examples), (model, 3));
    }
}
