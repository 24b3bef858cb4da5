//! States that train.

mod train_ahead;
