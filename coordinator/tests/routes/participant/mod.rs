//! What participants ask.

mod abandon;
mod abort_statements;
mod announcements;
mod answers;
mod check_in;
mod enroll;
mod masked_input;
mod parameters;
mod renew;
mod upload_parts;
