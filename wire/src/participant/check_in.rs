//! Checking in: "I am here and could work" answered by work, or by when to come back.

use federation::cohort::CoarseLoss;
use federation::id::TaskId;
use serde::{Deserialize, Serialize};
use task_spec::Criterion;

use super::{Assignment, Invitation, RoundKeys};

/// Body of [`crate::route::CHECK_IN`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckInRequest {
    /// The name of the task this participant has data for; without it, any task will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Training examples it has: told beside a [`loss`](Self::loss) alone, which weighs with them, and 0 where it is not told. What
    /// else a task wants to know of their number it asks ([`CheckInReply::Asked`]).
    #[serde(default)]
    pub examples: u64,
    /// How long it is willing to wait for an answer; the coordinator may answer earlier.
    #[serde(default)]
    pub wait_ms: u64,
    /// Keys for the round it was invited to; without them it is drawn into rounds without secure aggregation only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<RoundKeys>,
    /// How the last training for a task went that asked for it ([`Assignment::report_loss`](super::Assignment::report_loss)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<LossReport>,
    /// What it found about itself, for the tasks that asked ([`CheckInReply::Asked`]); at most [`MAX_FINDINGS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<Finding>,
    /// What became of the training that it was given ahead of rounds ([`CheckInReply::Train`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingReport>,
    /// The round that it was invited to last and makes no keys for, since it has sent an input for that number or a later one.
    /// The coordinator has forgotten rounds then, or lies. Said until a later round invites.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declined: Option<Declined>,
    /// How long a request and its answer take on its line, in milliseconds, coarsely ([`crate::line::told`]); left out where that is
    /// short. Phases of rounds that it is drawn into wait so much longer, within a bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<u32>,
}

/// Why a participant makes no keys for a round: it would send a second input under one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Declined {
    /// Of which task.
    pub task: TaskId,
    /// The last round of it that the participant has sent an input for.
    pub sent: u32,
}

/// What became of a training. From which version it started is the coordinator's to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TrainingReport {
    /// The task.
    pub task: TaskId,
    /// Which training: [`Assignment::attempt`](super::Assignment::attempt) of the one that was given.
    pub serial: u32,
    /// True: the participant holds the finished update, for a round to aggregate. False: it has none, and will have none.
    pub ready: bool,
}

/// Most tasks that a participant tells its findings about; they may be the same at every check-in.
pub const MAX_FINDINGS: usize = 32;

/// Whether the participant meets what a task wants of devices. Why stays with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    /// Which task asked.
    pub task: TaskId,
    /// Whether all of its criteria hold.
    pub eligible: bool,
}

/// What a task wants of devices. Its criteria never change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Question {
    /// Which task asks.
    pub task: TaskId,
    /// What must hold, all of it.
    pub criteria: Vec<Criterion>,
}

/// A training loss, coarsely: five bits that a participant volunteers, so that tasks may choose by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LossReport {
    /// The task it was trained for.
    pub task: TaskId,
    /// Its level.
    pub level: CoarseLoss,
}

/// Answer to a check-in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum CheckInReply {
    /// Work. The same assignment is given until it is reported, given up or over.
    Assigned(Box<Assignment>),
    /// Train now, ahead of any round, and check in with the finished update in hand. `round` is the next one that may take it,
    /// `attempt` the serial of the training, `cohort` what a round opens with; nothing is uploaded yet.
    Train(Box<Assignment>),
    /// The finished update that the participant holds is of no use any more: throw it away and check in again.
    Discard {
        /// Of which task.
        task: TaskId,
        /// Which training's.
        serial: u32,
        /// Why.
        reason: DiscardReason,
    },
    /// A round with secure aggregation is about to draw: check in again at once, with keys for it.
    Invited(Box<Invitation>),
    /// Tasks want something of devices: find out whether this is one, and check in again at once with the findings.
    Asked {
        /// What they want.
        questions: Vec<Question>,
    },
    /// Nothing yet: check in again after this time. It is spread, so that participants do not come back together.
    ComeBack {
        /// From now.
        after_ms: u64,
    },
    /// The named task is over; nothing will come.
    TaskOver {
        /// Which.
        task: TaskId,
    },
}

task_spec::named_enum! {
    /// Why a finished update is thrown away.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum DiscardReason {
        /// More versions were published since its training began than the task allows.
        TooStale = "too_stale",
        /// No round expects it: the coordinator gave no such training, its update is in a sum already, or its task is over.
        Unknown = "unknown",
    }
}

/// Body of [`crate::route::ABANDON`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AbandonRequest {
    /// The attempt that is given up.
    pub attempt: u32,
    /// Why.
    pub reason: AbandonReason,
    /// With [`AbandonReason::Refused`]: what was refused. Older SDKs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<RefusalCode>,
}

task_spec::named_enum! {
    /// Why a participant gives up its place.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum AbandonReason {
        /// The app's conditions do not hold any more (power, network, idleness).
        Conditions = "conditions",
        /// Training failed or gave an update that must not be sent.
        TrainingFailed = "training_failed",
        /// The assignment asks for something this participant refuses or does not know.
        Refused = "refused",
        /// The app is going away.
        ShuttingDown = "shutting_down",
    }
}

task_spec::named_enum! {
    /// What a participant refuses. The coordinator is told this code and nothing else: the words, which may hold figures of the
    /// participant's own, stay on the device.
    #[derive(thiserror::Error)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    pub enum RefusalCode {
        /// The terms are below a floor that its app has set (`client_sdk::SecurityPolicy`).
        #[error("the task is below what its app demands of secure aggregation")]
        Policy = "policy",
        /// What the coordinator showed of the session is not as the protocol has it.
        #[error("what it was shown of the session of secure aggregation is not as it must be")]
        Protocol = "protocol",
        /// It has given an update from this model, or of this round, before.
        #[error("it has given an update from this model or of this round before, and gives no second one")]
        Given = "given",
        /// It has no keys, or no certificate, with which it could take part in this session.
        #[error("it has no keys or no certificate for this session")]
        Keys = "keys",
        /// Its own limits of privacy, or a promise that was changed.
        #[error("its own limits of privacy do not allow it, or the promise is not the one it was given first")]
        Privacy = "privacy",
        /// The model or the update takes more memory than its app allows.
        #[error("the model or the update is larger than its app allows")]
        TooLarge = "too_large",
        /// The assignment contradicts itself, or asks for what this SDK does not know.
        #[error("the assignment makes no sense, or asks for what its SDK does not know")]
        Assignment = "assignment",
        /// The model version could not be fetched whole, or is none.
        #[error("the model did not come as its digest says")]
        Model = "model",
        /// Its app's trainer declined.
        #[error("its app declined to train")]
        App = "app",
        /// The coordinator would not take what it sent.
        #[error("the coordinator did not take what it sent")]
        NotTaken = "not_taken",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_pinned() {
        fn pinned<T: Copy + Serialize, const N: usize>(all: [T; N], as_str: fn(T) -> &'static str, names: [&str; N]) {
            assert_eq!(all.map(as_str), names);
            assert_eq!(serde_json::to_value(all.to_vec()).unwrap(), serde_json::json!(names.to_vec()));
        }
        pinned(DiscardReason::ALL, DiscardReason::as_str, ["too_stale", "unknown"]);
        let abandon = ["conditions", "training_failed", "refused", "shutting_down"];
        pinned(AbandonReason::ALL, AbandonReason::as_str, abandon);
        let refusals =
            ["policy", "protocol", "given", "keys", "privacy", "too_large", "assignment", "model", "app", "not_taken"];
        pinned(RefusalCode::ALL, RefusalCode::as_str, refusals);
    }
}
