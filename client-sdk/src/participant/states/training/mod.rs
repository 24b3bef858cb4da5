//! States that fetch a model, train or evaluate it, and persist the result.

mod charge;
mod fetch;
mod final_model;
mod keep_model;
mod load_local;
mod prove;
mod train;
mod train_ahead;
mod unfinished;
