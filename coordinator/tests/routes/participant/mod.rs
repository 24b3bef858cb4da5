//! What participants ask.

mod abandon;
mod ahead;
mod announcements;
mod answers;
mod check_in;
mod enroll;
mod masked_input;
mod parameters;
mod proximal;
