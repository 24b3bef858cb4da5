//! Form of responses.

mod compress;
