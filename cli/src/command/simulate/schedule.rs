//! How rounds follow each other: flags for `[schedule]` of the task.

use federation::task::{Mode, ScheduleSpec};

use crate::failure::{Exit, Failure, Outcome};

/// How long a round waits for updates that are finished already.
const COLLECT_MS: u64 = 60_000;

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
    /// Devices that train at the same time, where they train ahead of rounds [default: twice the cohort]
    #[arg(long, value_name = "DEVICES", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    concurrency: Option<u32>,
    /// Versions that an update may be behind, where devices train ahead of rounds
    #[arg(long, value_name = "VERSIONS", value_parser = clap::value_parser!(u32).range(0..=1000))]
    max_staleness: Option<u32>,
    /// From one round to the next in mode semi-sync, in virtual seconds [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=2_592_000))]
    period: Option<u64>,
}

impl ScheduleArgs {
    /// Whether devices train ahead of rounds.
    pub(super) fn trains_ahead(&self) -> bool {
        self.mode != ModeArg::Sync
    }

    /// How long a round waits for updates, given how long a device may train, in seconds.
    pub(super) fn collect_deadline_ms(&self, training_s: u64) -> u64 {
        if self.trains_ahead() { COLLECT_MS } else { training_s * 1000 }
    }

    /// Of a task whose rounds draw so many devices, each of which may train for so many seconds.
    pub(super) fn spec(&self, drawn: u32, training_s: u64) -> Outcome<ScheduleSpec> {
        for (flag, given, is_for) in [
            ("--concurrency", self.concurrency.is_some(), self.trains_ahead()),
            ("--max-staleness", self.max_staleness.is_some(), self.trains_ahead()),
            ("--period", self.period.is_some(), self.mode == ModeArg::SemiSync),
        ] {
            if given && !is_for {
                return Err(Failure::new(Exit::Usage, format!("{flag} does not go with this --mode")));
            }
        }
        if !self.trains_ahead() {
            return Ok(ScheduleSpec::default());
        }
        let is_semi = self.mode == ModeArg::SemiSync;
        Ok(ScheduleSpec {
            mode: if is_semi { Mode::SemiSync } else { Mode::Buffered },
            period_ms: is_semi.then(|| self.period.unwrap_or(60) * 1000),
            concurrency: Some(self.concurrency.unwrap_or(drawn.saturating_mul(2))),
            max_staleness: self.max_staleness,
            staleness_a: None,
            staleness_p: None,
            training_deadline_ms: Some(training_s * 1000),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(mode: ModeArg) -> ScheduleArgs {
        ScheduleArgs { mode, concurrency: None, max_staleness: None, period: None }
    }

    #[test]
    fn flags_become_a_schedule() {
        let sync = args(ModeArg::Sync);
        assert_eq!((sync.spec(13, 600).unwrap(), sync.collect_deadline_ms(600)), (ScheduleSpec::default(), 600_000));
        let buffered = args(ModeArg::Buffered).spec(13, 600).unwrap();
        assert_eq!((buffered.mode, buffered.concurrency, buffered.period_ms), (Mode::Buffered, Some(26), None));
        let semi = ScheduleArgs { period: Some(5), ..args(ModeArg::SemiSync) }.spec(13, 600).unwrap();
        assert_eq!((semi.mode, semi.period_ms, semi.training_deadline_ms), (Mode::SemiSync, Some(5000), Some(600_000)));
        assert!(ScheduleArgs { concurrency: Some(5), ..sync.clone() }.spec(13, 600).is_err());
        assert!(ScheduleArgs { period: Some(5), ..args(ModeArg::Buffered) }.spec(13, 600).is_err());
    }
}
