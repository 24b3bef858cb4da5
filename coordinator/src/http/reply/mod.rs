//! The form of responses: errors, entity tags, compression and the shape of views.

pub(super) mod compress;
pub(super) mod encoding;
pub(super) mod etag;
pub(super) mod problem;
mod problem_page;
pub(super) mod shape;
