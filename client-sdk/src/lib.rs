//! The participant: training loop, transport, journal.
//!
//! An app implements [`Trainer`] for its own model and data, and lets a [`Participant`] do the rest: enrol, check in, fetch
//! the model, train, clip, quantize, mask and send, across networks that fail and processes that are killed.
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
//! Everything that decides is without I/O ([`participant::machine`]); everything that touches the world is a trait that an
//! app may replace: [`Transport`](transport::Transport), [`Journal`](journal::Journal), [`Trainer`],
//! [`Conditions`](conditions::Conditions). What leaves the device passes through [`pipeline`], once, in one order.
//!
//! Where a task has secure aggregation, nothing more is asked of an app: the participant makes keys when it is invited,
//! deals shares of its masks to the others before it trains, masks its update, and helps to open the sum of all who sent
//! one, and nothing else. It checks everything the coordinator says on the way; an app may demand more of it, and that no
//! update goes out uncovered, by [`SecurityPolicy`].
//!
//! Who the others are is certified by an authority that the app names ([`Builder::members_ca_pem`]). If the coordinator holds
//! that authority's key, it can invent them.
//!
//! Where a task has a privacy mechanism, updates are clipped to its norm, neither their weight nor any metric travels, and
//! the participant adds its own share of the noise if participants do. It charges every update to a ledger in its journal
//! before it is sent, holds the task to what it promised first, and stops when that is used up; it also stops when all tasks
//! together have cost what a device may spend in its life ([`Lifetime`]). An app may set limits of its own by [`PrivacyPolicy`], and
//! read the ledger by [`Participant::privacy_spent`] and [`Participant::privacy_lifetime`].

pub mod candle_trainer;
pub mod clock;
pub mod conditions;
pub mod entropy;
pub mod identity;
pub mod journal;
pub mod models;
pub mod participant;
pub mod personalize;
pub mod pre_issued;
pub mod privacy;
mod seed;
pub mod table_trainer;
pub mod train;
pub mod trainer;
pub mod transport;

pub use candle_trainer::{CandleTrainer, Dataset};
pub use learning;
pub use participant::{
    BuildError, Builder, Event, Lowered, Outcome, Participant, ParticipantError, Progress, SecurityPolicy,
};
pub use personalize::PersonalModel;
pub use pre_issued::PreIssued;
pub use privacy::{Lifetime, LifetimeSpent, PrivacyPolicy, PrivacySpent};
#[cfg(feature = "deliberate-faults")]
pub use recipe::device::faults;
pub use recipe::device::pipeline;
pub use table_trainer::TableTrainer;
pub use task_spec;
pub use trainer::{Cancel, REACH, Trained, Trainer, TrainerError, TrainingJob};
pub use wire::{Attribute, Attributes};
