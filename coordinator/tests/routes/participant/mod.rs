//! What participants ask.

mod abandon;
mod check_in;
mod enroll;
mod masked_input;
mod parameters;
