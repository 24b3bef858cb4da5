//! How rounds follow each other: flags for `[schedule]` of the task.

use std::time::Duration;

use task_spec::Cohort;
use task_spec::{MAX_COHORT, MAX_SECURE_COHORT, Mode, ScheduleSpec, TaskSpec};

use crate::failure::{Exit, Failure, Outcome};

/// How long a round waits for updates that are finished already.
const COLLECT: Duration = Duration::from_secs(60);

/// How rounds follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ModeArg {
    /// A round draws a cohort, which trains together; then the next one begins
    Sync,
    /// Devices train on their own; each period what is ready is aggregated
    SemiSync,
    /// Devices train on their own; as soon as a cohort's worth of updates is ready it is aggregated (FedBuff)
    Buffered,
}

/// How rounds follow each other.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ScheduleArgs {
    /// How rounds follow each other
    #[arg(long, value_enum, default_value = "sync")]
    mode: ModeArg,
    /// Devices that train or wait with a finished update at the same time, where they train ahead of rounds [default: twice
    /// those drawn]
    #[arg(long, value_name = "DEVICES", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    concurrency: Option<u32>,
    /// Versions that an update may be behind, where devices train ahead of rounds
    #[arg(long, value_name = "VERSIONS", value_parser = clap::value_parser!(u32).range(0..=1000))]
    max_staleness: Option<u32>,
    /// From one round to the next in mode semi-sync, in seconds (of virtual time in a simulation) [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=2_592_000))]
    period: Option<u64>,
}

impl ScheduleArgs {
    /// Whether devices train ahead of rounds.
    pub(super) fn trains_ahead(&self) -> bool {
        self.mode != ModeArg::Sync
    }

    /// Changes a task of synchronous rounds that draw so many devices, each of which may train for so long.
    pub(super) fn apply(&self, task: &mut TaskSpec, drawn: u32, training: Duration) -> Outcome {
        let is_semi = self.mode == ModeArg::SemiSync;
        for (flag, given, is_for) in [
            ("--concurrency", self.concurrency.is_some(), self.trains_ahead()),
            ("--max-staleness", self.max_staleness.is_some(), self.trains_ahead()),
            ("--period", self.period.is_some(), is_semi),
        ] {
            if given && !is_for {
                return Err(Failure::new(Exit::Usage, format!("{flag} does not go with this --mode")));
            }
        }
        if !self.trains_ahead() {
            return Ok(());
        }
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let concurrency = self.concurrency.unwrap_or(drawn.saturating_mul(2));
        task.schedule = ScheduleSpec {
            mode: if is_semi { Mode::SemiSync } else { Mode::Buffered },
            period_ms: is_semi.then(|| self.period.unwrap_or(60) * 1000),
            concurrency: Some(concurrency),
            max_staleness: self.max_staleness,
            training_deadline_ms: Some(millis(training)),
            ..ScheduleSpec::default()
        };
        // The updates are finished when the round begins.
        task.rounds.collect_deadline_ms = millis(COLLECT);
        task.rounds.select_min = Some(drawn);
        if is_semi {
            // As many as there are.
            let most = if task.secure_aggregation.enabled { MAX_SECURE_COHORT } else { MAX_COHORT };
            task.selection.cohort = Cohort::Fraction(1.0);
            task.rounds.select_max = concurrency.max(drawn).min(most);
            task.rounds.collect_max = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(mode: ModeArg) -> ScheduleArgs {
        ScheduleArgs { mode, concurrency: None, max_staleness: None, period: None }
    }

    fn applied(args: &ScheduleArgs) -> Outcome<TaskSpec> {
        let mut task: TaskSpec = serde_json::from_value(serde_json::json!({ "name": "t", "model": {} })).unwrap();
        args.apply(&mut task, 13, Duration::from_secs(600)).map(|()| task)
    }

    #[test]
    fn flags_become_a_schedule() {
        let sync = applied(&args(ModeArg::Sync)).unwrap();
        assert_eq!((sync.schedule, sync.rounds.collect_deadline_ms), (ScheduleSpec::default(), 600_000));
        let buffered = applied(&args(ModeArg::Buffered)).unwrap();
        let schedule = &buffered.schedule;
        assert_eq!((schedule.mode, schedule.concurrency, schedule.period_ms), (Mode::Buffered, Some(26), None));
        assert_eq!((buffered.rounds.select_min, buffered.rounds.collect_deadline_ms), (Some(13), 60_000));
        let semi = applied(&ScheduleArgs { period: Some(5), ..args(ModeArg::SemiSync) }).unwrap();
        let schedule = &semi.schedule;
        assert_eq!((schedule.mode, schedule.period_ms), (Mode::SemiSync, Some(5000)));
        assert_eq!((semi.selection.cohort, semi.rounds.select_max), (Cohort::Fraction(1.0), 26), "all that is ready");
        assert!(applied(&ScheduleArgs { concurrency: Some(5), ..args(ModeArg::Sync) }).is_err());
        assert!(applied(&ScheduleArgs { period: Some(5), ..args(ModeArg::Buffered) }).is_err());
    }
}
