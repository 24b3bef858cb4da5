//! Checks of an imported graph on the operator's machine: against finite differences, and against other frameworks.

mod differences;
mod gradient;
mod report;
mod sample;
mod speed;

pub use self::differences::{Derivative, verify_gradients, verify_gradients_on};
pub use self::gradient::graph_gradient;
pub use self::report::{GradientCheck, Verified, verified};
pub use self::speed::training_speed;
