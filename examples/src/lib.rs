//! Small programs a newcomer runs first.
