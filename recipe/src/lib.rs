//! The computation of a task's rounds, derived once for both sides: a pure function of an assignment's terms ([`AssignmentTerms`]).
//!
//! A [`Recipe`] has the sent tensors, the codec of updates ([`UpdateCodec`]), and their weights ([`Weighting`]). A participant derives it
//! from its assignment and encodes its update by it ([`device`]). The coordinator derives the same one from the task's specification, and steps
//! the model by the opened sum ([`server`]). Each side computes the derived numbers itself, and [`digest`] binds a session to their inputs.

mod assignment_terms;
pub mod codec;
pub mod device;
pub mod digest;
mod error;
mod recipe;
#[cfg(feature = "deliberate-faults")]
pub mod repeatable_noise;
pub mod server;
mod tensors;
pub mod weighting;

pub use assignment_terms::AssignmentTerms;
pub use codec::UpdateCodec;
pub use error::RecipeError;
pub use recipe::Recipe;
pub use server::TaskModel;
pub use tensors::Tensors;
pub use weighting::Weighting;
