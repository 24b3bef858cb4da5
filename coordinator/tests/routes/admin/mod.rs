//! Changes by operators.

mod create_task;
mod enrollment_tokens;
mod excuse;
mod idempotency;
mod initial_model;
mod operator_tokens;
mod pin_version;
mod preconditions;
mod promote_version;
mod restore_version;
mod revoke_participant;
mod sign_ins;
mod task_status;
mod tell_server;
