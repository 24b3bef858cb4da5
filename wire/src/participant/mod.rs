//! Bodies of the participant routes.

mod assignment;
mod check_in;
mod enroll;
mod final_model;
mod masked_input;
mod privacy;
mod session;
mod terms;
mod waiting_for;

pub use assignment::{Assignment, CodecTerms, Counted, Encoding, GroupTerms, HeldUpdate, ModelRef};
pub use check_in::{
    AbandonReason, AbandonRequest, BatchReport, BatchStep, CheckInReply, CheckInRequest, Declined, DiscardReason,
    Finding, LossReport, MAX_FINDINGS, Question, RefusalCode, TaskRefusal, TrainingReport,
};
pub use enroll::{EnrollReply, EnrollRequest, RenewRequest};
pub use final_model::FinalModel;
pub use masked_input::{Receipt, UploadManifest, UploadReply};
pub use privacy::PrivacyTerms;
pub use session::{Announcement, Answer, Invitation, RoundKeys};
pub use terms::SessionTerms;
pub use waiting_for::{MAX_WAITING_FOR, WaitingFor};
