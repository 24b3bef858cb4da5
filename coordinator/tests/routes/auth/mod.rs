//! Authentication of participants and operators.

mod authenticate;
mod operators;
mod signed;
