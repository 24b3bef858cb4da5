//! Participants' requests.

mod abandon;
mod announcements;
mod answers;
mod check_in;
mod enroll;
mod masked_input;
mod parameters;
mod renew;
mod upload_parts;
mod withdraw;
