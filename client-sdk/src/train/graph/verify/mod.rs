//! Checks of an imported graph on the operator's machine: against finite differences, and against other frameworks.

mod differences;
mod outputs;
mod report;

pub use self::differences::{Derivative, verify_gradients};
pub use self::outputs::{GraphInputs, GraphOutput, graph_gradient, graph_output};
pub use self::report::{GradientCheck, Verified, verified};
