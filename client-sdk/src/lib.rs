//! The participant side: training loop, transport, journal.
//!
//! An app implements [`Trainer`] for its model and data, and a [`Participant`] does the rest: it enrols, checks in,
//! fetches the model, trains, clips, quantizes, masks and sends, despite network failures and killed processes.
//!
//! ```
//! use client_sdk::journal::MemoryJournal;
//! use client_sdk::learning::{MetricValue, Parameters};
//! use client_sdk::{Participant, Trained, Trainer, TrainerError, TrainingJob};
//!
//! /// Learns the mean of its own numbers.
//! struct Mean(Vec<f32>);
//!
//! impl Trainer for Mean {
//!     fn train(&mut self, model: &Parameters, job: &TrainingJob) -> Result<Trained, TrainerError> {
//!         let mut parameters = model.clone();
//!         for _ in 0..job.plan.epochs {
//!             for number in &self.0 {
//!                 let weight = &mut parameters.values_mut()[0];
//!                 *weight += job.plan.learning_rate as f32 * (number - *weight);
//!             }
//!         }
//!         Ok(Trained { parameters, examples: self.examples(), metrics: vec![] })
//!     }
//!
//!     fn evaluate(&mut self, model: &Parameters, _: &TrainingJob) -> Result<Vec<(String, MetricValue)>, TrainerError> {
//!         let error = self.0.iter().map(|number| f64::from(number - model.values()[0]).powi(2)).sum::<f64>();
//!         Ok(vec![("loss".into(), MetricValue { value: error / self.0.len() as f64, count: self.examples() })])
//!     }
//!
//!     fn examples(&self) -> u64 {
//!         self.0.len() as u64
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
//! # let ca_pem = rcgen::CertificateParams::new(vec![])?.self_signed(&key)?.pem();
//! let mut participant = Participant::builder()
//!     .server("https://federation.example:8443")
//!     .ca_pem(ca_pem)
//!     .enrollment_token("one-time-token")
//!     .task("mean")
//!     .journal(MemoryJournal::new()) // a real app: `JournalFiles::beside(folder).open()?`
//!     .trainer(Mean(vec![1.0, 2.0, 4.0]))
//!     .on_event(|event| println!("{event:?}"))
//!     .build()?;
//! // Then, in a tokio runtime: `participant.run(shutdown).await?`, or `participant.poll(limit).await` now and then.
//! # let _ = async move { participant.run(std::future::pending()).await };
//! # Ok(())
//! # }
//! ```
//!
//! The app uses the model offline ([`Participant::model`]): the journal keeps the published version that the last round began with, or the
//! device's own. A training that is killed goes on from its last checkpoint ([`Checkpoints`]), and one whose conditions end is paused.
//! [`DeviceConditions`] decide when a device may work, and report the unmet condition. An app without a runtime drives the participant itself
//! ([`Machine::tick`](participant::machine::Machine::tick); [`Driven`](participant::Driven) with the SDK's own HTTPS), or has a [`runner`].
//!
//! Unused parts can be left out: the transport over HTTPS (feature `https`), and the ready models with their training
//! and scoring (`models`). Both are on by default; `cuda` and `metal` add candle and a GPU.
//!
//! All decisions are made without I/O ([`participant::machine`]); all I/O is behind traits that an app may implement:
//! [`Transport`](transport::Transport), [`Journal`](journal::Journal), [`Trainer`],
//! [`Conditions`](conditions::Conditions). Everything that leaves the device passes through [`pipeline`].
//!
//! Secure aggregation is transparent to an app: the participant generates keys when invited, deals shares of its masks
//! before it trains, masks its update, and helps to open only the sum of all updates sent. It verifies everything the
//! coordinator sends; with [`SecurityPolicy`] an app may set stricter requirements, and forbid updates without masks.
//!
//! An authority that the app chooses certifies the other participants ([`Builder::members_ca_pem`]). If the coordinator
//! holds that authority's key, it can invent participants.
//!
//! With a privacy mechanism, updates are clipped to its norm, their weight and metrics stay on the device, and the
//! participant adds its share of the noise if the mechanism is distributed. It charges every update to a ledger in its
//! journal before sending it, holds the task to its first guarantee, and stops when the budget is used up, or when all
//! tasks together have used up the device's lifetime budget ([`Lifetime`]). An app may set its own limits with
//! [`PrivacyPolicy`], and read the ledger with [`Participant::privacy_spent`] and [`Participant::privacy_lifetime`]. What a participant
//! sent is [`Participant::data_use`], and what it refused, and why, [`Participant::refusals`]; both are in the journal.

#[cfg(feature = "candle")]
pub mod candle_trainer;
pub mod checkpoints;
pub mod clock;
pub mod conditions;
pub mod entropy;
pub mod identity;
pub mod journal;
pub mod local_model;
#[cfg(feature = "models")]
pub mod model_trainer;
#[cfg(feature = "models")]
pub mod models;
pub mod participant;
pub mod personalize;
pub mod pre_issued;
pub mod privacy;
#[cfg(all(unix, feature = "process"))]
pub mod process_trainer;
pub mod runner;
mod seed;
pub mod table_trainer;
#[cfg(feature = "models")]
pub mod train;
pub mod trainer;
pub mod transport;

#[cfg(feature = "candle")]
pub use candle_trainer::{CandleData, CandleTrainer};
pub use checkpoints::{Checkpoints, NotKept};
pub use conditions::{DeviceConditions, DeviceState, Thermal, Unmet};
pub use learning;
pub use learning::{Clipping, Layout, MetricValue, Parameters, Table};
pub use local_model::{Model, Origin};
#[cfg(feature = "models")]
pub use model_trainer::{Dataset, Elements, ModelTrainer, NamedExamples, Targets};
pub use participant::{
    BuildError, Builder, Event, KeptModel, LoweredFloor, Outcome, Participant, ParticipantError, Progress, Refusal,
    SecurityPolicy, WithdrawalError,
};
pub use pre_issued::PreIssued;
pub use privacy::{Lifetime, LifetimeSpent, PrivacyPolicy, PrivacySpent};
#[cfg(all(unix, feature = "process"))]
pub use process_trainer::ProcessTrainer;
#[cfg(feature = "deliberate-faults")]
pub use recipe::device::faults;
pub use recipe::device::pipeline;
pub use table_trainer::TableTrainer;
pub use task_spec;
pub use task_spec::{Analytics, TableColumn, TableSpec, TrainingPlan};
pub use trainer::{Cancel, Constraints, Purpose, REACH, Trained, Trainer, TrainerError, TrainingJob};
pub use wire;
pub use wire::audit::AuditKey;
pub use wire::participant::{AbandonReason, DiscardReason, RefusalCode, WaitingFor};
pub use wire::problem::Problem;
pub use wire::provenance::SignedProvenance;
pub use wire::{Attempt, Attribute, Attributes, Digest, ParticipantId, TaskId, Timestamp, TraceContext};
